// Packing is exact for every format and role, and refuses scales that are not finite.
#include "cpu_weights.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace quintet::test {
namespace {

void expect_bits(const std::vector<float>& got, const float* expected, const std::string& what) {
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
        << what << " at " << i << ": " << got[i] << ", not " << expected[i];
}

TEST(CpuWeights, UnpackEqualsTheCodecBitForBit) {
  const auto cpu = backend();
  for (const FormatInfo& info : format_table()) {
    for (int64_t n : {1, 16, 37}) {
      RandomWeight w(info.format, n, 512);
      const Weight packed = prepare(*cpu, WeightRole::linear, {&w});
      EXPECT_GT(packed.bytes, 0u);
      std::vector<float> out(static_cast<size_t>(n * 512), NAN);
      ASSERT_TRUE(cpu->unpack(packed, 0, n, out.data()));
      expect_bits(out, w.row(0), std::string(info.name));
    }
  }
}

TEST(CpuWeights, RolesAndParts) {
  const auto cpu = backend(3);
  const RandomWeight q(WeightFormat::q4_k, 40, 256), k(WeightFormat::q4_k, 24, 256),
      v(WeightFormat::q6_k, 24, 256);
  const Weight qkv = prepare(*cpu, WeightRole::qkv, {&q, &k, &v});
  EXPECT_EQ(qkv.n, 88);
  EXPECT_EQ(qkv.part_rows, (std::vector<int64_t>{40, 24, 24}));
  std::vector<float> row(256);
  for (int64_t i = 0; i < 88; ++i) {
    ASSERT_TRUE(cpu->unpack(qkv, i, 1, row.data()));
    expect_bits(row,
                i < 40   ? q.row(i)
                : i < 64 ? k.row(i - 40)
                         : v.row(i - 64),
                "qkv row " + std::to_string(i));
  }
  for (WeightRole role : {WeightRole::embedding, WeightRole::embedding_and_head, WeightRole::head}) {
    const RandomWeight table(WeightFormat::q8_0, 51, 64);
    const Weight packed = prepare(*cpu, role, {&table});
    std::vector<float> rows(51 * 64);
    ASSERT_TRUE(cpu->unpack(packed, 0, 51, rows.data()));
    expect_bits(rows, table.row(0), "table");
    if (role == WeightRole::head) continue;
    std::vector<float> out(4 * 64, NAN);
    const std::vector<TokenId> tokens{50, 0, 17, 33};
    const StepView step{.rows = 4, .token = tokens.data()};
    cpu->ops().embed(step, {.table = &packed, .scale = 3, .out = view(out, 4, 64)});
    for (size_t r = 0; r < 4; ++r)
      for (size_t i = 0; i < 64; ++i) ASSERT_EQ(out[r * 64 + i], table.row(tokens[r])[i] * 3);
  }
  const RandomWeight norm(WeightFormat::bf16, 1, 96);
  const Weight vector = prepare(*cpu, WeightRole::vector, {&norm});
  std::vector<float> values(96);
  ASSERT_TRUE(cpu->unpack(vector, 0, 1, values.data()));
  expect_bits(values, norm.row(0), "vector");
}

TEST(CpuWeights, ScalesThatAreNotFiniteAreBadInput) {
  const auto cpu = backend();
  for (const FormatInfo& info : format_table())
    for (WeightRole role : {WeightRole::linear, WeightRole::embedding, WeightRole::vector}) {
      for (uint16_t bad : {uint16_t{0x7C00}, uint16_t{0xFE01}, uint16_t{0xFC00}}) {
        RandomWeight w(info.format, 33, 512);
        const HalfOffsets at = halves_of(info.format);
        const auto block = static_cast<size_t>(uniform(0, 33 * 512 / info.block_weights - 1));
        uint8_t* p = w.bytes.data() + block * static_cast<size_t>(info.block_bytes);
        if (info.format == WeightFormat::f32)
          p += 2, bad = bad == 0x7C00 ? 0x7F80 : 0xFFC1;
        else if (info.format == WeightFormat::bf16)
          bad = bad == 0x7C00 ? 0x7F80 : 0xFF80;
        else if (at.first >= 0)
          p += at.second >= 0 && uniform(0, 1) ? at.second : at.first;
        if (info.format == WeightFormat::nf4_dq || info.format == WeightFormat::int8) {
          if (role == WeightRole::embedding) continue;  // a row is decoded as it is looked up: check_side_data() has seen it
          w.row_scales[block * static_cast<size_t>(info.block_weights) / 512] = f16_to_f32(bad);
        } else if (info.format == WeightFormat::fp8) {
          *p = bad & 1 ? 0xFF : 0x7F;
        } else {
          std::memcpy(p, &bad, 2);
        }
        const HostWeight host = w.host();
        const auto result = cpu->prepare(role, {&host, 1});
        ASSERT_FALSE(result) << info.name;
        EXPECT_EQ(result.error().kind, ErrorKind::bad_input);
        EXPECT_NE(result.error().message.find(w.name), std::string::npos) << result.error().message;
      }
    }
}

TEST(CpuWeights, PagesOfAMappedFileAreLetGoAndComeBack) {
  RandomWeight w(WeightFormat::q4_1, 4096, 512);
  char path[] = "/tmp/quintet_cpu_weights_XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  ASSERT_EQ(write(file, w.bytes.data(), w.bytes.size()), static_cast<ssize_t>(w.bytes.size()));
  void* mapped = mmap(nullptr, w.bytes.size(), PROT_READ, MAP_PRIVATE, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto cpu = backend();
  HostWeight host = w.host();
  host.bytes = {static_cast<const uint8_t*>(mapped), w.bytes.size()};
  const auto packed = cpu->prepare(WeightRole::linear, {&host, 1});
  ASSERT_TRUE(packed);
  EXPECT_EQ(std::memcmp(mapped, w.bytes.data(), w.bytes.size()), 0);
  // Memory of the heap keeps its bytes too: there, dropped pages would be lost.
  const auto copy = w.bytes;
  prepare(*cpu, WeightRole::linear, {&w});
  EXPECT_EQ(copy, w.bytes);
  munmap(mapped, w.bytes.size());
  close(file);
  unlink(path);
}

}  // namespace
}  // namespace quintet::test
