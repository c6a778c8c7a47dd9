// A model on disk made of any bytes: the files of a Hugging Face folder, or the parts of a split GGUF.
// Input: 'h' or 'g', then the files with kSeparator between them. h: those of kNames (empty ones are not
// written). g: the parts, in order.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "io/model_files.h"
#include "quant/quantize.h"

using namespace quintet;

namespace {

constexpr std::string_view kSeparator = "\n--8<--\n";
constexpr const char* kNames[] = {"config.json",          "model.safetensors.index.json",
                                  "model.safetensors",    "model-2.safetensors",
                                  "quantize_config.json", "metadata.gguf",
                                  "tokenizer.json",       "job_new.json"};
constexpr int64_t kMostRows = 4;  ///< of a tensor that are decoded

/// One folder a process, in memory where the machine has a place for that.
struct Folder {
  Folder() {
    std::string pattern =
        (std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp") + std::string("/quintet-fuzz-XXXXXX");
    QUINTET_CHECK(::mkdtemp(pattern.data()));
    path = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const std::string& name, std::string_view content) const {
    std::ofstream(path + "/" + name, std::ios::binary) << content;
  }
  std::string path;
};

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; parts.size() < 8; at += kSeparator.size()) {
    const size_t end = std::min(text.find(kSeparator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    if (end == text.size()) break;
    at = end;
  }
  return parts;
}

/// The first rows as a loader takes them: made where they need to be, checked, decoded.
void decode(const HostWeight& weight) {
  QuantizedMatrix made;
  const auto some = made_of(weight.slice_rows(0, std::min(weight.n, kMostRows)), made);
  if (!some || !check_side_data(*some)) return;
  std::vector<float> row(static_cast<size_t>(some->k));
  for (int64_t i = 0; i < some->n; ++i) decode_row(*some, i, row.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const Folder folder;
  for (const auto& old : std::filesystem::directory_iterator(folder.path)) std::filesystem::remove(old);
  const auto parts = split({reinterpret_cast<const char*>(data) + 1, size - 1});
  std::string path = folder.path;
  if (data[0] == 'g') {
    for (size_t i = 0; i < parts.size(); ++i)
      folder.write(fmt::format("m-{:05}-of-{:05}.gguf", i + 1, parts.size()), parts[i]);
  } else {
    for (size_t i = 0; i < std::min(parts.size(), std::size(kNames)); ++i)
      if (!parts[i].empty()) folder.write(kNames[i], parts[i]);
  }
  for (const bool weights : {true, false}) {
    const auto files = ModelFiles::open(path, {.weights = weights});
    if (!files) {
      QUINTET_CHECK(files.error().message.starts_with(path), "{}", files.error().message);
      continue;
    }
    uint64_t sum = 0;
    for (const auto& tensor : files->tensors()) {
      QUINTET_CHECK(files->find(tensor.weight.name) == &tensor);
      QUINTET_CHECK(
          tensor.weight.maker ||
          format_bytes_of(tensor.weight.format, static_cast<uint64_t>(tensor.weight.n * tensor.weight.k)) ==
              tensor.weight.bytes.size());
      for (const auto byte : tensor.weight.bytes) sum += byte;
      decode(tensor.weight);
    }
    QUINTET_CHECK(!files->require("no such name") || files->find("no such name"));
    QUINTET_CHECK(files->file_bytes() <= size && sum <= 255 * size);
  }
  return 0;
}
