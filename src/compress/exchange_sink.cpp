// Repacks rows of codes into words of outputs or inputs side by side.
#include "compress/exchange_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/parallel.h"
#include "io/safetensors_writer.h"
#include "quant/blocks.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFile = "model.safetensors", kWeight = ".weight";

template <class T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}

/// A matrix taken apart: codes [n, k]; scales, as halves, and zero points [n, k / group].
struct Codes {
  IntegerFormat format;
  int64_t n = 0, k = 0;
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales;
  std::vector<uint8_t> zeros;  ///< the code of the value 0
};

/// Of a block: its minimum was made of a whole number of steps (IntegerFormat::whole_zero).
uint8_t zero_point(const IntegerFormat& format, const uint8_t* block) {
  if (!format.minimum) return static_cast<uint8_t>(format.code_offset());
  const float scale = load_f16(block);
  if (scale == 0) return 1;
  return static_cast<uint8_t>(std::clamp(std::lround(-load_f16(block + 2) / scale), 1L, long{format.max_code()}));
}

Codes take_apart(const HostWeight& weight, const IntegerFormat& format, int threads) {
  Codes out{format, weight.n, weight.k, std::vector<uint8_t>(static_cast<size_t>(weight.n * weight.k)),
            std::vector<uint16_t>(static_cast<size_t>(weight.n * weight.k / format.group)),
            std::vector<uint8_t>(static_cast<size_t>(weight.n * weight.k / format.group))};
  parallel_for(weight.n, threads, [&](int64_t row) {
    const uint8_t* block = weight.bytes.data() + row * weight.row_bytes();
    const int64_t groups = weight.k / format.group;
    for (int64_t g = 0; g < groups; ++g, block += format.block_bytes()) {
      unpack_codes(format, block, out.codes.data() + row * weight.k + g * format.group);
      out.scales[static_cast<size_t>(row * groups + g)] = load_u16(block);
      out.zeros[static_cast<size_t>(row * groups + g)] = zero_point(format, block);
    }
  });
  return out;
}

/// Puts `value` into field `index` of a stream of words `stride` apart, which holds zeros there.
void put_field(uint32_t* words, int64_t stride, int64_t index, int bits, uint32_t value) {
  const int64_t bit = index * bits, word = bit / 32;
  const int shift = static_cast<int>(bit % 32);
  words[word * stride] |= value << shift;
  if (shift + bits > 32) words[(word + 1) * stride] |= value >> (32 - shift);
}

/// [groups, n] of [n, groups].
std::vector<uint16_t> transposed(const std::vector<uint16_t>& from, int64_t n, int64_t groups) {
  std::vector<uint16_t> to(from.size());
  for (int64_t row = 0; row < n; ++row)
    for (int64_t g = 0; g < groups; ++g) to[static_cast<size_t>(g * n + row)] = from[static_cast<size_t>(row * groups + g)];
  return to;
}

class ExchangeSink : public ModelSink {
 public:
  ExchangeSink(WorkFolder& folder, const ModelFiles& source, SafetensorsWriter writer, const QuantizeOptions& options)
      : folder_(folder), source_(source), writer_(std::move(writer)), options_(options) {}

  Status add(const PlannedTensor& planned, const HostWeight& made) override {
    const std::string name(planned.source->weight.name);
    const auto format = integer_format(made.format);
    if (!format) {
      const std::string_view dtype = made.format == WeightFormat::f32   ? "F32"
                                     : made.format == WeightFormat::f16 ? "F16"
                                                                        : "BF16";
      return writer_.add(name, dtype, planned.source->shape, made.bytes);
    }
    const std::string module = name.substr(0, name.size() - kWeight.size());
    const Codes codes = take_apart(made, *format, options_.threads);
    return options_.layout == FolderLayout::gptq ? add_gptq(module, codes) : add_awq(module, codes);
  }

  Result<Json> checkpoint() override {
    TRY_ASSIGN(const SafetensorsWriter::Progress progress, writer_.checkpoint());
    return Json{{"data_bytes", progress.data_bytes}, {"header", progress.header}};
  }

  Status finish(const std::string& method, const GoesOn& goes_on) override {
    TRY(writer_.finish());
    const IntegerFormat& format = options_.format;
    Json config;
    // Version 1 stores zero points less 1, and its readers take asymmetric ones from a few writers alone.
    if (options_.layout == FolderLayout::gptq)
      config = {{"quant_method", "gptq"}, {"bits", format.bits},          {"group_size", format.group},
                {"desc_act", false},      {"sym", !format.minimum},       {"lm_head", false},
                {"pack_dtype", "int32"},  {"checkpoint_format", format.minimum ? "gptq_v2" : "gptq"}};
    else
      config = {{"quant_method", "awq"}, {"bits", 4},         {"group_size", format.group},
                {"zero_point", true},    {"version", "gemm"}, {"modules_to_not_convert", nullptr}};
    config["meta"] = {{"quantizer", "quintet"}, {"method", method}};
    TRY(folder_.copy_companions(source_, config.dump(-1, ' ', false, Json::error_handler_t::replace), goes_on));
    return folder_.finish_folder(kFile);
  }

 private:
  Status add_gptq(const std::string& module, const Codes& c) {
    const int bits = c.format.bits;
    const int64_t words = c.k * bits / 32, groups = c.k / c.format.group;
    std::vector<uint32_t> qweight(static_cast<size_t>(words * c.n));
    parallel_for(c.n, options_.threads, [&](int64_t row) {
      for (int64_t i = 0; i < c.k; ++i)
        put_field(qweight.data() + row, c.n, i, bits, c.codes[static_cast<size_t>(row * c.k + i)]);
    });
    std::vector<uint32_t> qzeros(static_cast<size_t>(groups * (c.n * bits / 32)));
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t row = 0; row < c.n; ++row)
        put_field(qzeros.data() + g * (c.n * bits / 32), 1, row, bits,
                  c.zeros[static_cast<size_t>(row * groups + g)] - (c.format.minimum ? 0u : 1u));
    std::vector<int32_t> g_idx(static_cast<size_t>(c.k));
    for (int64_t i = 0; i < c.k; ++i) g_idx[static_cast<size_t>(i)] = static_cast<int32_t>(i / c.format.group);
    TRY(writer_.add(module + ".qweight", "I32", {words, c.n}, bytes_of(qweight)));
    TRY(writer_.add(module + ".qzeros", "I32", {groups, c.n * bits / 32}, bytes_of(qzeros)));
    TRY(writer_.add(module + ".scales", "F16", {groups, c.n}, bytes_of(transposed(c.scales, c.n, groups))));
    return writer_.add(module + ".g_idx", "I32", {c.k}, bytes_of(g_idx));
  }

  Status add_awq(const std::string& module, const Codes& c) {
    static constexpr std::array<int, 8> kNibble = {0, 4, 1, 5, 2, 6, 3, 7};  // of output j of a word
    const int64_t columns = c.n / 8, groups = c.k / c.format.group;
    std::vector<uint32_t> qweight(static_cast<size_t>(c.k * columns));
    parallel_for(columns, options_.threads, [&](int64_t column) {
      for (int64_t i = 0; i < c.k; ++i) {
        uint32_t word = 0;
        for (int64_t j = 0; j < 8; ++j)
          word |= uint32_t{c.codes[static_cast<size_t>((column * 8 + j) * c.k + i)]} << (4 * kNibble[static_cast<size_t>(j)]);
        qweight[static_cast<size_t>(i * columns + column)] = word;
      }
    });
    std::vector<uint32_t> qzeros(static_cast<size_t>(groups * columns));
    for (int64_t row = 0; row < c.n; ++row)
      for (int64_t g = 0; g < groups; ++g)
        qzeros[static_cast<size_t>(g * columns + row / 8)] |= uint32_t{c.zeros[static_cast<size_t>(row * groups + g)]}
                                                              << (4 * kNibble[static_cast<size_t>(row % 8)]);
    TRY(writer_.add(module + ".qweight", "I32", {c.k, columns}, bytes_of(qweight)));
    TRY(writer_.add(module + ".qzeros", "I32", {groups, columns}, bytes_of(qzeros)));
    return writer_.add(module + ".scales", "F16", {groups, c.n}, bytes_of(transposed(c.scales, c.n, groups)));
  }

  WorkFolder& folder_;
  const ModelFiles& source_;
  SafetensorsWriter writer_;
  const QuantizeOptions& options_;
};

}  // namespace

Status check_exchange(const ModelFiles& source, const std::vector<TensorTask>& tasks, const QuantizeOptions& options) {
  const std::string_view layout = options.layout == FolderLayout::gptq ? "gptq" : "awq";
  const auto fault = [&](std::string_view where, std::string_view found, std::string_view allowed) {
    return bad_input(fmt::format("{}: found {}, allowed with --layout {} is {}", where, found, layout, allowed));
  };
  if (source.gguf()) return fault(source.path(), "a GGUF model", "a Hugging Face folder");
  if (options.has_outliers() || options.mix || options.method == QuantizeMethod::direct)
    return fault("--method", describe(options), "rtn, gptq or awq");
  if (options.layout == FolderLayout::awq && options.format.bits != 4)
    return fault("--bits", fmt::format("{}", options.format.bits), "4");
  for (const TensorTask& task : tasks) {
    const HostWeight& weight = task.tensor->weight;
    const std::string where = fmt::format("tensor {}", weight.name);
    if (task.place.input() < 0) {
      if (task.changed) return fault(where, format_info(task.format).name, "that embedding and head stay dense");
      if (task.format > WeightFormat::bf16) return fault(where, format_info(task.format).name, "a dense tensor");
      continue;
    }
    if (!task.integers) return fault(where, format_info(task.format).name, "that every linear layer is compressed");
    if (*task.integers != options.format)
      return fault(where, fmt::format("{} bits in groups of {} ({} inputs)", task.integers->bits, task.integers->group, weight.k),
                   fmt::format("{} bits in groups of {} everywhere; --group-size says another", options.format.bits,
                               options.format.group));
    if (weight.n % 32 != 0) return fault(where, fmt::format("{} outputs", weight.n), "a multiple of 32");
  }
  return {};
}

Result<std::unique_ptr<ModelSink>> make_exchange_sink(WorkFolder& folder, const SinkPlan& plan, const Json& checkpoint,
                                                      const QuantizeOptions& options) {
  size_t name_bytes = 0;
  for (const PlannedTensor& tensor : plan.tensors) name_bytes = std::max(name_bytes, tensor.source->weight.name.size());
  name_bytes += kWeight.size();
  const std::string path = folder.file(kFile);
  const size_t tensors = 4 * plan.tensors.size();
  auto writer = checkpoint.is_null()
                    ? SafetensorsWriter::create(path, tensors, name_bytes)
                    : SafetensorsWriter::resume(path, tensors, name_bytes,
                                                {checkpoint.at("data_bytes").get<uint64_t>(),
                                                 checkpoint.at("header").get<std::string>()});
  if (!writer) return writer.error();
  return std::unique_ptr<ModelSink>(
      std::make_unique<ExchangeSink>(folder, plan.source, std::move(writer).value(), options));
}

}  // namespace quintet
