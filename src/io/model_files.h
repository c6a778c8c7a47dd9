// One view of a model on disk, whichever kind it is: a GGUF file (or split set) or a Hugging Face folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/foreign_weights.h"
#include "io/gguf.h"
#include "io/quintet_config.h"
#include "io/safetensors.h"
#include "quant/host_weight.h"

namespace quintet {

/// A tensor of a model: a matrix of rows and the shape that its file gives it.
struct ModelTensor {
  HostWeight weight;  ///< n is the product of all dimensions but the last, k the last; a vector is [1, k]
  std::vector<int64_t> shape;  ///< outermost first
  int32_t file = 0;            ///< index into ModelFiles::weight_paths()
};

/// The texts beside the weights in a Hugging Face folder; empty where the folder has no such file.
struct HuggingFaceTexts {
  std::string config;             ///< config.json
  std::string generation_config;  ///< generation_config.json
  std::string tokenizer;          ///< tokenizer.json
  std::string tokenizer_config;   ///< tokenizer_config.json
  std::string chat_template;      ///< chat_template.jinja
};

struct OpenOptions {
  bool weights = true;  ///< false: tokenizer and template alone (`--tokenizer`, `tokenize`, `template`)
};

/// Immutable once open; everything it hands out borrows from it and lives as long as it (moves included).
class ModelFiles {
 public:
  enum class Kind : uint8_t { gguf, huggingface };

  /// A .gguf file or any part of a split one; a folder with config.json and safetensors; a folder that holds
  /// exactly one GGUF model; with `weights` off also a tokenizer.json (by any name that ends in .json) or a folder that has one. Known kinds
  /// that this program does not read (ONNX, EXL2, pickles, vision and audio models, ...) are refused by name. Weights
  /// that other tools compressed (io/foreign_scheme.h) are made when they are needed (HostWeight::maker).
  static Result<ModelFiles> open(const std::string& path, const OpenOptions& options = {});

  /// A GGUF model that lies in no file of its own: metadata, and tensors that borrow from elsewhere. Paths and sizes are
  /// those of `origin`, which the tensors come from.
  static ModelFiles of_gguf(GgufFile metadata, std::vector<ModelTensor> tensors, const ModelFiles& origin);

  /// Whose names tensors have. A folder that `quintet quantize` made from a GGUF file is of kind gguf: its metadata lies
  /// beside the weights.
  Kind kind() const { return gguf_ ? Kind::gguf : Kind::huggingface; }
  /// True where `quintet quantize` wrote it (quant_method "quintet").
  bool compressed() const { return compressed_; }
  /// How another tool compressed the weights; nothing where they are dense or the project's own.
  const std::optional<ForeignScheme>& foreign() const { return foreign_; }
  const std::string& path() const { return path_; }
  const std::vector<std::string>& weight_paths() const { return weight_paths_; }
  uint64_t file_bytes() const { return file_bytes_; }  ///< of all weight files

  const GgufFile* gguf() const { return gguf_ ? &*gguf_ : nullptr; }  ///< null for a folder
  const HuggingFaceTexts& texts() const { return texts_; }            ///< all empty for a GGUF

  const std::vector<ModelTensor>& tensors() const { return tensors_; }
  const ModelTensor* find(std::string_view name) const;  ///< null where absent
  /// As find; absent is bad_input that names file and tensor.
  Result<const ModelTensor*> require(std::string_view name) const;

 private:
  ModelFiles() = default;
  static Result<ModelFiles> open_file(const std::string& path, const OpenOptions& options);
  static Result<ModelFiles> open_folder(const std::string& path, const std::vector<std::string>& names,
                                        const OpenOptions& options);
  Status open_weights(const std::vector<std::string>& names);
  Status add_compressed(const TensorFormats& formats);
  Status add_compressed_tensor(const SafeTensor& tensor, WeightFormat format);
  Status collect_indexed(const std::string& index_path, std::vector<FolderTensor>& tensors);
  Status add_file(const std::string& path);
  Status add_tensor(const SafeTensor& tensor, int32_t file);
  Status add_dense(const std::vector<FolderTensor>& tensors);
  Status add_foreign(const std::vector<FolderTensor>& tensors);
  void index_tensors();

  std::string path_;
  std::vector<std::string> weight_paths_;
  uint64_t file_bytes_ = 0;
  std::optional<GgufFile> gguf_;
  bool compressed_ = false;
  std::optional<ForeignScheme> foreign_;
  std::vector<ForeignWeight> foreign_weights_;  ///< own names and makers that tensors_ refer to
  std::vector<SafetensorsFile> safetensors_;
  HuggingFaceTexts texts_;
  std::vector<ModelTensor> tensors_;
  std::vector<uint32_t> order_;  ///< indices of tensors_, sorted by name
};

}  // namespace quintet
