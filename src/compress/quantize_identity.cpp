// Names what two runs of a command must share.
#include "compress/quantize_identity.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/fnv1a.h"
#include "io/mapped_file.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// The files of a Hugging Face folder that decide what its weights and texts mean, each with the hash of its bytes.
std::string texts_of(const std::string& folder) {
  static constexpr std::string_view kNames[] = {
      "config.json",    "generation_config.json", "model.safetensors.index.json", "quantize_config.json",
      "tokenizer.json", "tokenizer_config.json",  "tokenizer.model",              "vocab.json",
      "merges.txt",     "added_tokens.json",      "special_tokens_map.json",      "chat_template.jinja",
      "chat_template.json", kQuintetMetadataName};
  constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return "none";
  std::string texts;
  for (const std::string_view name : kNames)
    if (const auto text = read_text_file(fmt::format("{}/{}", folder, name), kMaxBytes))
      texts += fmt::format("{}{} {:016x}", texts.empty() ? "" : ", ", name, fnv1a(*text));
  return texts;
}

/// "2026-12-01 03:35:26.123456789 UTC"
std::string time_of(fs::file_time_type changed) {
  const auto since = std::chrono::file_clock::to_sys(changed).time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:09} UTC", fmt::gmtime(static_cast<std::time_t>(seconds.count())),
                     std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds).count());
}

}  // namespace

Json identity_of(const ModelFiles& files, const Backend& backend, const QuantizeOptions& options) {
  std::string source;
  for (const std::string& path : files.weight_paths()) {
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    source += fmt::format("{}{} of {} bytes, last changed {}", source.empty() ? "" : ", ", fs::absolute(path, error).string(), bytes,
                          time_of(fs::last_write_time(path, error)));
  }
  std::string method = describe(options);
  for (const FormatOverride& override : options.overrides)
    method += fmt::format(", {}={}", override.pattern, override.stays ? "as it is" : format_info(override.format).name);
  Json identity = {{"program", fmt::format("quintet {}", kQuintetVersion)}, {"source", source}, {"method", method}};
  identity["set of files beside the weights"] = texts_of(files.path());
  if (options.needs_calibration()) {
    identity["calibration text"] = fmt::format("{} bytes, {:016x}", options.calibration_text.size(),
                                               fnv1a(options.calibration_text));
    identity["backend"] = fmt::format("{} {:016x}", backend.info().name, backend.numerics().id());
  }
  if (options.importance) {
    uint64_t sum = 0;
    for (const auto& [name, moments] : *options.importance)
      sum = sum * 31 + fnv1a(name) +
            fnv1a({reinterpret_cast<const char*>(moments.data()), moments.size() * sizeof(float)});
    identity["importance matrix"] = fmt::format("{} weights, {:016x}", options.importance->size(), sum);
  }
  return identity;
}

}  // namespace quintet
