// Every format's scalar decoder against the PyPI package `gguf`, bit for bit, and the table that lists them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "quant/format.h"
#include "quant/grids.h"
#include "quant/host_weight.h"
#include "quant/python_reference.h"
#include "tensor/half.h"

namespace quintet {
namespace {

using test::RecordReader;

/// Decodes every record of tools/reference_decode.py `random` and compares all values.
void compare_records(const std::vector<uint8_t>& records) {
  RecordReader reader(records);
  std::set<std::string> seen;
  while (!reader.done()) {
    const std::string name(reinterpret_cast<const char*>(reader.take_bytes(16)));
    const auto type = reader.take<uint32_t>(), weights = reader.take<uint32_t>(),
               bytes = reader.take<uint32_t>();
    const auto blocks = reader.take<uint32_t>();
    SCOPED_TRACE(name);
    const auto format = format_from_name(name);
    ASSERT_TRUE(format);
    const auto& info = format_info(*format);
    EXPECT_EQ(info.ggml_type, static_cast<int>(type));
    ASSERT_EQ(info.block_weights, static_cast<int>(weights));
    ASSERT_EQ(info.block_bytes, static_cast<int>(bytes));
    EXPECT_EQ(format_from_ggml_type(type), format);
    const uint8_t* in = reader.take_bytes(size_t{blocks} * bytes);
    const uint8_t* expected = reader.take_bytes(size_t{blocks} * weights * sizeof(float));

    // One value more than asked for, to see a write past the end.
    std::vector<float> out(size_t{blocks} * weights + 1, 12345.0f);
    info.decode(in, blocks, out.data());
    EXPECT_EQ(out.back(), 12345.0f);
    size_t wrong = 0;
    for (size_t i = 0; i + 1 < out.size(); ++i) {
      float want;
      std::memcpy(&want, expected + i * sizeof(float), sizeof want);
      if (test::same_value(out[i], want)) continue;
      if (++wrong <= 3)
        ADD_FAILURE() << "block " << i / weights << ", weight " << i % weights << ": " << out[i] << ", not "
                      << want;
    }
    EXPECT_EQ(wrong, 0u) << "of " << out.size() - 1;
    seen.insert(name);
  }
  const auto of_gguf =
      std::ranges::count_if(format_table(), [](const FormatInfo& info) { return info.ggml_type >= 0; });
  EXPECT_EQ(seen.size(), static_cast<size_t>(of_gguf)) << "each format of GGUF has a record";
}

std::vector<uint8_t> committed_records() {
  std::ifstream file(std::string(QUINTET_SOURCE_DIR) + "/tests/quant/data/codecs.bin", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Codec, EqualsTheReferenceOnCommittedBlocks) { compare_records(committed_records()); }

TEST(Codec, EqualsTheReferenceOnFreshBlocks) {
  if (!test::have_python()) GTEST_SKIP() << "no .venv/bin/python: run `make test`";
  const auto seed = test::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const auto records = test::reference_output("random --blocks 2000 --seed " + std::to_string(seed));
  ASSERT_FALSE(records.empty()) << "tools/reference_decode.py failed";
  compare_records(records);
}

TEST(Codec, DecodesFromAnyAddress) {
  std::mt19937 random(7);
  for (const auto& info : format_table()) {
    SCOPED_TRACE(info.name);
    constexpr size_t kBlocks = 5;
    std::vector<uint8_t> aligned(kBlocks * info.block_bytes);
    for (auto& byte : aligned) byte = static_cast<uint8_t>(random());
    std::vector<uint8_t> shifted(aligned.size() + 1);
    std::copy(aligned.begin(), aligned.end(), shifted.begin() + 1);
    std::vector<float> a(kBlocks * info.block_weights), b(a.size());
    info.decode(aligned.data(), kBlocks, a.data());
    info.decode(shifted.data() + 1, kBlocks, b.data());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  }
}

TEST(Codec, DecodesBlocksOneByOneAsTogether) {
  const auto records = committed_records();
  for (const auto& info : format_table()) {
    SCOPED_TRACE(info.name);
    const uint8_t* in = records.data() + 100;
    constexpr size_t kBlocks = 7;
    std::vector<float> together(kBlocks * info.block_weights), single(together.size());
    info.decode(in, kBlocks, together.data());
    for (size_t i = 0; i < kBlocks; ++i)
      info.decode(in + i * info.block_bytes, 1, single.data() + i * info.block_weights);
    EXPECT_EQ(std::memcmp(together.data(), single.data(), single.size() * sizeof(float)), 0);
    info.decode(nullptr, 0, nullptr);
  }
}

TEST(Codec, EveryHalfIsWhatTheConversionSays) {
  std::vector<uint8_t> halves;
  for (int bits = 0; bits < 65536; ++bits) halves.push_back(static_cast<uint8_t>(bits)), halves.push_back(static_cast<uint8_t>(bits >> 8));
  std::vector<float> decoded(65536);
  format_info(WeightFormat::f16).decode(halves.data(), 65536, decoded.data());
  for (uint32_t bits = 0; bits < 65536; ++bits)
    ASSERT_EQ(std::bit_cast<uint32_t>(decoded[bits]), std::bit_cast<uint32_t>(f16_to_f32(static_cast<uint16_t>(bits)))) << bits;
}

TEST(Codec, Int4IsAScaledGridOfSixteen) {
  uint8_t block[66] = {0x00, 0x38};  // 0.5
  for (int i = 0; i < 64; ++i) block[2 + i] = static_cast<uint8_t>(i % 16 | (15 - i % 16) << 4);
  float out[128];
  format_info(WeightFormat::int4_g128).decode(block, 1, out);
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(out[i], 0.5f * static_cast<float>(i % 16 - 8));
    EXPECT_EQ(out[64 + i], 0.5f * static_cast<float>(15 - i % 16 - 8));
  }
}

TEST(FormatTable, NamesAndTypesAreUnique) {
  std::set<std::string_view> names;
  std::set<int> types;
  for (const auto& info : format_table()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    if (info.ggml_type >= 0) {
      EXPECT_TRUE(types.insert(info.ggml_type).second) << info.name;
    }
    EXPECT_EQ(&format_info(info.format), &info);
    EXPECT_EQ(format_from_name(info.name), info.format);
    EXPECT_DOUBLE_EQ(info.bits, info.block_bytes * 8.0 / info.block_weights);
    EXPECT_EQ(format_bytes_of(info.format, 10 * info.block_weights), 10u * info.block_bytes);
  }
  EXPECT_FALSE(format_from_name("q4_k_m"));
  EXPECT_FALSE(format_from_name(""));
  for (const uint32_t type : {4u, 5u, 9u, 15u, 19u, 29u, 39u, 1000u, 0xFFFFFFFFu})
    EXPECT_FALSE(format_from_ggml_type(type)) << type;
}

TEST(Grids, PointsAreDistinct) {
  const auto distinct = [](auto grid) { return std::set(grid.begin(), grid.end()).size() == grid.size(); };
  EXPECT_TRUE(distinct(iq2_xxs_grid()) && iq2_xxs_grid().size() == 256);
  EXPECT_TRUE(distinct(iq2_xs_grid()) && iq2_xs_grid().size() == 512);
  EXPECT_TRUE(distinct(iq2_s_grid()) && iq2_s_grid().size() == 1024);
  EXPECT_TRUE(distinct(iq3_xxs_grid()) && iq3_xxs_grid().size() == 256);
  EXPECT_TRUE(distinct(iq3_s_grid()) && iq3_s_grid().size() == 512);
}

TEST(HostWeight, SlicesRows) {
  std::vector<uint8_t> bytes(4 * 2 * 18);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  const HostWeight weight{.name = "w", .format = WeightFormat::q4_0, .n = 4, .k = 64, .bytes = bytes};
  EXPECT_EQ(weight.row_bytes(), 36);
  const auto part = weight.slice_rows(1, 2);
  EXPECT_EQ(part.n, 2);
  EXPECT_EQ(part.k, 64);
  EXPECT_EQ(part.bytes.data(), bytes.data() + 36);
  EXPECT_EQ(part.bytes.size(), 72u);
  EXPECT_EQ(weight.slice_rows(4, 0).bytes.size(), 0u);
}

}  // namespace
}  // namespace quintet
