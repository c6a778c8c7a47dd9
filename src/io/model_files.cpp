// Opens a GGUF file or a Hugging Face folder and gives both the same list of tensors.
#include "io/model_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "base/units.h"
#include "io/foreign.h"
#include "io/json_walk.h"

namespace quintet {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{4} << 20;
constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxTokenizerConfigBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr size_t kMaxNamesShown = 5;

std::string join(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMaxNamesShown); ++i)
    out += (i ? ", " : "") + printable(names[i]);
  if (names.size() > kMaxNamesShown) out += fmt::format(" and {} more", names.size() - kMaxNamesShown);
  return out;
}

bool has_name(const std::vector<std::string>& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

std::vector<std::string> with_suffix(const std::vector<std::string>& names, std::string_view suffix) {
  std::vector<std::string> out;
  std::copy_if(names.begin(), names.end(), std::back_inserter(out),
               [&](const auto& name) { return name.ends_with(suffix); });
  return out;
}

/// The names in a folder, sorted.
Result<std::vector<std::string>> list_folder(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(path, error), end;
  for (; !error && entry != end; entry.increment(error)) names.push_back(entry->path().filename().string());
  if (error) return io_error(fmt::format("{}: cannot list the folder: {}", path, error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

/// The text of a file of the folder, empty where there is none.
Status read_sidecar(const std::string& folder, std::string_view name, uint64_t limit_bytes,
                    std::string& text) {
  const auto path = fmt::format("{}/{}", folder, name);
  std::error_code error;
  // Of the name itself: a link that leads nowhere is a fault, not an absence.
  if (!fs::exists(fs::symlink_status(path, error))) return {};
  TRY_ASSIGN(text, read_text_file(path, limit_bytes));
  return {};
}

Status read_texts(const std::string& folder, HuggingFaceTexts& texts) {
  TRY(read_sidecar(folder, "config.json", kMaxConfigBytes, texts.config));
  TRY(read_sidecar(folder, "generation_config.json", kMaxConfigBytes, texts.generation_config));
  TRY(read_sidecar(folder, "tokenizer.json", kMaxTokenizerBytes, texts.tokenizer));
  TRY(read_sidecar(folder, "tokenizer_config.json", kMaxTokenizerConfigBytes, texts.tokenizer_config));
  return read_sidecar(folder, "chat_template.jinja", kMaxConfigBytes, texts.chat_template);
}

/// Tensor name -> file name, as the index says. Sorted by both uses.
using WeightMap = std::map<std::string, std::string, std::less<>>;

/// A name that stays in the folder: no separators, no "..", nothing hidden.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

Result<WeightMap> read_index(const std::string& path, std::string_view text) {
  WeightMap map;
  bool found = false;
  const auto visit = [&](const JsonEvent& event) -> Status {
    using Kind = JsonEvent::Kind;
    const auto fault = [&](std::string_view where, std::string_view seen, std::string_view allowed) {
      return bad_input(fmt::format("{}: {}: found {}, allowed is {}", path, where, seen, allowed));
    };
    const bool container = event.kind == Kind::begin_object || event.kind == Kind::end_object;
    if (event.path.empty())
      return container ? Status() : fault("the text", json_kind_name(event.kind), "an object");
    if (event.path.front() != "weight_map") return {};
    if (event.path.size() == 1) {
      if (event.kind == Kind::begin_object && std::exchange(found, true))
        return fault("weight_map", "it twice", "once");
      return container ? Status()
                       : fault("weight_map", json_kind_name(event.kind), "an object of file names");
    }
    const auto where = fmt::format("weight_map: {}", printable(event.path[1]));
    if (event.kind != Kind::string || event.in_array || event.path.size() > 2)
      return fault(where, json_kind_name(event.kind), "a file name");
    if (!is_plain_name(event.string) || !event.string.ends_with(".safetensors"))
      return fault(where, printable(event.string), "the name of a .safetensors file in the same folder");
    if (!map.emplace(event.path[1], event.string).second) return fault(where, "the tensor twice", "once");
    return {};
  };
  TRY(walk_json(text, path, 16, visit));
  if (!found)
    return bad_input(fmt::format("{}: weight_map: found nothing, allowed is an object of file names", path));
  return map;
}

/// Beside a size of 0 the other ones may be anything: their product need not fit 64 bits.
Status check_not_empty(std::string_view path, const SafeTensor& tensor) {
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) == tensor.shape.end()) return {};
  return bad_input(fmt::format("{}: tensor {}: found the shape [{}], allowed are sizes of 1 and more", path,
                               printable(tensor.name), fmt::join(tensor.shape, ", ")));
}

/// The view of one safetensors tensor; nothing where it is a buffer that no model of ours needs (counters,
/// masks).
Result<std::optional<ModelTensor>> view_of(const std::string& path, const SafeTensor& tensor, int32_t file) {
  TRY(refuse_foreign_tensor(path, tensor.name));
  ModelTensor view;
  if (tensor.dtype == "F32")
    view.weight.format = WeightFormat::f32;
  else if (tensor.dtype == "F16")
    view.weight.format = WeightFormat::f16;
  else if (tensor.dtype == "BF16")
    view.weight.format = WeightFormat::bf16;
  else if (tensor.dtype == "I64" || tensor.dtype == "BOOL")
    return std::optional<ModelTensor>();
  else
    return bad_input(fmt::format("{}: tensor {}: found the dtype {}, allowed are F32, F16 and BF16", path,
                                 printable(tensor.name), tensor.dtype));
  TRY(check_not_empty(path, tensor));
  view.weight.name = tensor.name;
  view.shape = tensor.shape;
  view.weight.bytes = tensor.bytes;
  view.file = file;
  return std::optional<ModelTensor>(std::move(view));
}

/// n and k of a checked shape: all dimensions but the last multiplied, and the last. A scalar is [1, 1].
void set_matrix(ModelTensor& tensor) {
  const auto& shape = tensor.shape;
  tensor.weight.k = shape.empty() ? 1 : shape.back();
  tensor.weight.n = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) tensor.weight.n *= shape[i];
}

}  // namespace

Result<ModelFiles> ModelFiles::open(const std::string& path, const OpenOptions& options) {
  if (path.empty()) return bad_input("found an empty path, allowed is that of a model file or folder");
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status))
    return not_found(fmt::format("{}: found nothing there, allowed is a model file or folder", path));
  if (!fs::is_directory(status)) return open_file(path, options);

  TRY_ASSIGN(const auto names, list_folder(path));
  auto models = with_suffix(names, ".gguf");
  const bool safetensors_or_no_gguf = models.empty() || !with_suffix(names, ".safetensors").empty();
  if ((has_name(names, "config.json") && safetensors_or_no_gguf) ||
      (!options.weights && has_name(names, "tokenizer.json")))
    return open_folder(path, names, options);
  std::erase_if(models, [](const std::string& name) { return name.starts_with("mmproj"); });
  if (models.size() > 1) {
    // The parts of one split set differ in their numbers alone.
    const auto stem = [](const std::string& name) { return name.substr(0, name.find("-0")); };
    if (!std::all_of(models.begin(), models.end(), [&](const auto& name) {
          return name.find("-of-") != name.npos && stem(name) == stem(models.front());
        }))
      return bad_input(fmt::format("{}: found {} GGUF files ({}), allowed is one model: name the file", path,
                                   models.size(), join(models)));
  }
  if (!models.empty()) return open_file(fmt::format("{}/{}", path, models.front()), options);
  TRY(refuse_foreign_folder(path, names));
  return bad_input(fmt::format(
      "{}: found a folder without config.json and without .gguf files, allowed is a model", path));
}

ModelFiles ModelFiles::of_gguf(GgufFile metadata, std::vector<ModelTensor> tensors, const ModelFiles& origin) {
  ModelFiles files;
  files.path_ = origin.path_;
  files.weight_paths_ = origin.weight_paths_;
  files.file_bytes_ = origin.file_bytes_;
  files.gguf_ = std::move(metadata);
  files.tensors_ = std::move(tensors);
  files.index_tensors();
  return files;
}

Result<ModelFiles> ModelFiles::open_file(const std::string& path, const OpenOptions& options) {
  const fs::path file(path);
  if (!options.weights && file.extension() == ".json") {
    const auto folder = file.has_parent_path() ? file.parent_path().string() : std::string(".");
    ModelFiles files;
    files.path_ = path;
    // Under another name than tokenizer.json the files beside it belong to something else.
    if (file.filename() == "tokenizer.json")
      TRY(read_texts(folder, files.texts_));
    else
      TRY(read_sidecar(folder, file.filename().string(), kMaxTokenizerBytes, files.texts_.tokenizer));
    return files;
  }
  {
    TRY_ASSIGN(const auto mapped, MappedFile::open(path));
    const auto bytes = mapped.bytes();
    const bool gguf = bytes.size() >= 4 && std::equal(bytes.begin(), bytes.begin() + 4, "GGUF");
    if (const auto kind = gguf ? std::nullopt : foreign_file_kind(path, bytes))
      return bad_input(
          fmt::format("{}: found {}, allowed is a GGUF file or a Hugging Face folder", path, *kind));
  }
  ModelFiles files;
  files.path_ = path;
  TRY_ASSIGN(files.gguf_, GgufFile::open(path));
  const auto& gguf = *files.gguf_;
  TRY(refuse_foreign_gguf(gguf));
  files.weight_paths_ = gguf.paths();
  files.file_bytes_ = gguf.file_bytes();
  for (const auto& tensor : gguf.tensors()) {
    TRY(refuse_foreign_tensor(gguf.paths()[static_cast<size_t>(tensor.part)], tensor.name));
    ModelTensor view;
    view.weight.name = tensor.name;
    view.weight.format = tensor.format;
    view.weight.bytes = tensor.bytes;
    view.shape = tensor.shape;
    view.file = tensor.part;
    files.tensors_.push_back(std::move(view));
  }
  files.index_tensors();
  return files;
}

Result<ModelFiles> ModelFiles::open_folder(const std::string& path, const std::vector<std::string>& names,
                                           const OpenOptions& options) {
  ModelFiles files;
  files.path_ = path;
  TRY(read_texts(path, files.texts_));
  TRY_ASSIGN(const auto formats, read_quintet_config(fmt::format("{}/config.json", path), files.texts_.config));
  files.compressed_ = formats.has_value();
  if (formats && has_name(names, kQuintetMetadataName)) {
    TRY_ASSIGN(files.gguf_, GgufFile::open(fmt::format("{}/{}", path, kQuintetMetadataName)));
    files.texts_ = {};
  }
  // Compressed ones are opened in any case: where the metadata is a GGUF's, tensors tell parts of the configuration.
  if (!options.weights && !formats) return files;
  if (formats) {
    if (!has_name(names, kSingleName))
      return bad_input(fmt::format("{}: found no {}, allowed is a folder that quintet quantize wrote", path, kSingleName));
    TRY(files.add_file(fmt::format("{}/{}", path, kSingleName)));
    TRY(files.add_compressed(*formats));
  } else {
    TRY(files.open_weights(names));
  }
  files.index_tensors();
  return files;
}

Status ModelFiles::open_weights(const std::vector<std::string>& names) {
  TRY(refuse_foreign_config(fmt::format("{}/config.json", path_), texts_.config));
  if (has_name(names, "job_new.json"))
    return bad_input(fmt::format("{}/job_new.json: found the settings of a quantized model (EXL2), allowed are weights in "
                                 "F32, F16 or BF16",
                                 path_));
  std::string sidecar;
  TRY(read_sidecar(path_, "quantize_config.json", kMaxConfigBytes, sidecar));
  TRY_ASSIGN(foreign_, read_foreign_scheme(path_, texts_.config, sidecar));
  TRY(refuse_foreign_folder(path_, names));

  // The index decides; without one, the single file of the usual name, or the only one there is.
  std::vector<FolderTensor> tensors;
  if (has_name(names, kIndexName)) {
    TRY(collect_indexed(fmt::format("{}/{}", path_, kIndexName), tensors));
    return foreign_ ? add_foreign(tensors) : add_dense(tensors);
  }
  const auto weights = with_suffix(names, ".safetensors");
  if (weights.size() != 1 && !has_name(weights, kSingleName))
    return bad_input(fmt::format("{}: found {} .safetensors files and no {}, allowed is {} or one file", path_,
                                 weights.size(), kIndexName, kSingleName));
  const auto name = has_name(weights, kSingleName) ? std::string(kSingleName) : weights.front();
  TRY(add_file(fmt::format("{}/{}", path_, name)));
  for (const auto& tensor : safetensors_.front().tensors())
    tensors.push_back({.tensor = &tensor, .path = weight_paths_.front()});
  return foreign_ ? add_foreign(tensors) : add_dense(tensors);
}

Status ModelFiles::add_dense(const std::vector<FolderTensor>& tensors) {
  for (const FolderTensor& tensor : tensors) TRY(add_tensor(*tensor.tensor, tensor.file));
  return {};
}

Status ModelFiles::add_foreign(const std::vector<FolderTensor>& tensors) {
  TRY_ASSIGN(ForeignModel model, find_foreign_weights(*foreign_, tensors));
  foreign_weights_ = std::move(model.weights);
  for (const ForeignWeight& weight : foreign_weights_) {
    TRY(refuse_foreign_tensor(weight_paths_[static_cast<size_t>(weight.file)], weight.name));
    ModelTensor view;
    view.weight = {.name = weight.name, .format = weight.format, .maker = weight.maker.get()};
    view.shape = {weight.n, weight.k};
    view.file = weight.file;
    tensors_.push_back(std::move(view));
  }
  return add_dense(model.others);
}

Status ModelFiles::add_compressed(const TensorFormats& formats) {
  const SafetensorsFile& file = safetensors_.front();
  size_t found = 0;
  for (const SafeTensor& tensor : file.tensors()) {
    const std::string_view name = tensor.name;
    // Outliers belong to the tensor before their suffix, which finds them itself.
    const auto is_part = [&](std::string_view suffix) {
      return name.ends_with(suffix) && formats.contains(name.substr(0, name.size() - suffix.size()));
    };
    if (is_part(kOutlierRows) || is_part(kOutlierColumns) || is_part(kOutlierValues) || is_part(kRowScales)) continue;
    if (const auto at = formats.find(name); at != formats.end()) {
      TRY(add_compressed_tensor(tensor, at->second));
      ++found;
    } else {
      TRY(add_tensor(tensor, 0));
    }
  }
  if (found == formats.size()) return {};
  for (const auto& [name, format] : formats)
    if (!file.find(name))
      return bad_input(fmt::format("{}: tensor {}: found nothing, allowed is what config.json names", file.path(), printable(name)));
  return {};
}

Status ModelFiles::add_compressed_tensor(const SafeTensor& tensor, WeightFormat format) {
  const SafetensorsFile& file = safetensors_.front();
  const FormatInfo& info = format_info(format);
  const auto fault = [&](std::string_view name, std::string_view found, std::string_view allowed) {
    return bad_input(fmt::format("{}: tensor {}: found {}, allowed is {}", file.path(), printable(name), found, allowed));
  };
  if (tensor.dtype != "U8" || tensor.shape.size() != 2 || tensor.shape[1] % info.block_bytes != 0)
    return fault(tensor.name, fmt::format("{} of {} dimensions", tensor.dtype, tensor.shape.size()),
                 fmt::format("U8 [rows, a multiple of {}] for {}", info.block_bytes, info.name));
  TRY(check_not_empty(file.path(), tensor));
  ModelTensor view;
  view.weight = {.name = tensor.name, .format = format, .bytes = tensor.bytes};
  view.shape = {tensor.shape[0], tensor.shape[1] / info.block_bytes * info.block_weights};
  // Sizes are checked here, since slices are cut before anyone looks at the values (check_side_data).
  const auto part = [&](std::string_view suffix, std::string_view dtype, std::optional<uint64_t> elements,
                        std::span<const uint8_t>& bytes) -> Status {
    const auto name = tensor.name + std::string(suffix);
    const SafeTensor* found = file.find(name);
    if (!found) return fault(name, "nothing", "all parts of a compressed tensor");
    if (found->dtype != dtype) return fault(name, found->dtype, dtype);
    const uint64_t count = found->bytes.size() / safetensors_dtype_bytes(dtype);
    if (elements && count != *elements)
      return fault(name, fmt::format("{} elements", count), fmt::format("{}", *elements));
    bytes = found->bytes;
    return {};
  };
  const auto rows = static_cast<uint64_t>(tensor.shape[0]);
  if (file.find(tensor.name + std::string(kOutlierRows))) {
    TRY(part(kOutlierRows, "U32", rows + 1, view.weight.outliers.row_begin));
    TRY(part(kOutlierColumns, "U16", std::nullopt, view.weight.outliers.columns));
    TRY(part(kOutlierValues, "F16", view.weight.outliers.columns.size() / 2, view.weight.outliers.values));
  }
  if (info.decode_scaled) TRY(part(kRowScales, "F32", rows, view.weight.row_scales));
  tensors_.push_back(std::move(view));
  return {};
}

Status ModelFiles::add_file(const std::string& path) {
  TRY_ASSIGN(auto file, SafetensorsFile::open(path));
  file_bytes_ += file.file_bytes();
  weight_paths_.push_back(path);
  safetensors_.push_back(std::move(file));
  return {};
}

Status ModelFiles::add_tensor(const SafeTensor& tensor, int32_t file) {
  TRY_ASSIGN(auto view, view_of(weight_paths_[static_cast<size_t>(file)], tensor, file));
  if (view) tensors_.push_back(std::move(*view));
  return {};
}

Status ModelFiles::collect_indexed(const std::string& index_path, std::vector<FolderTensor>& tensors) {
  TRY_ASSIGN(const auto text, read_text_file(index_path, kMaxIndexBytes));
  TRY_ASSIGN(const auto map, read_index(index_path, text));
  std::map<std::string, int32_t, std::less<>> opened;
  const auto folder = index_path.substr(0, index_path.size() - kIndexName.size());
  for (const auto& [tensor, name] : map) {
    if (opened.contains(name)) continue;
    std::error_code error;
    if (!fs::exists(folder + name, error))
      return bad_input(
          fmt::format("{}: weight_map: {}: found {}, which is missing, allowed is a file of the folder",
                      index_path, printable(tensor), printable(name)));
    opened[name] = static_cast<int32_t>(safetensors_.size());
    TRY(add_file(folder + name));
  }
  for (const auto& [tensor, name] : map) {
    const auto file = opened.find(name)->second;
    const auto* found = safetensors_[static_cast<size_t>(file)].find(tensor);
    if (!found)
      return bad_input(
          fmt::format("{}: weight_map: {}: found {}, which has no such tensor, allowed is a file that has it",
                      index_path, printable(tensor), printable(name)));
    tensors.push_back({.tensor = found, .path = weight_paths_[static_cast<size_t>(file)], .file = file});
  }
  return {};
}

void ModelFiles::index_tensors() {
  const bool log = spdlog::should_log(spdlog::level::debug);
  for (auto& tensor : tensors_) {
    set_matrix(tensor);
    if (log)
      LOG_DEBUG("{}: {} [{}, {}] {}: {} bytes", weight_paths_[static_cast<size_t>(tensor.file)],
                printable(tensor.weight.name), tensor.weight.n, tensor.weight.k,
                format_info(tensor.weight.format).name, tensor.weight.bytes.size());
  }
  if (log)
    LOG_DEBUG("{}: {} tensors, {} in {} files", path_, tensors_.size(), format_bytes(file_bytes_),
              weight_paths_.size());
  order_.resize(tensors_.size());
  std::iota(order_.begin(), order_.end(), 0);
  // Names are unique: each reader has checked its own, and an index names each once.
  std::sort(order_.begin(), order_.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].weight.name < tensors_[b].weight.name; });
}

const ModelTensor* ModelFiles::find(std::string_view name) const {
  const auto at =
      std::lower_bound(order_.begin(), order_.end(), name,
                       [&](uint32_t index, std::string_view n) { return tensors_[index].weight.name < n; });
  return at != order_.end() && tensors_[*at].weight.name == name ? &tensors_[*at] : nullptr;
}

Result<const ModelTensor*> ModelFiles::require(std::string_view name) const {
  if (const auto* tensor = find(name)) return tensor;
  return bad_input(
      fmt::format("{}: tensor {}: found nothing, allowed is a weight of this name", path_, printable(name)));
}

}  // namespace quintet
