// The two kinds of output.
#include "compress/model_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/gguf_writer.h"
#include "io/safetensors_writer.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFolderFile = "model.safetensors", kGgufFile = "model.gguf";

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
  FolderSink(WorkFolder& folder, const ModelFiles& source, SafetensorsWriter writer, Json formats)
      : folder_(folder), source_(source), writer_(std::move(writer)), formats_(std::move(formats)) {}

  Status add(const PlannedTensor& planned, const HostWeight& made) override {
    const std::string name(planned.source->weight.name);
    if (const auto dtype = dense_dtype(made.format); !dtype.empty())
      return writer_.add(name, dtype, planned.source->shape, made.bytes);
    formats_[name] = std::string(format_info(made.format).name);
    TRY(writer_.add(name, "U8", {made.n, made.row_bytes()}, made.bytes));
    if (!made.row_scales.empty()) TRY(writer_.add(name + std::string(kRowScales), "F32", {made.n}, made.row_scales));
    const Outliers& outliers = made.outliers;
    if (outliers.empty()) return {};
    const auto entries = static_cast<int64_t>(outliers.columns.size() / 2);
    TRY(writer_.add(name + std::string(kOutlierRows), "U32", {made.n + 1}, outliers.row_begin));
    TRY(writer_.add(name + std::string(kOutlierColumns), "U16", {entries}, outliers.columns));
    return writer_.add(name + std::string(kOutlierValues), "F16", {entries}, outliers.values);
  }

  Result<Json> checkpoint() override {
    TRY_ASSIGN(const SafetensorsWriter::Progress progress, writer_.checkpoint());
    return Json{{"data_bytes", progress.data_bytes}, {"header", progress.header}, {"formats", formats_}};
  }

  Status finish(const std::string& method, const GoesOn& goes_on) override {
    TRY(writer_.finish());
    Json sorted = Json::object();
    std::map<std::string, std::string> formats;
    for (const auto& [name, format] : formats_.items()) formats[name] = format.get<std::string>();
    for (const auto& [name, format] : formats) sorted[name] = format;
    const Json config = {{"quant_method", std::string(kQuintetMethod)},
                         {"version", kQuintetVersion},
                         {"method", method},
                         {"formats", std::move(sorted)}};
    TRY(folder_.copy_companions(source_, config.dump(-1, ' ', false, Json::error_handler_t::replace), goes_on));
    return folder_.finish_folder(kFolderFile);
  }

 private:
  WorkFolder& folder_;
  const ModelFiles& source_;
  SafetensorsWriter writer_;
  Json formats_;  ///< of the compressed tensors, in the order in which they came
};

class GgufSink : public ModelSink {
 public:
  GgufSink(WorkFolder& folder, GgufWriter writer, size_t added)
      : folder_(folder), writer_(std::move(writer)), added_(added) {}

  Status add(const PlannedTensor&, const HostWeight& made) override {
    ++added_;
    return writer_.add(made.bytes);
  }

  Result<Json> checkpoint() override {
    TRY(writer_.checkpoint());
    return Json{{"added", added_}};
  }

  Status finish(const std::string&, const GoesOn&) override {
    TRY(writer_.finish());
    return folder_.finish_file(kGgufFile);
  }

 private:
  WorkFolder& folder_;
  GgufWriter writer_;
  size_t added_;
};

}  // namespace

Result<std::unique_ptr<ModelSink>> make_folder_sink(WorkFolder& folder, const SinkPlan& plan, const Json& checkpoint) {
  size_t name_bytes = 0;
  for (const PlannedTensor& tensor : plan.tensors)
    name_bytes = std::max(name_bytes, tensor.source->weight.name.size());
  name_bytes += kOutlierColumns.size();
  const std::string path = folder.file(kFolderFile);
  const size_t tensors = 5 * plan.tensors.size();  // each with outliers' three and the scales of its rows
  Json formats = Json::object();
  if (checkpoint.is_null()) {
    TRY_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, tensors, name_bytes));
    return std::unique_ptr<ModelSink>(
        std::make_unique<FolderSink>(folder, plan.source, std::move(writer), std::move(formats)));
  }
  TRY_ASSIGN(SafetensorsWriter writer,
             SafetensorsWriter::resume(path, tensors, name_bytes,
                                       {checkpoint.at("data_bytes").get<uint64_t>(),
                                        checkpoint.at("header").get<std::string>()}));
  formats = checkpoint.at("formats");
  return std::unique_ptr<ModelSink>(
      std::make_unique<FolderSink>(folder, plan.source, std::move(writer), std::move(formats)));
}

Result<std::unique_ptr<ModelSink>> make_gguf_sink(WorkFolder& folder, const SinkPlan& plan, const Json& checkpoint) {
  std::vector<GgufTensorPlan> plans;
  for (const PlannedTensor& tensor : plan.tensors)
    plans.push_back({std::string(tensor.source->weight.name), tensor.source->shape, tensor.format});
  const std::string path = folder.file(kGgufFile);
  const size_t added = checkpoint.is_null() ? 0 : checkpoint.at("added").get<size_t>();
  auto writer = checkpoint.is_null() ? GgufWriter::create(path, *plan.source.gguf(), plan.file_type, plans)
                                     : GgufWriter::resume(path, *plan.source.gguf(), plan.file_type, plans, added);
  if (!writer) return writer.error();
  return std::unique_ptr<ModelSink>(std::make_unique<GgufSink>(folder, std::move(writer).value(), added));
}

}  // namespace quintet
