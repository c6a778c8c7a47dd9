// Groups tensors by the module they belong to, checks them, and makes rows of the project's formats of them.
#include "io/foreign_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include "base/json_parse.h"
#include "base/parallel.h"
#include "base/printable.h"
#include "quant/quantize_rows.h"
#include "tensor/half.h"

namespace quintet {
namespace {

using Kind = ForeignScheme::Kind;
using Parts = std::map<std::string, const FolderTensor*, std::less<>>;

constexpr int64_t kMostSize = int64_t{1} << 24;  ///< outputs, inputs: products of two of them and of bits fit 64 bits

/// A module's tensors by what follows its name, and the checks of them.
struct Module {
  std::string name;
  Parts parts;

  const SafeTensor* find(std::string_view part) const {
    const auto at = parts.find(part);
    return at == parts.end() ? nullptr : at->second->tensor;
  }
  std::string where(std::string_view part) const {
    const auto at = parts.find(part);
    return fmt::format("{}: tensor {}", at == parts.end() ? parts.begin()->second->path : at->second->path,
                       printable(fmt::format("{}.{}", name, part)));
  }
  /// The part, of this dtype and shape; -1 stands for any size from 1 to kMostSize.
  Result<const SafeTensor*> require(std::string_view part, std::initializer_list<std::string_view> dtypes,
                                    std::vector<int64_t> shape) const {
    const SafeTensor* tensor = find(part);
    if (!tensor) return bad_input(fmt::format("{}: found nothing, allowed is this part of a compressed weight", where(part)));
    std::string names;
    bool known = false;
    for (const auto dtype : dtypes) {
      names += fmt::format("{}{}", names.empty() ? "" : " or ", dtype);
      known = known || tensor->dtype == dtype;
    }
    bool fits = tensor->shape.size() == shape.size();
    std::vector<std::string> sizes;
    for (size_t i = 0; i < shape.size(); ++i) {
      sizes.push_back(shape[i] < 0 ? fmt::format("1 to {}", kMostSize) : fmt::format("{}", shape[i]));
      fits = fits && (shape[i] < 0 ? tensor->shape[i] >= 1 && tensor->shape[i] <= kMostSize : tensor->shape[i] == shape[i]);
    }
    if (known && fits) return tensor;
    return bad_input(fmt::format("{}: found {} [{}], allowed is {} [{}]", where(part), tensor->dtype,
                                 fmt::join(tensor->shape, ", "), names, fmt::join(sizes, ", ")));
  }
};

float load_float(const SafeTensor& tensor, int64_t index) {
  const uint8_t* p = tensor.bytes.data();
  if (tensor.dtype == "F32") return load_f32(p + 4 * index);
  const uint16_t bits = load_u16(p + 2 * index);
  return tensor.dtype == "BF16" ? bf16_to_f32(bits) : f16_to_f32(bits);
}

/// Field `index` of a stream of `bits`-bit fields in little-endian words `stride` words apart.
uint32_t field(const uint8_t* words, int64_t stride, int64_t index, int bits) {
  const int64_t bit = index * bits, word = bit / 32;
  const int shift = static_cast<int>(bit % 32);
  uint64_t value = load_u32(words + 4 * word * stride) >> shift;
  if (shift + bits > 32) value |= static_cast<uint64_t>(load_u32(words + 4 * (word + 1) * stride)) << (32 - shift);
  return static_cast<uint32_t>(value) & ((1u << bits) - 1);
}

/// The project's member of the family for a foreign one.
Result<IntegerFormat> family_member(const Module& module, const ForeignScheme& scheme, int64_t k) {
  const int64_t group = scheme.group < 0 ? k : scheme.group;
  for (const int own : {128, 64, 32})
    if (group % own == 0 && k % group == 0)
      return IntegerFormat{.bits = scheme.bits, .group = own, .minimum = !scheme.symmetric};
  return bad_input(fmt::format("{}: found groups of {} of {} inputs, allowed are multiples of 32 that divide them",
                               module.where(module.parts.begin()->first), group, k));
}

/// Codes under scales and zero points of groups, however they lie.
class IntegerMaker : public WeightMaker {
 public:
  IntegerMaker(std::string name, const ForeignScheme& scheme, const IntegerFormat& format, int64_t n, int64_t k)
      : name_(std::move(name)), scheme_(scheme), format_(format), n_(n), k_(k), group_(scheme.group < 0 ? k : scheme.group) {}

  Result<QuantizedMatrix> make(int64_t first, int64_t count) const override {
    RowWriter writer({.name = name_, .n = count, .k = k_}, format_);
    constexpr int64_t kRowsAtOnce = 16;  // neighbours in words that are read once
    std::vector<char> odd(static_cast<size_t>(count));
    parallel_for((count + kRowsAtOnce - 1) / kRowsAtOnce, 0, [&](int64_t tile) {
      const int64_t begin = tile * kRowsAtOnce, rows = std::min(kRowsAtOnce, count - begin);
      std::vector<uint8_t> codes(static_cast<size_t>(rows * k_));
      std::vector<IntegerRange> ranges(static_cast<size_t>(k_ / format_.group));
      read_codes(first + begin, rows, codes.data());
      for (int64_t r = 0; r < rows; ++r) {
        for (size_t g = 0; g < ranges.size(); ++g) {
          const int64_t theirs = static_cast<int64_t>(g) * format_.group / group_;
          const float step = scale(first + begin + r, theirs);
          const int zero_point = zero(first + begin + r, theirs);
          ranges[g] = {.scale = step, .minimum = format_.minimum ? -step * static_cast<float>(zero_point) : 0};
          if (!format_.minimum && zero_point != format_.code_offset()) odd[static_cast<size_t>(begin + r)] = 1;
        }
        writer.write(begin + r, ranges.data(), codes.data() + r * k_);
      }
    });
    if (std::find(odd.begin(), odd.end(), 1) != odd.end())
      return bad_input(fmt::format("tensor {}: found zero points other than {}, allowed in a symmetric model is that one",
                                   printable(name_), format_.code_offset()));
    QuantizedMatrix made = writer.finish();
    made.in_perm = in_perm_;
    return made;
  }
  double row_bytes() const override {
    const double groups = static_cast<double>(k_) / static_cast<double>(group_);
    return static_cast<double>(k_) * scheme_.bits / 8 + groups * (2 + scheme_.bits / 8.0);
  }

 protected:
  /// Codes of `rows` rows, [rows, k], stored columns.
  virtual void read_codes(int64_t first, int64_t rows, uint8_t* codes) const = 0;
  virtual float scale(int64_t row, int64_t group) const = 0;
  virtual int zero(int64_t row, int64_t group) const = 0;

  std::string name_;
  ForeignScheme scheme_;
  IntegerFormat format_;
  int64_t n_, k_, group_;
  std::vector<int32_t> in_perm_;
};

/// GPTQ: words hold codes of one output, neighbours along the inputs; zero points neighbours along the outputs.
class GptqMaker : public IntegerMaker {
 public:
  using IntegerMaker::IntegerMaker;
  const SafeTensor *qweight = nullptr, *qzeros = nullptr, *scales = nullptr;

  /// Inputs of one group need not be neighbours (act-order): they are made so, in the order of their groups.
  Status set_groups(const Module& module, const SafeTensor& g_idx) {
    std::vector<int32_t> order(static_cast<size_t>(k_)), of(order.size());
    std::iota(order.begin(), order.end(), 0);
    for (int64_t i = 0; i < k_; ++i) {
      const auto group = static_cast<int32_t>(load_u32(g_idx.bytes.data() + 4 * i));
      if (group < 0 || group >= k_ / group_)
        return bad_input(fmt::format("{}: input {}: found group {}, allowed are 0 to {}", module.where("g_idx"), i, group,
                                     k_ / group_ - 1));
      of[static_cast<size_t>(i)] = group;
    }
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return of[static_cast<size_t>(a)] < of[static_cast<size_t>(b)];
    });
    bool in_order = true;
    for (int64_t i = 0; i < k_; ++i) {
      if (of[static_cast<size_t>(order[static_cast<size_t>(i)])] != i / group_)
        return bad_input(fmt::format("{}: found groups of unequal size, allowed are {} inputs in each",
                                     module.where("g_idx"), group_));
      in_order = in_order && order[static_cast<size_t>(i)] == i;
    }
    if (!in_order) in_perm_ = std::move(order);
    return {};
  }

 protected:
  void read_codes(int64_t first, int64_t rows, uint8_t* codes) const override {
    const uint8_t* words = qweight->bytes.data() + 4 * first;
    for (int64_t i = 0; i < k_; ++i) {
      const int64_t input = in_perm_.empty() ? i : in_perm_[static_cast<size_t>(i)];
      for (int64_t r = 0; r < rows; ++r)
        codes[r * k_ + i] = static_cast<uint8_t>(field(words + 4 * r, n_, input, scheme_.bits));
    }
  }
  float scale(int64_t row, int64_t group) const override { return load_float(*scales, group * n_ + row); }
  int zero(int64_t row, int64_t group) const override {
    const uint8_t* words = qzeros->bytes.data() + group * (n_ * scheme_.bits / 32) * 4;
    const int stored = static_cast<int>(field(words, 1, row, scheme_.bits));
    return scheme_.zeros_less_one ? (stored + 1) % (1 << scheme_.bits) : stored;
  }
};

/// AutoAWQ: words hold codes of eight outputs in an order of their own.
class AwqMaker : public IntegerMaker {
 public:
  using IntegerMaker::IntegerMaker;
  const SafeTensor *qweight = nullptr, *qzeros = nullptr, *scales = nullptr;

 protected:
  /// Where in its word output j (of eight) lies.
  static constexpr std::array<int, 8> kNibble = {0, 4, 1, 5, 2, 6, 3, 7};

  int at(const SafeTensor& tensor, int64_t line, int64_t row) const {
    const uint32_t word = load_u32(tensor.bytes.data() + 4 * (line * (n_ / 8) + row / 8));
    return static_cast<int>(word >> (4 * kNibble[static_cast<size_t>(row % 8)]) & 15);
  }
  void read_codes(int64_t first, int64_t rows, uint8_t* codes) const override {
    for (int64_t i = 0; i < k_; ++i)
      for (int64_t r = 0; r < rows; ++r) codes[r * k_ + i] = static_cast<uint8_t>(at(*qweight, i, first + r));
  }
  float scale(int64_t row, int64_t group) const override { return load_float(*scales, group * n_ + row); }
  int zero(int64_t row, int64_t group) const override { return qzeros ? at(*qzeros, group, row) : format_.code_offset(); }
};

/// compressed-tensors: rows of codes, shifted so that none is negative; zero points neighbours along the outputs.
class PackedMaker : public IntegerMaker {
 public:
  using IntegerMaker::IntegerMaker;
  const SafeTensor *packed = nullptr, *scales = nullptr, *zeros = nullptr;

 protected:
  void read_codes(int64_t first, int64_t rows, uint8_t* codes) const override {
    const int64_t words = (k_ * scheme_.bits + 31) / 32;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < k_; ++i)
        codes[r * k_ + i] = static_cast<uint8_t>(field(packed->bytes.data() + 4 * (first + r) * words, 1, i, scheme_.bits));
  }
  float scale(int64_t row, int64_t group) const override { return load_float(*scales, row * (k_ / group_) + group); }
  int zero(int64_t row, int64_t group) const override {
    if (!zeros) return 1 << (scheme_.bits - 1);
    return static_cast<int>(field(zeros->bytes.data() + 4 * group, k_ / group_, row, scheme_.bits));
  }
};

/// E4M3 or bytes, row after row: the bytes as they are.
class RowsMaker : public WeightMaker {
 public:
  std::string name;
  WeightFormat format = WeightFormat::fp8;
  int64_t k = 0;
  const SafeTensor *weight = nullptr, *scales = nullptr;

  Result<QuantizedMatrix> make(int64_t first, int64_t count) const override {
    QuantizedMatrix made{.format = format, .n = count, .k = k};
    const auto bytes = weight->bytes.subspan(static_cast<size_t>(first * k), static_cast<size_t>(count * k));
    made.blocks.assign(bytes.begin(), bytes.end());
    const bool one = scales->shape.empty() || (scales->shape.size() == 1 && scales->shape[0] == 1);
    for (int64_t row = first; row < first + count; ++row)
      made.row_scales.push_back(load_float(*scales, one ? 0 : row));
    return made;
  }
  double row_bytes() const override { return static_cast<double>(k) + 2; }
};

/// bitsandbytes: blocks of 64 one after the other through the whole matrix, their maxima in FP32 or in 8 bits again.
class Nf4Maker : public WeightMaker {
 public:
  std::string name;
  int64_t k = 0;
  const SafeTensor *weight = nullptr, *absmax = nullptr, *nested_absmax = nullptr, *nested_map = nullptr;
  float offset = 0;
  int64_t block = 64, nested_block = 256;

  Result<QuantizedMatrix> make(int64_t first, int64_t count) const override {
    const int64_t blocks = k / kNf4BlockWeights;
    QuantizedMatrix made{.format = WeightFormat::nf4, .n = count, .k = k};
    made.blocks.resize(static_cast<size_t>(count * blocks) * sizeof(BlockNf4));
    parallel_for(count, 0, [&](int64_t row) {
      uint8_t* out = made.blocks.data() + static_cast<size_t>(row * blocks) * sizeof(BlockNf4);
      const int64_t begin = (first + row) * k;
      for (int64_t b = 0; b < blocks; ++b, out += sizeof(BlockNf4)) {
        const uint16_t bits = f32_to_f16(maximum((begin + b * kNf4BlockWeights) / block));
        std::memcpy(out, &bits, 2);
        std::memcpy(out + 2, weight->bytes.data() + (begin + b * kNf4BlockWeights) / 2, 32);
      }
    });
    return made;
  }
  double row_bytes() const override { return static_cast<double>(k) * (0.5 + (nested_absmax ? 1.0 : 4.0) / 64); }

 private:
  float maximum(int64_t index) const {
    if (!nested_absmax) return load_float(*absmax, index);
    return load_float(*nested_map, absmax->bytes[static_cast<size_t>(index)]) *
               load_float(*nested_absmax, index / nested_block) +
           offset;
  }
};

// --- from the parts of a module to its weight
// --------------------------------------------------------------------------

Result<ForeignWeight> make_gptq(const Module& module, const ForeignScheme& scheme) {
  TRY_ASSIGN(const SafeTensor* qweight, module.require("qweight", {"I32"}, {-1, -1}));
  const int64_t n = qweight->shape[1], k = qweight->shape[0] * 32 / scheme.bits;
  if (n * scheme.bits % 32 != 0)  // the zero points of a group fill whole words
    return bad_input(fmt::format("{}: found {} outputs of {} bits, allowed are whole words of 32", module.where("qweight"), n,
                                 scheme.bits));
  TRY_ASSIGN(const IntegerFormat format, family_member(module, scheme, k));
  const int64_t groups = scheme.group < 0 ? 1 : k / scheme.group;
  auto maker = std::make_unique<GptqMaker>(module.name + ".weight", scheme, format, n, k);
  maker->qweight = qweight;
  TRY_ASSIGN(maker->qzeros, module.require("qzeros", {"I32"}, {groups, n * scheme.bits / 32}));
  TRY_ASSIGN(maker->scales, module.require("scales", {"F16", "BF16", "F32"}, {groups, n}));
  if (module.find("g_idx")) {
    TRY_ASSIGN(const SafeTensor* g_idx, module.require("g_idx", {"I32"}, {k}));
    TRY(maker->set_groups(module, *g_idx));
  } else if (scheme.act_order && groups > 1) {
    return bad_input(fmt::format("{}: found nothing, allowed with desc_act true is the group of every input",
                                 module.where("g_idx")));
  }
  return ForeignWeight{.format = *weight_format_of(format), .n = n, .k = k, .maker = std::move(maker)};
}

Result<ForeignWeight> make_awq(const Module& module, const ForeignScheme& scheme) {
  TRY_ASSIGN(const SafeTensor* qweight, module.require("qweight", {"I32"}, {-1, -1}));
  const int64_t n = qweight->shape[1] * 8, k = qweight->shape[0];
  ForeignScheme own = scheme;
  own.symmetric = scheme.symmetric && module.find("qzeros") == nullptr;
  TRY_ASSIGN(const IntegerFormat format, family_member(module, own, k));
  const int64_t groups = scheme.group < 0 ? 1 : k / scheme.group;
  auto maker = std::make_unique<AwqMaker>(module.name + ".weight", own, format, n, k);
  maker->qweight = qweight;
  if (!own.symmetric) {
    TRY_ASSIGN(maker->qzeros, module.require("qzeros", {"I32"}, {groups, n / 8}));
  }
  TRY_ASSIGN(maker->scales, module.require("scales", {"F16", "BF16", "F32"}, {groups, n}));
  return ForeignWeight{.format = *weight_format_of(format), .n = n, .k = k, .maker = std::move(maker)};
}

Result<ForeignWeight> make_packed(const Module& module, const ForeignScheme& scheme) {
  TRY_ASSIGN(const SafeTensor* shape, module.require("weight_shape", {"I64", "I32"}, {2}));
  const auto size = [&](int i) -> int64_t {
    return shape->dtype == "I32" ? static_cast<int32_t>(load_u32(shape->bytes.data() + 4 * i))
                                 : static_cast<int64_t>(load_u32(shape->bytes.data() + 8 * i) |
                                                        uint64_t{load_u32(shape->bytes.data() + 8 * i + 4)} << 32);
  };
  const int64_t n = size(0), k = size(1);
  if (n < 1 || k < 1 || n > kMostSize || k > kMostSize)
    return bad_input(fmt::format("{}: found {} x {}, allowed are 1 to {}", module.where("weight_shape"), n, k, kMostSize));
  if (module.find("weight_g_idx"))
    return bad_input(fmt::format("{}: found inputs in another order, allowed is their own", module.where("weight_g_idx")));
  ForeignScheme own = scheme;
  own.symmetric = scheme.symmetric && module.find("weight_zero_point") == nullptr;
  TRY_ASSIGN(const IntegerFormat format, family_member(module, own, k));
  const int64_t groups = scheme.group < 0 ? 1 : k / scheme.group;
  auto maker = std::make_unique<PackedMaker>(module.name + ".weight", own, format, n, k);
  TRY_ASSIGN(maker->packed, module.require("weight_packed", {"I32"}, {n, (k * scheme.bits + 31) / 32}));
  TRY_ASSIGN(maker->scales, module.require("weight_scale", {"F16", "BF16", "F32"}, {n, groups}));
  if (!own.symmetric) {
    TRY_ASSIGN(maker->zeros, module.require("weight_zero_point", {"I32"}, {(n * scheme.bits + 31) / 32, groups}));
  }
  return ForeignWeight{.format = *weight_format_of(format), .n = n, .k = k, .maker = std::move(maker)};
}

Result<ForeignWeight> make_rows(const Module& module, const ForeignScheme& scheme) {
  TRY_ASSIGN(const SafeTensor* weight, scheme.rows_dtype.empty() ? module.require("weight", {"F8_E4M3", "I8"}, {-1, -1})
                                                                 : module.require("weight", {scheme.rows_dtype}, {-1, -1}));
  auto maker = std::make_unique<RowsMaker>();
  const int64_t n = weight->shape[0];
  maker->name = module.name + ".weight";
  maker->format = weight->dtype == "I8" ? WeightFormat::int8 : WeightFormat::fp8;
  maker->k = weight->shape[1];
  maker->weight = weight;
  const SafeTensor* scales = module.find("weight_scale");
  std::vector<int64_t> shape = {n, 1};
  if (scales && scales->shape.size() < 2)
    shape = scales->shape.empty() ? std::vector<int64_t>{} : std::vector<int64_t>{scales->shape[0] == 1 ? 1 : n};
  TRY_ASSIGN(maker->scales, module.require("weight_scale", {"F32", "F16", "BF16"}, shape));
  if (maker->k % kSmallBlockWeights != 0)
    return bad_input(fmt::format("{}: found {} inputs, allowed are multiples of {}", module.where("weight"), maker->k,
                                 kSmallBlockWeights));
  // Some writers store them though they are all 0.
  if (const SafeTensor* zeros = module.find("weight_zero_point"))
    if (std::any_of(zeros->bytes.begin(), zeros->bytes.end(), [](uint8_t byte) { return byte != 0; }))
      return bad_input(fmt::format("{}: found a zero point other than 0, allowed is 0", module.where("weight_zero_point")));
  ForeignWeight made{.format = maker->format, .n = n, .k = maker->k};
  made.maker = std::move(maker);
  return made;
}

Result<ForeignWeight> make_nf4(const Module& module) {
  constexpr std::string_view kState = "weight.quant_state.bitsandbytes__nf4";
  TRY_ASSIGN(const SafeTensor* state, module.require(kState, {"U8"}, {-1}));
  constexpr size_t kMostStateBytes = 1 << 16;  // a tree takes many times its text
  if (state->bytes.size() > kMostStateBytes)
    return bad_input(fmt::format("{}: found {} bytes, allowed are {}", module.where(kState), state->bytes.size(), kMostStateBytes));
  const auto json = parse_json_tree(
      std::string_view(reinterpret_cast<const char*>(state->bytes.data()), state->bytes.size()));
  const auto fault = [&](std::string_view key, std::string_view allowed) {
    return bad_input(fmt::format("{}: {}: found {}, allowed is {}", module.where(kState), key,
                                 json.is_object() && json.contains(std::string(key))
                                     ? printable(json[std::string(key)].dump(-1, ' ', true, nlohmann::json::error_handler_t::replace))
                                     : "nothing",
                                 allowed));
  };
  const auto whole = [&](const char* key, int64_t fallback) -> int64_t {
    if (!json.is_object() || !json.contains(key)) return fallback;
    return json[key].is_number_integer() ? json[key].get<int64_t>() : -1;
  };
  if (!json.is_object() || !json.contains("shape") || !json["shape"].is_array() || json["shape"].size() != 2 ||
      !json["shape"][0].is_number_unsigned() || !json["shape"][1].is_number_unsigned())
    return fault("shape", "two sizes");
  const auto n = json["shape"][0].get<int64_t>(), k = json["shape"][1].get<int64_t>();
  if (n < 1 || k < 1 || n > kMostSize || k > kMostSize) return fault("shape", "two sizes from 1 to 2^24");
  auto maker = std::make_unique<Nf4Maker>();
  maker->name = module.name + ".weight";
  maker->k = k;
  maker->block = whole("blocksize", 64);
  if (maker->block < 64 || maker->block % 64 != 0 || maker->block > kMostSize)
    return fault("blocksize", "a multiple of 64 up to 2^24");
  if (k % kNf4BlockWeights != 0)
    return bad_input(fmt::format("{}: found {} inputs, allowed are multiples of 64", module.where("weight"), k));
  TRY_ASSIGN(maker->weight, module.require("weight", {"U8"}, {n * k / 2, 1}));
  const int64_t blocks = (n * k + maker->block - 1) / maker->block;
  TRY_ASSIGN(const SafeTensor* map, module.require("weight.quant_map", {"F32"}, {16}));
  for (int i = 0; i < 16; ++i)
    if (!(std::abs(load_float(*map, i) - kNf4Values[i]) < 1e-5f))
      return bad_input(fmt::format("{}: level {}: found {}, allowed is {} (NF4)", module.where("weight.quant_map"), i,
                                   load_float(*map, i), kNf4Values[i]));
  if (module.find("weight.nested_absmax")) {
    maker->nested_block = whole("nested_blocksize", 256);
    if (maker->nested_block < 1 || maker->nested_block > kMostSize)
      return fault("nested_blocksize", "a whole number from 1 to 2^24");
    // The mean of the maxima: they are stored less it, so that a folder without it cannot be read.
    if (!json.contains("nested_offset") || !json["nested_offset"].is_number()) return fault("nested_offset", "a number");
    maker->offset = json["nested_offset"].get<float>();
    if (!std::isfinite(maker->offset)) return fault("nested_offset", "a number that FP32 holds");
    TRY_ASSIGN(maker->absmax, module.require("weight.absmax", {"U8"}, {blocks}));
    TRY_ASSIGN(maker->nested_absmax, module.require("weight.nested_absmax", {"F32"},
                                                    {(blocks + maker->nested_block - 1) / maker->nested_block}));
    TRY_ASSIGN(maker->nested_map, module.require("weight.nested_quant_map", {"F32"}, {256}));
  } else {
    TRY_ASSIGN(maker->absmax, module.require("weight.absmax", {"F32"}, {blocks}));
  }
  ForeignWeight made{.format = WeightFormat::nf4, .n = n, .k = k};
  made.maker = std::move(maker);
  return made;
}

/// What follows a module's name in the names of the parts of its weight; the first one tells that there is one.
std::vector<std::string_view> part_names(Kind kind) {
  switch (kind) {
    case Kind::gptq: return {"qweight", "qzeros", "scales", "g_idx"};
    case Kind::awq: return {"qweight", "qzeros", "scales"};
    case Kind::packed: return {"weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx"};
    case Kind::rows: return {"weight_scale", "weight", "input_scale", "weight_zero_point"};
    case Kind::bitsandbytes:
      return {"weight.quant_state.bitsandbytes__nf4", "weight", "weight.absmax", "weight.quant_map",
              "weight.nested_absmax", "weight.nested_quant_map"};
  }
  return {};
}

Result<ForeignWeight> make_weight(const Module& module, const ForeignScheme& scheme) {
  switch (scheme.kind) {
    case Kind::gptq: return make_gptq(module, scheme);
    case Kind::awq: return make_awq(module, scheme);
    case Kind::packed: return make_packed(module, scheme);
    case Kind::rows: return make_rows(module, scheme);
    case Kind::bitsandbytes: return make_nf4(module);
  }
  return internal_error("no such scheme");
}

/// The module of a tensor that only makes sense beside the module's first part, which is missing.
std::optional<std::string> orphan_of(Kind kind, const std::vector<std::string_view>& names, const SafeTensor& tensor) {
  for (const std::string_view part : names) {
    // A weight of these names may be dense; its dtype tells. (Rows: scales alone can be of activations or the cache.)
    const bool plain = part == "weight";
    if (plain && !(kind == Kind::rows ? tensor.dtype == "F8_E4M3" || tensor.dtype == "I8" : tensor.dtype == "U8")) continue;
    if (!plain && kind == Kind::rows) continue;
    if (tensor.name.ends_with(fmt::format(".{}", part))) return tensor.name.substr(0, tensor.name.size() - part.size() - 1);
  }
  return std::nullopt;
}

}  // namespace

Result<ForeignModel> find_foreign_weights(const ForeignScheme& scheme, const std::vector<FolderTensor>& tensors) {
  const std::vector<std::string_view> names = part_names(scheme.kind);
  std::map<std::string_view, const FolderTensor*> by_name;
  for (const FolderTensor& tensor : tensors) by_name[tensor.tensor->name] = &tensor;
  ForeignModel model;
  std::set<const FolderTensor*> used;
  for (const FolderTensor& tensor : tensors) {
    const std::string& name = tensor.tensor->name;
    const std::string mark = fmt::format(".{}", names.front());
    if (!name.ends_with(mark)) continue;
    Module module{.name = name.substr(0, name.size() - mark.size())};
    for (const std::string_view part : names)
      if (const auto at = by_name.find(fmt::format("{}.{}", module.name, part)); at != by_name.end()) {
        module.parts[std::string(part)] = at->second;
        used.insert(at->second);
      }
    TRY_ASSIGN(ForeignWeight weight, make_weight(module, scheme));
    weight.name = module.name + ".weight";
    if (const auto at = by_name.find(weight.name); at != by_name.end() && !used.contains(at->second))
      return bad_input(fmt::format("{}: tensor {}: found it beside {}, allowed is one of the two", at->second->path,
                                   printable(weight.name), printable(name)));
    weight.file = tensor.file;
    model.weights.push_back(std::move(weight));
  }
  for (const FolderTensor& tensor : tensors) {
    if (used.contains(&tensor)) continue;
    if (const auto module = orphan_of(scheme.kind, names, *tensor.tensor))
      return bad_input(fmt::format("{}: tensor {}: found nothing beside {}, allowed is every part of a compressed weight",
                                   tensor.path, printable(fmt::format("{}.{}", *module, names.front())),
                                   printable(tensor.tensor->name)));
    model.others.push_back(tensor);
  }
  return model;
}

}  // namespace quintet
