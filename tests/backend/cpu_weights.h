// Random weights of any format, for the tests of the CPU backend.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "quant/format.h"
#include "quant/integer_format.h"
#include "tensor/half.h"

namespace quintet::test {

inline std::mt19937& rng() {
  static std::mt19937 engine{std::random_device{}()};
  return engine;
}
inline float normal(float sigma = 1) { return std::normal_distribution<float>(0, sigma)(rng()); }
inline int uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng()); }

inline std::vector<float> normals(size_t count, float sigma = 1) {
  std::vector<float> v(count);
  for (float& x : v) x = normal(sigma);
  return v;
}

/// Where the halves of a block lie; -1: none.
struct HalfOffsets {
  int first = -1, second = -1;
};
inline HalfOffsets halves_of(WeightFormat format) {
  if (const auto integers = integer_format(format)) return {0, integers->minimum ? 2 : -1};
  switch (format) {
    case WeightFormat::f32:
    case WeightFormat::f16:
    case WeightFormat::bf16: return {};
    case WeightFormat::q5_1:
    case WeightFormat::q4_k:
    case WeightFormat::q5_k: return {0, 2};
    case WeightFormat::q2_k: return {80, 82};
    case WeightFormat::q3_k: return {108, -1};
    case WeightFormat::q6_k: return {208, -1};
    case WeightFormat::nf4_dq:
    case WeightFormat::fp8:
    case WeightFormat::int8: return {};
    default: return {0, -1};
  }
}

/// A matrix of random blocks: every code and scale index at random, halves finite and of a weight's size.
struct RandomWeight {
  std::string name = "blk.7.test.weight";
  WeightFormat format = WeightFormat::f32;
  int64_t n = 0, k = 0;
  std::vector<uint8_t> bytes;
  std::vector<float> row_scales;  ///< [n] where the format has them
  std::vector<float> values;      ///< [n, k] by the scalar codec

  RandomWeight(WeightFormat format, int64_t n, int64_t k) : format(format), n(n), k(k) {
    const FormatInfo& info = format_info(format);
    const size_t blocks = static_cast<size_t>(n * k / info.block_weights);
    bytes.resize(blocks * static_cast<size_t>(info.block_bytes));
    if (format == WeightFormat::f32) {
      const auto v = normals(blocks, 0.05f);
      std::memcpy(bytes.data(), v.data(), bytes.size());
    } else if (format == WeightFormat::f16 || format == WeightFormat::bf16) {
      for (size_t i = 0; i < blocks; ++i) {
        const float v = normal(0.05f);
        const uint16_t half = format == WeightFormat::f16 ? f32_to_f16(v) : f32_to_bf16(v);
        std::memcpy(bytes.data() + 2 * i, &half, 2);
      }
    } else {
      for (auto& byte : bytes) byte = static_cast<uint8_t>(rng()());
      const HalfOffsets at = halves_of(format);
      for (size_t b = 0; b < blocks; ++b)
        for (int offset : {at.first, at.second})
          if (offset >= 0) {
            const uint16_t half = f32_to_f16(normal(0.01f));
            std::memcpy(
                bytes.data() + b * static_cast<size_t>(info.block_bytes) + static_cast<size_t>(offset), &half,
                2);
          }
    }
    if (format == WeightFormat::fp8)
      for (auto& byte : bytes)
        if ((byte & 0x7F) == 0x7F) byte ^= 1;  // NaN
    if (info.decode_scaled) row_scales = normals(static_cast<size_t>(n), 0.001f);
    values.resize(static_cast<size_t>(n * k));
    for (int64_t row = 0; row < n; ++row) decode_row(host(), row, values.data() + row * k);
  }

  HostWeight host() const {
    HostWeight weight{.name = name, .format = format, .n = n, .k = k, .bytes = bytes};
    if (!row_scales.empty())
      weight.row_scales = {reinterpret_cast<const uint8_t*>(row_scales.data()), row_scales.size() * sizeof(float)};
    return weight;
  }
  const float* row(int64_t i) const { return values.data() + i * k; }
};

inline std::unique_ptr<Backend> backend(int threads = 2, CpuSimd simd = CpuSimd::best) {
  return make_cpu_backend({.threads = threads, .simd = simd});
}

inline Weight prepare(Backend& backend, WeightRole role, const std::vector<const RandomWeight*>& parts) {
  std::vector<HostWeight> host;
  for (const auto* part : parts) host.push_back(part->host());
  auto weight = backend.prepare(role, host);
  EXPECT_TRUE(weight) << (weight ? "" : weight.error().message);
  return std::move(weight).value();
}

inline MatrixView view(std::vector<float>& data, int64_t rows, int64_t cols) {
  return {data.data(), DType::f32, rows, cols, cols};
}

/// The instruction sets of this machine.
inline std::vector<CpuSimd> simds() {
  std::vector<CpuSimd> all;
  for (CpuSimd simd : {CpuSimd::avx512, CpuSimd::avx2, CpuSimd::baseline})
    if (cpu_has(simd)) all.push_back(simd);
  return all;
}

}  // namespace quintet::test
