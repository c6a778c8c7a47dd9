// What the GPU tests share: a backend or a skip, random weights in any format, device matrices, tolerances.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/cuda.h"
#include "quant/format.h"
#include "quant/host_weight.h"
#include "quant/integer_format.h"
#include "tensor/float8.h"
#include "tensor/half.h"

namespace quintet {

/// Where models and fixtures are. `make gpu-check` runs the tests on a machine without the source tree, and says where it
/// has put them.
inline std::string source_folder() {
  const char* elsewhere = std::getenv("QUINTET_SOURCE");
  return elsewhere ? elsewhere : QUINTET_SOURCE_DIR;
}

/// Which kernels the tests run on: those that the environment's QUINTET_CUDA_PATH names (hopper, sm80), else the fastest.
inline CudaPath tested_path() {
  const char* name = std::getenv("QUINTET_CUDA_PATH");
  for (const CudaPath path : {CudaPath::hopper, CudaPath::sm80})
    if (name && cuda_path_name(path) == name) return path;
  return CudaPath::automatic;
}

/// Formats that the GPU takes: all but FP32.
inline std::vector<WeightFormat> gpu_formats() {
  std::vector<WeightFormat> formats;
  for (const FormatInfo& info : format_table())
    if (info.format != WeightFormat::f32) formats.push_back(info.format);
  return formats;
}
/// One format of each layout that the GPU has.
inline std::vector<WeightFormat> gpu_layouts() {
  using enum WeightFormat;
  return {q4_0, q4_1, int4_g64, int4_g64_asym, int4_g128, int4_g128_asym, q8_0, int8_g128_asym, int8, fp8, nf4_dq, f16, bf16,
          q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq2_xs, iq3_s};
}

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = make_cuda_backend({.path = tested_path()});
    if (!made) GTEST_SKIP() << made.error().message;
    backend_ = std::move(made).value();
  }

  /// Device memory of rows x cols, filled with bytes that are NaN in FP32 and FP16.
  struct Matrix {
    Buffer buffer;
    MatrixView view;
  };
  Matrix poisoned(int64_t rows, int64_t cols, DType type) {
    const size_t bytes = static_cast<size_t>(rows * cols) * dtype_bytes(type);
    Matrix matrix{.buffer = backend_->allocate(bytes, BufferUse::kv).value()};
    matrix.view = {.data = matrix.buffer.data(), .type = type, .rows = rows, .cols = cols, .stride = cols};
    const std::vector<uint8_t> poison(bytes, 0xff);
    EXPECT_TRUE(backend_->write(poison, matrix.view.data));
    return matrix;
  }
  Matrix upload(const std::vector<float>& values, int64_t rows, int64_t cols, DType type = DType::f32) {
    Matrix matrix = poisoned(rows, cols, type);
    if (type == DType::f32) {
      EXPECT_TRUE(backend_->write({reinterpret_cast<const uint8_t*>(values.data()), values.size() * 4}, matrix.view.data));
    } else {
      std::vector<uint16_t> halves(values.size());
      for (size_t i = 0; i < values.size(); ++i) halves[i] = f32_to_f16(values[i]);
      EXPECT_TRUE(backend_->write({reinterpret_cast<const uint8_t*>(halves.data()), halves.size() * 2}, matrix.view.data));
    }
    return matrix;
  }
  std::vector<float> download(const MatrixView& view) {
    std::vector<uint8_t> bytes(static_cast<size_t>(view.rows * view.stride) * dtype_bytes(view.type));
    const Status status = backend_->read(view.data, bytes);
    EXPECT_TRUE(status) << (status ? "" : status.error().message);
    std::vector<float> values(static_cast<size_t>(view.rows * view.stride));
    for (size_t i = 0; i < values.size(); ++i) {
      if (view.type == DType::f32) std::memcpy(&values[i], &bytes[i * 4], 4);
      else values[i] = f16_to_f32(static_cast<uint16_t>(bytes[i * 2] | bytes[i * 2 + 1] << 8));
    }
    return values;
  }

  std::vector<float> random_values(size_t count, float deviation = 1) {
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    return values;
  }

  /// Random blocks of a format with sensible scales, and what the scalar codec makes of them; `share` of the weights have outliers,
  /// and the inputs may lie in another order.
  struct RandomWeight {
    std::vector<uint8_t> bytes;
    std::vector<float> row_scales;
    std::vector<uint32_t> outlier_begin;
    std::vector<uint16_t> outlier_columns, outlier_values;
    std::vector<int32_t> in_perm;
    std::vector<float> values;  // [n, k]
    HostWeight host;
  };
  RandomWeight random_weight(WeightFormat format, int64_t n, int64_t k, const char* name = "test.weight", double share = 0, bool permuted = false) {
    const FormatInfo& info = format_info(format);
    const auto blocks = static_cast<size_t>(n * k / info.block_weights);
    RandomWeight weight;
    weight.bytes.resize(blocks * static_cast<size_t>(info.block_bytes));
    for (uint8_t& byte : weight.bytes) byte = static_cast<uint8_t>(random_());
    std::uniform_real_distribution<float> scale(0.002f, 0.05f);
    const auto put_bits = [&](size_t at, uint32_t bits) { weight.bytes[at] = static_cast<uint8_t>(bits), weight.bytes[at + 1] = static_cast<uint8_t>(bits >> 8); };
    const auto put = [&](size_t at, float value) { put_bits(at, f32_to_f16(value)); };
    const auto integers = integer_format(format);
    for (size_t block = 0; block < blocks; ++block) {
      const size_t at = block * static_cast<size_t>(info.block_bytes);
      // Scales and minima of the k-quants' groups stay random; those of the block are made so that weights are about as large
      // in every format.
      switch (format) {
        case WeightFormat::f16: put(at, scale(random_) * 4 - 0.1f); break;
        // Over eleven powers of two, zeros and numbers at the edge of what is exact among them.
        case WeightFormat::bf16: {
          const uint32_t kind = random_() % 64;
          const float sign = random_() % 2 ? -1.f : 1.f, value = sign * (0.05f + scale(random_)) * std::ldexp(1.f, -static_cast<int>(random_() % 11));
          put_bits(at, kind == 0 ? 0 : std::bit_cast<uint32_t>(kind == 1 ? value * 0x1p-20f : value) >> 16);
          break;
        }
        case WeightFormat::q5_1: put(at, scale(random_)), put(at + 2, -16 * scale(random_)); break;
        case WeightFormat::q2_k: put(at + 80, scale(random_)), put(at + 82, scale(random_)); break;
        case WeightFormat::q3_k: put(at + 108, scale(random_) / 16); break;
        case WeightFormat::q4_k: put(at, scale(random_) / 32), put(at + 2, scale(random_) / 4); break;
        case WeightFormat::q5_k: put(at, scale(random_) / 32), put(at + 2, scale(random_) / 2); break;
        case WeightFormat::q6_k: put(at + 208, scale(random_) / 64); break;
        case WeightFormat::iq4_xs: put(at, scale(random_) / 64); break;
        case WeightFormat::iq2_xxs: case WeightFormat::iq2_xs: case WeightFormat::iq2_s: put(at, scale(random_) / 8); break;
        case WeightFormat::iq3_xxs: put(at, scale(random_) / 16); break;
        case WeightFormat::iq3_s: put(at, scale(random_) / 16); break;
        case WeightFormat::int8: case WeightFormat::nf4_dq: break;
        case WeightFormat::fp8:
          for (int i = 0; i < info.block_bytes; ++i)
            if (f8_is_nan(weight.bytes[at + static_cast<size_t>(i)])) weight.bytes[at + static_cast<size_t>(i)] ^= 1;
          break;
        default:
          put(at, integers && integers->bits == 8 ? scale(random_) / 8 : scale(random_));
          if (integers && integers->minimum) put(at + 2, -scale(random_) * static_cast<float>(integers->bits == 8 ? 16 : 1 << (integers->bits - 1)));
          break;
      }
    }
    weight.host = {.name = name, .format = format, .n = n, .k = k, .bytes = weight.bytes};
    const auto bytes_of = [](const auto& values) { return std::span<const uint8_t>(reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(values[0])); };
    if (info.decode_scaled) {
      for (int64_t row = 0; row < n; ++row) weight.row_scales.push_back(scale(random_) / 128);
      weight.host.row_scales = bytes_of(weight.row_scales);
    }
    if (share > 0) {
      std::bernoulli_distribution kept(share);
      weight.outlier_begin = {0};
      for (int64_t row = 0; row < n; ++row) {
        // Some rows have none, others many.
        for (int64_t column = 0; row % 5 != 3 && column < k; ++column)
          if (kept(random_) || (row % 7 == 2 && kept(random_))) {
            weight.outlier_columns.push_back(static_cast<uint16_t>(column));
            weight.outlier_values.push_back(f32_to_f16(random_values(1)[0]));
          }
        weight.outlier_begin.push_back(static_cast<uint32_t>(weight.outlier_columns.size()));
      }
      weight.host.outliers = {.row_begin = bytes_of(weight.outlier_begin), .columns = bytes_of(weight.outlier_columns), .values = bytes_of(weight.outlier_values)};
    }
    if (permuted) {
      for (int64_t i = 0; i < k; ++i) weight.in_perm.push_back(static_cast<int32_t>(i));
      std::shuffle(weight.in_perm.begin(), weight.in_perm.end(), random_);
      weight.host.in_perm = weight.in_perm;
    }
    EXPECT_TRUE(check_side_data(weight.host));
    weight.values.resize(static_cast<size_t>(n * k));
    for (int64_t row = 0; row < n; ++row) decode_row(weight.host, row, weight.values.data() + row * k);
    return weight;
  }

  std::unique_ptr<Backend> backend_;
  std::mt19937 random_{std::random_device{}()};
};

}  // namespace quintet
