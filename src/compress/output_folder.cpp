// Makes, fills and names the output folder.
#include "compress/output_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_parse.h"
#include "io/gguf_writer.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Files that hold or index weights, which are written anew.
bool is_weights(const fs::path& file) {
  static constexpr std::array<std::string_view, 7> kSuffixes = {".safetensors", ".bin",  ".gguf",      ".pt",
                                                                ".pth",         ".onnx", ".index.json"};
  const std::string name = file.filename().string();
  return std::any_of(kSuffixes.begin(), kSuffixes.end(), [&](auto suffix) { return name.ends_with(suffix); });
}

}  // namespace

Result<OutputFolder> OutputFolder::create(const std::string& destination) {
  std::string trimmed = destination;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  std::error_code error;
  if (fs::exists(fs::symlink_status(trimmed, error)))
    return bad_input(
        fmt::format("{}: found something there, allowed is a name that does not exist yet", trimmed));
  const std::string partial = fmt::format("{}.partial.{}", trimmed, ::getpid());
  fs::create_directory(partial, error);
  if (error) return bad_input(fmt::format("{}: cannot make the folder: {}", partial, error.message()));
  return OutputFolder(trimmed, partial);
}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : destination_(std::move(other.destination_)), partial_(std::exchange(other.partial_, {})) {}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (!partial_.empty()) fs::remove_all(partial_, ignored);
}

std::string OutputFolder::file(std::string_view name) const { return fmt::format("{}/{}", partial_, name); }

Status OutputFolder::copy_companions(const ModelFiles& source, const std::string& quantization_config) {
  Json config = Json::object();
  if (source.gguf()) {
    TRY(write_gguf_metadata(file(kQuintetMetadataName), *source.gguf()));
  } else {
    config = parse_json_tree<Json>(source.texts().config);
    if (!config.is_object())
      return bad_input(fmt::format("{}/config.json: found no JSON object", source.path()));
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(source.path(), error)) {
      const std::string name = entry.path().filename().string();
      if (!entry.is_regular_file() || is_weights(entry.path()) || name == "config.json") continue;
      fs::copy_file(entry.path(), file(name), error);
      if (error) return io_error(fmt::format("{}: {}", file(name), error.message()));
    }
    if (error) return io_error(fmt::format("{}: {}", source.path(), error.message()));
  }
  config["quantization_config"] = parse_json_tree<Json>(quantization_config);
  std::ofstream out(file("config.json"), std::ios::binary);
  out << config.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  out.close();
  if (!out) return io_error(fmt::format("{}: cannot write", file("config.json")));
  return {};
}

Status give_name(std::string& partial, const std::string& destination) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(destination, error)))
    return bad_input(fmt::format(
        "{}: found something there that was not there before, allowed is a free name", destination));
  fs::rename(partial, destination, error);
  if (error) return io_error(fmt::format("{}: {}", destination, error.message()));
  partial.clear();
  return {};
}

Status OutputFolder::finish() { return give_name(partial_, destination_); }

}  // namespace quintet
