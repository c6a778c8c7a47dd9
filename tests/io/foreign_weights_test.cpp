// Weights that other tools compressed: what is made of them is what their formats say, and wrong ones are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "io/file_builder.h"
#include "io/model_files.h"
#include "io/safetensors_writer.h"
#include "quant/quantize.h"
#include "tensor/float8.h"

namespace quintet {
namespace {

using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

constexpr int64_t kN = 64, kK = 128;

std::mt19937& rng() {
  static std::mt19937 engine{7};
  return engine;
}
uint32_t below(uint32_t limit) { return std::uniform_int_distribution<uint32_t>(0, limit - 1)(rng()); }

/// A folder of one model file that is written tensor by tensor.
class FolderWriter {
 public:
  explicit FolderWriter(const std::string& config) {
    folder_.write("config.json", config);
    auto writer = SafetensorsWriter::create(folder_ / "model.safetensors", 16, 80);
    EXPECT_TRUE(writer) << message_of(writer);
    writer_ = std::make_unique<SafetensorsWriter>(std::move(writer).value());
  }
  template <class T>
  void add(const std::string& name, std::string_view dtype, const std::vector<int64_t>& shape, const std::vector<T>& values) {
    ASSERT_TRUE(writer_->add(name, dtype, shape, {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)}));
  }
  Result<ModelFiles> open() {
    EXPECT_TRUE(writer_->finish());
    return ModelFiles::open(folder_.path());
  }
  const TempFolder& folder() const { return folder_; }

 private:
  TempFolder folder_;
  std::unique_ptr<SafetensorsWriter> writer_;
};

std::vector<float> values_of(const ModelFiles& files, const std::string& name) {
  const ModelTensor* tensor = files.find(name);
  EXPECT_NE(tensor, nullptr) << name;
  if (!tensor) return {};
  QuantizedMatrix made;
  const auto weight = made_of(tensor->weight, made);
  EXPECT_TRUE(weight) << message_of(weight);
  if (!weight) return {};
  EXPECT_TRUE(check_side_data(*weight)) << message_of(check_side_data(*weight));
  std::vector<float> values(static_cast<size_t>(weight->n * weight->k));
  for (int64_t row = 0; row < weight->n; ++row) decode_row(*weight, row, values.data() + row * weight->k);
  // Rows made alone are the same.
  QuantizedMatrix some;
  const auto part = made_of(tensor->weight.slice_rows(3, 5), some);
  EXPECT_TRUE(part);
  std::vector<float> row(static_cast<size_t>(weight->k));
  decode_row(*part, 2, row.data());
  EXPECT_TRUE(std::equal(row.begin(), row.end(), values.begin() + 5 * weight->k));
  return values;
}

/// `count` fields of `bits` bits, one after the other in words.
std::vector<uint32_t> packed(const std::vector<uint32_t>& fields, int bits) {
  std::vector<uint32_t> words((fields.size() * static_cast<size_t>(bits) + 31) / 32);
  for (size_t i = 0; i < fields.size(); ++i)
    for (int b = 0; b < bits; ++b)
      if (fields[i] >> b & 1) words[(i * static_cast<size_t>(bits) + static_cast<size_t>(b)) / 32] |= 1u << ((i * static_cast<size_t>(bits) + static_cast<size_t>(b)) % 32);
  return words;
}

/// Codes [n, k], scales and zero points [n, groups], and what they mean.
struct Integers {
  int bits;
  int64_t group;
  std::vector<uint32_t> codes, zeros;
  std::vector<uint16_t> scales;

  Integers(int bits, int64_t group, bool symmetric) : bits(bits), group(group) {
    for (int64_t i = 0; i < kN * kK; ++i) codes.push_back(below(1u << bits));
    for (int64_t i = 0; i < kN * kK / group; ++i) {
      zeros.push_back(symmetric ? 1u << (bits - 1) : 1 + below((1u << bits) - 1));
      scales.push_back(f32_to_f16(0.001f * static_cast<float>(1 + below(50))));
    }
  }
  int64_t groups() const { return kK / group; }
  float value(int64_t row, int64_t column, int64_t in_group) const {
    const auto at = static_cast<size_t>(row * groups() + in_group);
    return f16_to_f32(scales[at]) *
           static_cast<float>(static_cast<int>(codes[static_cast<size_t>(row * kK + column)]) - static_cast<int>(zeros[at]));
  }
};

void expect_values(const std::vector<float>& got, const Integers& integers, const std::vector<int32_t>& group_of, bool exact) {
  ASSERT_EQ(got.size(), static_cast<size_t>(kN * kK));
  for (int64_t row = 0; row < kN; ++row)
    for (int64_t i = 0; i < kK; ++i) {
      const float want = integers.value(row, i, group_of.empty() ? i / integers.group : group_of[static_cast<size_t>(i)]);
      const float found = got[static_cast<size_t>(row * kK + i)];
      if (exact) {
        ASSERT_EQ(found, want) << row << ", " << i;
      } else {  // the minimum is rounded to FP16: at most 2^-11 of scale x zero point
        ASSERT_NEAR(found, want, 0.05f * 256 * 0x1p-11f) << row << ", " << i;
      }
    }
}

/// Transposed and packed along the inputs, as GPTQ has it.
std::vector<uint32_t> gptq_words(const Integers& integers) {
  const int64_t words = kK * integers.bits / 32;
  std::vector<uint32_t> all(static_cast<size_t>(words * kN));
  for (int64_t row = 0; row < kN; ++row) {
    const auto column = packed({integers.codes.begin() + row * kK, integers.codes.begin() + (row + 1) * kK}, integers.bits);
    for (int64_t w = 0; w < words; ++w) all[static_cast<size_t>(w * kN + row)] = column[static_cast<size_t>(w)];
  }
  return all;
}

void add_gptq(FolderWriter& writer, const Integers& integers, bool less_one, const std::vector<int32_t>& group_of) {
  const int64_t groups = integers.groups();
  std::vector<uint32_t> qzeros;
  std::vector<uint16_t> scales;
  for (int64_t g = 0; g < groups; ++g) {
    std::vector<uint32_t> line;
    for (int64_t row = 0; row < kN; ++row) {
      line.push_back(integers.zeros[static_cast<size_t>(row * groups + g)] - (less_one ? 1 : 0));
      scales.push_back(integers.scales[static_cast<size_t>(row * groups + g)]);
    }
    const auto words = packed(line, integers.bits);
    qzeros.insert(qzeros.end(), words.begin(), words.end());
  }
  writer.add("a.b.qweight", "I32", {kK * integers.bits / 32, kN}, gptq_words(integers));
  writer.add("a.b.qzeros", "I32", {groups, kN * integers.bits / 32}, qzeros);
  writer.add("a.b.scales", "F16", {groups, kN}, scales);
  writer.add("a.b.g_idx", "I32", {kK}, group_of);
}

std::vector<int32_t> in_order(int64_t group) {
  std::vector<int32_t> of(kK);
  for (int64_t i = 0; i < kK; ++i) of[static_cast<size_t>(i)] = static_cast<int32_t>(i / group);
  return of;
}

TEST(ForeignWeights, GptqOfBothVersionsAndAnyOrder) {
  for (const int bits : {3, 4, 8})
    for (const int64_t group : {32, 64, 128})
      for (const bool symmetric : {true, false})
        for (const bool v1 : {true, false})
          for (const bool act_order : {false, true}) {
            SCOPED_TRACE(fmt::format("{} bits, groups of {}, symmetric {}, v1 {}, act-order {}", bits, group, symmetric, v1, act_order));
            const Integers integers(bits, group, symmetric);
            std::vector<int32_t> group_of = in_order(group);
            if (act_order) std::shuffle(group_of.begin(), group_of.end(), rng());
            FolderWriter writer(fmt::format(
                R"({{"quantization_config":{{"quant_method":"gptq","bits":{},"group_size":{},"sym":{},"desc_act":{},"checkpoint_format":"{}"}}}})",
                bits, group, symmetric, act_order, v1 ? "gptq" : "gptq_v2"));
            add_gptq(writer, integers, v1, group_of);
            writer.add("a.norm.weight", "F16", {2}, std::vector<uint16_t>{1, 2});
            const auto files = writer.open();
            ASSERT_TRUE(files) << message_of(files);
            EXPECT_EQ(files->tensors().size(), 2u);
            expect_values(values_of(*files, "a.b.weight"), integers, group_of, symmetric);
          }
}

TEST(ForeignWeights, GptqOfOldFoldersAndWholeRows) {
  const Integers integers(4, kK, true);
  FolderWriter writer("{}");
  writer.folder().write("quantize_config.json", R"({"bits":4,"group_size":-1,"sym":true,"desc_act":false})");
  add_gptq(writer, integers, true, std::vector<int32_t>(kK, 0));
  const auto files = writer.open();
  ASSERT_TRUE(files) << message_of(files);
  EXPECT_EQ(files->find("a.b.weight")->weight.format, WeightFormat::int4_g128);
  expect_values(values_of(*files, "a.b.weight"), integers, {}, true);
}

TEST(ForeignWeights, Awq) {
  static constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};  // nibble i holds column kOrder[i]
  for (const bool zeros : {true, false}) {
    const Integers integers(4, 64, !zeros);
    const int64_t groups = integers.groups();
    std::vector<uint32_t> qweight, qzeros;
    std::vector<uint16_t> scales;
    for (int64_t i = 0; i < kK; ++i)
      for (int64_t column = 0; column < kN / 8; ++column) {
        uint32_t word = 0;
        for (int b = 0; b < 8; ++b) word |= integers.codes[static_cast<size_t>((column * 8 + kOrder[b]) * kK + i)] << (4 * b);
        qweight.push_back(word);
      }
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t column = 0; column < kN / 8; ++column) {
        uint32_t word = 0;
        for (int b = 0; b < 8; ++b) word |= integers.zeros[static_cast<size_t>((column * 8 + kOrder[b]) * groups + g)] << (4 * b);
        qzeros.push_back(word);
      }
      for (int64_t row = 0; row < kN; ++row) scales.push_back(integers.scales[static_cast<size_t>(row * groups + g)]);
    }
    FolderWriter writer(fmt::format(
        R"({{"quantization_config":{{"quant_method":"awq","bits":4,"group_size":64,"zero_point":{},"version":"gemm"}}}})", zeros));
    writer.add("m.qweight", "I32", {kK, kN / 8}, qweight);
    if (zeros) writer.add("m.qzeros", "I32", {groups, kN / 8}, qzeros);
    writer.add("m.scales", "F16", {groups, kN}, scales);
    const auto files = writer.open();
    ASSERT_TRUE(files) << message_of(files);
    expect_values(values_of(*files, "m.weight"), integers, {}, !zeros);
  }
}

TEST(ForeignWeights, CompressedTensors) {
  for (const bool symmetric : {true, false}) {
    const Integers integers(4, 32, symmetric);
    const int64_t groups = integers.groups();
    std::vector<uint32_t> words;
    for (int64_t row = 0; row < kN; ++row) {
      const auto line = packed({integers.codes.begin() + row * kK, integers.codes.begin() + (row + 1) * kK}, 4);
      words.insert(words.end(), line.begin(), line.end());
    }
    std::vector<uint32_t> zeros(static_cast<size_t>(kN / 8 * groups));
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t row = 0; row < kN; ++row)
        zeros[static_cast<size_t>(row / 8 * groups + g)] |= integers.zeros[static_cast<size_t>(row * groups + g)] << (4 * (row % 8));
    FolderWriter writer(fmt::format(
        R"({{"quantization_config":{{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{{"group_0":{{"weights":{{"num_bits":4,"type":"int","symmetric":{},"strategy":"group","group_size":32}}}}}}}}}})",
        symmetric));
    writer.add("m.weight_packed", "I32", {kN, kK / 8}, words);
    writer.add("m.weight_scale", "F16", {kN, groups}, integers.scales);
    writer.add("m.weight_shape", "I64", {2}, std::vector<int64_t>{kN, kK});
    if (!symmetric) writer.add("m.weight_zero_point", "I32", {kN / 8, groups}, zeros);
    const auto files = writer.open();
    ASSERT_TRUE(files) << message_of(files);
    expect_values(values_of(*files, "m.weight"), integers, {}, symmetric);
  }
}

TEST(ForeignWeights, Float8AndBytesUnderScalesOfRowsOrTensors) {
  for (const bool bytes : {false, true})
    for (const bool tensor : {false, true}) {
      std::vector<uint8_t> codes(kN * kK);
      for (auto& code : codes) code = static_cast<uint8_t>(below(0x7F) | below(2) << 7);
      std::vector<float> scales(tensor ? 1 : kN);
      for (float& scale : scales) scale = 0.001f * static_cast<float>(1 + below(100));
      FolderWriter writer(
          bytes ? R"({"quantization_config":{"quant_method":"compressed-tensors","format":"int-quantized","config_groups":{"g":{"weights":{"num_bits":8,"type":"int","strategy":"channel"}}}}})"
                : R"({"quantization_config":{"quant_method":"fp8","activation_scheme":"dynamic"}})");
      writer.add("m.weight", bytes ? "I8" : "F8_E4M3", {kN, kK}, codes);
      if (tensor)
        writer.add("m.weight_scale", "F32", {1}, scales);
      else
        writer.add("m.weight_scale", "F32", {kN, 1}, scales);
      const auto files = writer.open();
      ASSERT_TRUE(files) << message_of(files);
      const auto values = values_of(*files, "m.weight");
      for (size_t i = 0; i < values.size(); ++i) {
        const float code = bytes ? static_cast<float>(static_cast<int8_t>(codes[i])) : f8_to_f32(codes[i]);
        ASSERT_EQ(values[i], scales[tensor ? 0 : i / kK] * code) << i;
      }
    }
}

TEST(ForeignWeights, Nf4OfBitsandbytesWithAndWithoutNestedScales) {
  for (const bool nested : {false, true}) {
    std::vector<uint8_t> codes(kN * kK / 2), small(kN * kK / 64);
    for (auto& code : codes) code = static_cast<uint8_t>(below(256));
    for (auto& code : small) code = static_cast<uint8_t>(below(256));
    std::vector<float> absmax(small.size()), map(256), outer = {0.7f};
    for (size_t i = 0; i < map.size(); ++i) map[i] = static_cast<float>(i) / 255 - 0.3f;
    for (size_t i = 0; i < absmax.size(); ++i) absmax[i] = nested ? map[small[i]] * outer[0] + 0.25f : 0.01f * static_cast<float>(1 + below(90));
    FolderWriter writer(R"({"quantization_config":{"quant_method":"bitsandbytes","load_in_4bit":true,"bnb_4bit_quant_type":"nf4"}})");
    writer.add("m.weight", "U8", {kN * kK / 2, 1}, codes);
    writer.add("m.weight.quant_map", "F32", {16}, std::vector<float>(std::begin(kNf4Values), std::end(kNf4Values)));
    if (nested) {
      writer.add("m.weight.absmax", "U8", {static_cast<int64_t>(small.size())}, small);
      writer.add("m.weight.nested_absmax", "F32", {1}, outer);
      writer.add("m.weight.nested_quant_map", "F32", {256}, map);
    } else {
      writer.add("m.weight.absmax", "F32", {static_cast<int64_t>(absmax.size())}, absmax);
    }
    const std::string state = fmt::format(
        R"({{"quant_type":"nf4","blocksize":64,"dtype":"float16","shape":[{},{}],"nested_blocksize":256,"nested_dtype":"float32","nested_offset":0.25}})",
        kN, kK);
    writer.add("m.weight.quant_state.bitsandbytes__nf4", "U8", {static_cast<int64_t>(state.size())}, std::vector<char>(state.begin(), state.end()));
    const auto files = writer.open();
    ASSERT_TRUE(files) << message_of(files);
    const auto values = values_of(*files, "m.weight");
    for (size_t i = 0; i < values.size(); ++i) {
      const int code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
      ASSERT_NEAR(values[i], absmax[i / 64] * kNf4Values[code], std::abs(absmax[i / 64]) * 0x1p-11f) << i;
    }
  }
}

TEST(ForeignWeights, WrongPartsAreNamed) {
  const auto gptq = [](const std::string& settings, const std::function<void(FolderWriter&)>& fill) {
    FolderWriter writer(fmt::format(R"({{"quantization_config":{{"quant_method":"gptq",{}}}}})", settings));
    fill(writer);
    return message_of(writer.open());
  };
  const Integers integers(4, 32, true);
  const std::string usual = R"("bits":4,"group_size":32,"sym":true)";
  const auto whole = [&](FolderWriter& writer) { add_gptq(writer, integers, true, in_order(32)); };
  EXPECT_EQ(gptq(usual, whole), "no error");
  EXPECT_THAT(gptq(R"("bits":2,"group_size":32)", whole), HasSubstr("bits: found 2, allowed is 3, 4 or 8"));
  EXPECT_THAT(gptq(R"("bits":4,"group_size":20)", whole), HasSubstr("group_size: found 20"));
  EXPECT_THAT(gptq(R"("bits":4,"group_size":64)", whole), HasSubstr("'a.b.qzeros': found I32 [4, 8], allowed is I32 [2, 8]"));
  EXPECT_THAT(gptq(R"("bits":"four")", whole), HasSubstr("bits: found"));
  EXPECT_THAT(gptq(R"("bits":4,"group_size":32,"checkpoint_format":"marlin")", whole), HasSubstr("checkpoint_format: found"));
  EXPECT_THAT(gptq(usual, [&](FolderWriter& writer) { writer.add("a.b.qweight", "I32", {kK / 8, kN}, gptq_words(integers)); }),
              HasSubstr("'a.b.qzeros': found nothing"));
  EXPECT_THAT(gptq(usual, [&](FolderWriter& writer) {
                auto of = in_order(32);
                of[5] = 9;
                add_gptq(writer, integers, true, of);
              }),
              HasSubstr("'a.b.g_idx': input 5: found group 9, allowed are 0 to 3"));
  EXPECT_THAT(gptq(usual, [&](FolderWriter& writer) {
                auto of = in_order(32);
                of[5] = 2;
                add_gptq(writer, integers, true, of);
              }),
              HasSubstr("groups of unequal size"));

  // A model that says it is symmetric and is not: told when the weight is made.
  const Integers odd(4, 32, false);
  FolderWriter writer(R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":32,"sym":true}})");
  add_gptq(writer, odd, true, in_order(32));
  const auto files = writer.open();
  ASSERT_TRUE(files);
  QuantizedMatrix made;
  EXPECT_THAT(message_of(made_of(files->find("a.b.weight")->weight, made)), HasSubstr("zero points other than 8"));
}

// What settings promise and the folder does not hold would have to be guessed: it is named instead.
TEST(ForeignWeights, PartsThatSettingsPromiseAreRequired) {
  const auto open = [](const std::string& settings, const std::function<void(FolderWriter&)>& fill) {
    FolderWriter writer(fmt::format(R"({{"quantization_config":{{{}}}}})", settings));
    fill(writer);
    return message_of(writer.open());
  };
  const auto words = [](FolderWriter& writer, const std::string& name, int64_t rows, int64_t columns) {
    writer.add(name, "I32", {rows, columns}, std::vector<uint32_t>(static_cast<size_t>(rows * columns)));
  };
  const auto halves = [](FolderWriter& writer, const std::string& name, int64_t rows, int64_t columns) {
    writer.add(name, "F16", {rows, columns}, std::vector<uint16_t>(static_cast<size_t>(rows * columns)));
  };

  const auto awq = [&](FolderWriter& writer) { words(writer, "a.qweight", 64, 1), halves(writer, "a.scales", 2, 8); };
  const std::string awq_settings = R"("quant_method":"awq","bits":4,"group_size":32)";
  for (const std::string zero_point : {"", R"(,"zero_point":true)"})
    EXPECT_THAT(open(awq_settings + zero_point, awq), HasSubstr("'a.qzeros': found nothing"));
  EXPECT_EQ(open(awq_settings + R"(,"zero_point":false)", awq), "no error");
  EXPECT_THAT(open(awq_settings + R"(,"zero_point":1)", awq), HasSubstr("zero_point: found 1, allowed is true or false"));

  const auto gptq = [&](int64_t groups) {
    return [&, groups](FolderWriter& writer) {
      words(writer, "a.qweight", 8, 8), words(writer, "a.qzeros", groups, 1), halves(writer, "a.scales", groups, 8);
    };
  };
  const std::string gptq_settings = R"("quant_method":"gptq","bits":4,"desc_act":)";
  EXPECT_THAT(open(gptq_settings + R"(true,"group_size":32)", gptq(2)), HasSubstr("'a.g_idx': found nothing, allowed with desc_act true"));
  EXPECT_EQ(open(gptq_settings + R"(false,"group_size":32)", gptq(2)), "no error");
  EXPECT_EQ(open(gptq_settings + R"(true,"group_size":-1)", gptq(1)), "no error");  // one group: no order to know
  EXPECT_THAT(open(gptq_settings + R"("yes","group_size":32)", gptq(2)), HasSubstr("desc_act: found"));
  EXPECT_THAT(open(gptq_settings + R"(false,"group_size":32)", [&](FolderWriter& writer) { halves(writer, "a.scales", 2, 8); }),
              HasSubstr("tensor 'a.qweight': found nothing beside 'a.scales'"));

  const auto compressed = [](std::string_view format, std::string_view weights) {
    return fmt::format(R"("quant_method":"compressed-tensors","format":"{}","config_groups":{{"g":{{"weights":{{{}}}}}}})", format, weights);
  };
  const auto packs = [&](FolderWriter& writer) {
    words(writer, "a.weight_packed", 8, 8), halves(writer, "a.weight_scale", 8, 2);
    writer.add("a.weight_shape", "I64", {2}, std::vector<int64_t>{8, 64});
  };
  const std::string pack = R"("num_bits":4,"strategy":"group","group_size":32)";
  EXPECT_EQ(open(compressed("pack-quantized", pack), packs), "no error");
  EXPECT_THAT(open(compressed("pack-quantized", pack + R"(,"symmetric":false)"), packs), HasSubstr("'a.weight_zero_point': found nothing"));
  EXPECT_THAT(open(compressed("pack-quantized", pack + R"(,"actorder":"group")"), packs), HasSubstr("actorder: found 'group', allowed is weight, or none"));
  EXPECT_THAT(open(compressed("pack-quantized", pack + R"(,"actorder":true)"), packs), HasSubstr("actorder: found true"));
  for (const std::string actorder : {"\"weight\"", "\"static\"", "false", "null"})
    EXPECT_EQ(open(compressed("pack-quantized", pack + R"(,"actorder":)" + actorder), packs), "no error");
  EXPECT_THAT(open(compressed("pack-quantized", pack + R"(,"type":"float")"), packs), HasSubstr("type: found 'float', allowed is int"));
  for (const std::string dtype : {"F8_E4M3", "I8"})
    EXPECT_THAT(open(compressed("float-quantized", R"("num_bits":8,"type":"float","strategy":"channel")"), [&](FolderWriter& writer) {
                  writer.add("a.weight", dtype, {2, 32}, std::vector<uint8_t>(64));
                }), HasSubstr("tensor 'a.weight_scale': found nothing beside 'a.weight'"));
  for (const std::string type : {"float", "int"})
    for (const std::string dtype : {"F8_E4M3", "I8"})
      EXPECT_THAT(open(compressed("naive-quantized", fmt::format(R"("num_bits":8,"type":"{}","strategy":"channel")", type)), [&](FolderWriter& writer) {
                    writer.add("a.weight", dtype, {2, 32}, std::vector<uint8_t>(64));
                    halves(writer, "a.weight_scale", 2, 1);
                  }), HasSubstr((type == "float") == (dtype == "F8_E4M3") ? "no error" : "'a.weight': found " + dtype));
  EXPECT_THAT(open(R"("quant_method":"bitsandbytes","load_in_4bit":true,"bnb_4bit_quant_type":"nf4")", [&](FolderWriter& writer) {
                writer.add("a.weight", "U8", {64, 1}, std::vector<uint8_t>(64));
              }), HasSubstr("'a.weight.quant_state.bitsandbytes__nf4': found nothing beside 'a.weight'"));

  for (const std::string_view field : {"bits", "group_size"})
    for (const std::string_view value : {"9223372036854775808", "18446744073709551615"})
      EXPECT_THAT(open(fmt::format(R"("quant_method":"gptq","{}":{})", field, value), gptq(2)),
                  HasSubstr(fmt::format("{}: found {}, allowed is a whole number of at most 63 bits", field, value)));
}

// Shapes that their parts agree on, of weights that do not exist: reading them would go past the ends of the parts.
TEST(ForeignWeights, ShapesThatPartsAgreeOnAndNoWeightHas) {
  const auto gptq = [](int64_t group, const std::function<void(FolderWriter&)>& fill) {
    FolderWriter writer(fmt::format(R"({{"quantization_config":{{"quant_method":"gptq","bits":4,"group_size":{}}}}})", group));
    fill(writer);
    return message_of(writer.open());
  };
  const auto parts = [](FolderWriter& writer, int64_t words, int64_t n, int64_t groups) {
    writer.add("a.qweight", "I32", {words, n}, std::vector<uint32_t>(static_cast<size_t>(words * n)));
    writer.add("a.qzeros", "I32", {groups, n / 8}, std::vector<uint32_t>(static_cast<size_t>(groups * (n / 8))));
    writer.add("a.scales", "F16", {groups, n}, std::vector<uint16_t>(static_cast<size_t>(groups * n)));
  };
  EXPECT_EQ(gptq(32, [&](FolderWriter& writer) { parts(writer, 4, 8, 1); }), "no error");
  for (const int64_t words : {8, 20})  // 64 and 160 inputs
    EXPECT_THAT(gptq(128, [&](FolderWriter& writer) { parts(writer, words, 8, words * 8 / 128); }),
                HasSubstr(fmt::format("found groups of 128 of {} inputs, allowed are multiples of 32 that divide them", words * 8)));
  for (const int64_t n : {4, 12})
    EXPECT_THAT(gptq(32, [&](FolderWriter& writer) { parts(writer, 4, n, 1); }),
                HasSubstr(fmt::format("'a.qweight': found {} outputs of 4 bits, allowed are whole words of 32", n)));
  EXPECT_THAT(gptq(32, [&](FolderWriter& writer) {
                writer.add("a.qweight", "I32", {int64_t{1} << 60, 0}, std::vector<uint32_t>());
              }),
              HasSubstr("found I32 [1152921504606846976, 0], allowed is I32 [1 to 16777216, 1 to 16777216]"));
  EXPECT_THAT(gptq(32, [&](FolderWriter& writer) {
                parts(writer, 4, 8, 1);
                writer.add("a.weight", "F16", {1}, std::vector<uint16_t>(1));
              }),
              HasSubstr("tensor 'a.weight': found it beside 'a.qweight', allowed is one of the two"));

  const std::vector<uint16_t> scales(2, 0x3C00);
  for (const int8_t zero : {0, 1}) {
    FolderWriter writer(R"({"quantization_config":{"quant_method":"fp8"}})");
    writer.add("a.weight", "I8", {2, 32}, std::vector<int8_t>(64));
    writer.add("a.weight_scale", "F16", {2, 1}, scales);
    writer.add("a.weight_zero_point", "I8", {2, 1}, std::vector<int8_t>{0, zero});
    EXPECT_THAT(message_of(writer.open()),
                HasSubstr(zero == 0 ? "no error" : "'a.weight_zero_point': found a zero point other than 0, allowed is 0"));
  }
}

TEST(ForeignWeights, StatesOfBitsandbytesThatWouldOverflow) {
  const auto nf4 = [](const std::string& state) {
    FolderWriter writer(R"({"quantization_config":{"quant_method":"bitsandbytes","load_in_4bit":true,"bnb_4bit_quant_type":"nf4"}})");
    writer.add("m.weight", "U8", {64, 1}, std::vector<uint8_t>(64));
    writer.add("m.weight.quant_map", "F32", {16}, std::vector<float>(std::begin(kNf4Values), std::end(kNf4Values)));
    writer.add("m.weight.absmax", "U8", {2}, std::vector<uint8_t>(2));
    writer.add("m.weight.nested_absmax", "F32", {1}, std::vector<float>(1));
    writer.add("m.weight.nested_quant_map", "F32", {256}, std::vector<float>(256));
    writer.add("m.weight.quant_state.bitsandbytes__nf4", "U8", {static_cast<int64_t>(state.size())},
               std::vector<char>(state.begin(), state.end()));
    return message_of(writer.open());
  };
  EXPECT_EQ(nf4(R"({"shape":[2,64],"nested_offset":0.5})"), "no error");
  EXPECT_THAT(nf4(R"({"shape":[2,64]})"), HasSubstr("nested_offset: found nothing, allowed is a number"));
  EXPECT_THAT(nf4(R"({"shape":[2,64],"nested_offset":"0.5"})"), HasSubstr("nested_offset: found"));
  EXPECT_THAT(nf4(R"({"shape":[2,64],"nested_offset":1e300})"), HasSubstr("allowed is a number that FP32 holds"));
  EXPECT_THAT(nf4(R"({"shape":[2,64],"blocksize":9223372036854775744})"), HasSubstr("blocksize: found '9223372036854775744'"));
  EXPECT_THAT(nf4(R"({"shape":[2,64],"nested_blocksize":9223372036854775807})"), HasSubstr("nested_blocksize: found"));
  EXPECT_THAT(nf4(fmt::format(R"({{"shape":{:[>20000}{:]>20000}}})", "", "")), HasSubstr("shape: found nothing"));
  EXPECT_THAT(nf4(std::string(100000, ' ')), HasSubstr("found 100000 bytes, allowed are 65536"));
}

TEST(ForeignWeights, DeepSettingsAreAnError) {
  FolderWriter writer("{}");
  writer.folder().write("quantize_config.json", fmt::format(R"({{"bits":{:[>100000}{:]>100000}}})", "", ""));
  EXPECT_THAT(message_of(writer.open()), HasSubstr("quantize_config.json: found no JSON object"));
}

}  // namespace
}  // namespace quintet
