// Weights with outliers kept apart: the backends give what the codec and the outliers together say.
#include <set>

#include "backend/reference/reference.h"
#include "cpu_weights.h"

namespace quintet::test {
namespace {

/// A random weight with `count` outliers at random places.
struct OutlierWeight {
  RandomWeight dense;
  std::vector<uint32_t> begin;
  std::vector<uint16_t> columns, values;

  OutlierWeight(WeightFormat format, int64_t n, int64_t k, int count) : dense(format, n, k) {
    std::set<std::pair<int, int>> places;
    while (static_cast<int>(places.size()) < count)
      places.insert({uniform(0, static_cast<int>(n) - 1), uniform(0, static_cast<int>(k) - 1)});
    begin.assign(static_cast<size_t>(n + 1), 0);
    for (const auto& [row, column] : places) {
      for (int64_t r = row + 1; r <= n; ++r) ++begin[static_cast<size_t>(r)];
      columns.push_back(static_cast<uint16_t>(column));
      values.push_back(f32_to_f16(normal(3)));
      dense.values[static_cast<size_t>(row * k + column)] += f16_to_f32(values.back());
    }
  }
  template <class T>
  static std::span<const uint8_t> bytes(const std::vector<T>& v) {
    return {reinterpret_cast<const uint8_t*>(v.data()), v.size() * sizeof(T)};
  }
  HostWeight host() const {
    HostWeight weight = dense.host();
    weight.outliers = {.row_begin = bytes(begin), .columns = bytes(columns), .values = bytes(values)};
    return weight;
  }
};

const WeightFormat kFormats[] = {WeightFormat::int4_g128, WeightFormat::int3_g64_asym,
                                 WeightFormat::int8_g128_asym, WeightFormat::q4_0, WeightFormat::f16};

TEST(Outliers, UnpackAndLookUpEqualTheOracle) {
  for (const auto& backend : {backend(), make_reference_backend()})
    for (const WeightFormat format : kFormats) {
      const OutlierWeight w(format, 37, 256, 40);
      const HostWeight host = w.host();
      ASSERT_TRUE(check_side_data(host));
      for (const WeightRole role :
           {WeightRole::linear, WeightRole::embedding, WeightRole::embedding_and_head}) {
        const auto packed = backend->prepare(role, {&host, 1});
        ASSERT_TRUE(packed) << packed.error().message;
        std::vector<float> out(37 * 256), row(256);
        ASSERT_TRUE(backend->unpack(*packed, 0, 37, out.data()));
        for (int64_t i = 0; i < 37; ++i) {
          decode_row(host, i, row.data());
          for (size_t j = 0; j < 256; ++j) {
            ASSERT_EQ(row[j], w.dense.row(i)[j]);
            ASSERT_EQ(out[static_cast<size_t>(i) * 256 + j], row[j]) << format_info(format).name;
          }
        }
      }
    }
}

TEST(Outliers, SlicesKeepTheirRows) {
  const OutlierWeight w(WeightFormat::int4_g128, 30, 128, 25);
  const HostWeight whole = w.host(), part = whole.slice_rows(7, 11);
  ASSERT_TRUE(check_side_data(part));
  std::vector<float> a(128), b(128);
  for (int64_t i = 0; i < 11; ++i) {
    decode_row(whole, 7 + i, a.data());
    decode_row(part, i, b.data());
    EXPECT_EQ(a, b);
  }
}

TEST(Outliers, ProductsEqualDoubleAndHaveTheSameBitsInAnyCompany) {
  for (CpuSimd simd : simds()) {
    const auto cpu = backend(2, simd);
    for (const WeightFormat format : kFormats) {
      const int64_t n = 53, k = 256, rows = 19;
      const OutlierWeight w(format, n, k, 60);
      const HostWeight host = w.host();
      const auto packed = cpu->prepare(WeightRole::linear, {&host, 1});
      ASSERT_TRUE(packed);
      const std::vector<float> x = normals(static_cast<size_t>(rows * k));
      const auto product = [&](int64_t first, int64_t count) {
        std::vector<float> out(static_cast<size_t>(count * n), NAN);
        cpu->ops().linear({.x = {x.data() + first * k, DType::f32, count, k, k},
                           .w = &*packed,
                           .out = view(out, count, n)});
        return out;
      };
      const auto all = product(0, rows);
      for (int64_t r = 0; r < rows; ++r) {
        const auto alone = product(r, 1);
        for (int64_t i = 0; i < n; ++i) {
          double exact = 0, size = 0;
          for (int64_t j = 0; j < k; ++j) {
            const double term = static_cast<double>(x[static_cast<size_t>(r * k + j)]) * w.dense.row(i)[j];
            exact += term;
            size += std::abs(term);
          }
          // 16-bit activations: half a step of 2^-15 of the block's largest input, about four times a usual
          // one; codes of asymmetric formats are summed up to twice their weights' size before the minimum
          // takes its share away.
          ASSERT_NEAR(alone[static_cast<size_t>(i)], exact, (size + 5) * 0x1p-12) << format_info(format).name;
          ASSERT_EQ(std::bit_cast<uint32_t>(alone[static_cast<size_t>(i)]),
                    std::bit_cast<uint32_t>(all[static_cast<size_t>(r * n + i)]));
        }
      }
    }
  }
}

}  // namespace
}  // namespace quintet::test
