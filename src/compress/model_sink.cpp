// The two kinds of output.
#include "compress/model_sink.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "compress/output_folder.h"
#include "io/gguf_writer.h"
#include "io/safetensors_writer.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

/// The dtype of a dense format in a safetensors file; empty where it is none.
std::string_view dense_dtype(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32: return "F32";
    case WeightFormat::f16: return "F16";
    case WeightFormat::bf16: return "BF16";
    default: return "";
  }
}

class FolderSink : public ModelSink {
 public:
  FolderSink(const ModelFiles& source, OutputFolder folder, SafetensorsWriter writer)
      : source_(source), folder_(std::move(folder)), writer_(std::move(writer)) {}

  Status add(const PlannedTensor& planned, const HostWeight& made) override {
    const std::string name(planned.source->weight.name);
    if (const auto dtype = dense_dtype(made.format); !dtype.empty())
      return writer_.add(name, dtype, planned.source->shape, made.bytes);
    formats_[name] = made.format;
    TRY(writer_.add(name, "U8", {made.n, made.row_bytes()}, made.bytes));
    const Outliers& outliers = made.outliers;
    if (outliers.empty()) return {};
    const auto entries = static_cast<int64_t>(outliers.columns.size() / 2);
    TRY(writer_.add(name + std::string(kOutlierRows), "U32", {made.n + 1}, outliers.row_begin));
    TRY(writer_.add(name + std::string(kOutlierColumns), "U16", {entries}, outliers.columns));
    return writer_.add(name + std::string(kOutlierValues), "F16", {entries}, outliers.values);
  }

  Status finish(const std::string& method) override {
    TRY(writer_.finish());
    nlohmann::ordered_json formats = nlohmann::ordered_json::object();
    for (const auto& [name, format] : formats_) formats[name] = std::string(format_info(format).name);
    const nlohmann::ordered_json config = {{"quant_method", std::string(kQuintetMethod)},
                                           {"version", kQuintetVersion},
                                           {"method", method},
                                           {"formats", std::move(formats)}};
    TRY(folder_.copy_companions(source_, config.dump()));
    return folder_.finish();
  }

 private:
  const ModelFiles& source_;
  OutputFolder folder_;
  SafetensorsWriter writer_;
  std::map<std::string, WeightFormat> formats_;
};

class GgufSink : public ModelSink {
 public:
  GgufSink(std::string destination, std::string partial, GgufWriter writer)
      : destination_(std::move(destination)), partial_(std::move(partial)), writer_(std::move(writer)) {}
  ~GgufSink() override {
    if (!partial_.empty()) ::unlink(partial_.c_str());
  }

  Status add(const PlannedTensor&, const HostWeight& made) override { return writer_.add(made.bytes); }

  Status finish(const std::string&) override {
    TRY(writer_.finish());
    return give_name(partial_, destination_);
  }

 private:
  std::string destination_, partial_;
  GgufWriter writer_;
};

}  // namespace

Result<std::unique_ptr<ModelSink>> make_folder_sink(const std::string& destination, const ModelFiles& source,
                                                    const std::vector<PlannedTensor>& tensors) {
  size_t name_bytes = 0;
  for (const PlannedTensor& tensor : tensors)
    name_bytes = std::max(name_bytes, tensor.source->weight.name.size());
  TRY_ASSIGN(OutputFolder folder, OutputFolder::create(destination));
  TRY_ASSIGN(SafetensorsWriter writer,
             SafetensorsWriter::create(folder.file("model.safetensors"), 4 * tensors.size(),
                                       name_bytes + kOutlierColumns.size()));
  return std::unique_ptr<ModelSink>(
      std::make_unique<FolderSink>(source, std::move(folder), std::move(writer)));
}

Result<std::unique_ptr<ModelSink>> make_gguf_sink(const std::string& destination, const ModelFiles& source,
                                                  const std::vector<PlannedTensor>& tensors,
                                                  uint32_t file_type) {
  if (!source.gguf())
    return bad_input(fmt::format(
        "{}: found a Hugging Face folder, allowed for a GGUF destination is a GGUF file", source.path()));
  std::error_code error;
  if (fs::exists(fs::symlink_status(destination, error)))
    return bad_input(
        fmt::format("{}: found something there, allowed is a name that does not exist yet", destination));
  std::vector<GgufTensorPlan> plans;
  for (const PlannedTensor& tensor : tensors)
    plans.push_back({std::string(tensor.source->weight.name), tensor.source->shape, tensor.format});
  const std::string partial = fmt::format("{}.partial.{}", destination, ::getpid());
  auto writer = GgufWriter::create(partial, *source.gguf(), file_type, plans);
  if (!writer) return bad_input(writer.error().message);
  return std::unique_ptr<ModelSink>(
      std::make_unique<GgufSink>(destination, partial, std::move(writer).value()));
}

}  // namespace quintet
