// What the GPU tests share: a backend or a skip, random weights in any format, device matrices, tolerances.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/cuda.h"
#include "quant/format.h"
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

/// Formats that the GPU takes.
inline std::vector<WeightFormat> gpu_formats() {
  return {WeightFormat::int4_g128, WeightFormat::q4_0, WeightFormat::q4_1, WeightFormat::q5_0, WeightFormat::q5_1, WeightFormat::q8_0, WeightFormat::q2_k,
          WeightFormat::q3_k, WeightFormat::q4_k, WeightFormat::q5_k, WeightFormat::q6_k, WeightFormat::iq4_nl, WeightFormat::iq4_xs, WeightFormat::f16};
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

  /// Random blocks of a format with sensible scales, and what the scalar codec makes of them.
  struct RandomWeight {
    std::vector<uint8_t> bytes;
    std::vector<float> values;  // [n, k]
    HostWeight host;
  };
  RandomWeight random_weight(WeightFormat format, int64_t n, int64_t k, const char* name = "test.weight") {
    const FormatInfo& info = format_info(format);
    const auto blocks = static_cast<size_t>(n * k / info.block_weights);
    RandomWeight weight;
    weight.bytes.resize(blocks * static_cast<size_t>(info.block_bytes));
    for (uint8_t& byte : weight.bytes) byte = static_cast<uint8_t>(random_());
    std::uniform_real_distribution<float> scale(0.002f, 0.05f);
    const auto put = [&](size_t at, float value) {
      const uint16_t bits = f32_to_f16(value);
      weight.bytes[at] = static_cast<uint8_t>(bits), weight.bytes[at + 1] = static_cast<uint8_t>(bits >> 8);
    };
    for (size_t block = 0; block < blocks; ++block) {
      const size_t at = block * static_cast<size_t>(info.block_bytes);
      if (format == WeightFormat::f16) { put(at, scale(random_) * 4 - 0.1f); continue; }
      // Scales and minima of the k-quants' groups stay random; those of the block are made so that weights are about as large
      // in every format.
      switch (format) {
        case WeightFormat::q4_1: put(at, scale(random_)), put(at + 2, -8 * scale(random_)); break;
        case WeightFormat::q5_1: put(at, scale(random_)), put(at + 2, -16 * scale(random_)); break;
        case WeightFormat::q2_k: put(at + 80, scale(random_)), put(at + 82, scale(random_)); break;
        case WeightFormat::q3_k: put(at + 108, scale(random_) / 16); break;
        case WeightFormat::q4_k: put(at, scale(random_) / 32), put(at + 2, scale(random_) / 4); break;
        case WeightFormat::q5_k: put(at, scale(random_) / 32), put(at + 2, scale(random_) / 2); break;
        case WeightFormat::q6_k: put(at + 208, scale(random_) / 64); break;
        case WeightFormat::iq4_xs: put(at, scale(random_) / 64); break;
        default: put(at, scale(random_)); break;
      }
    }
    weight.values.resize(static_cast<size_t>(n * k));
    info.decode(weight.bytes.data(), blocks, weight.values.data());
    weight.host = {.name = name, .format = format, .n = n, .k = k, .bytes = weight.bytes};
    return weight;
  }

  std::unique_ptr<Backend> backend_;
  std::mt19937 random_{std::random_device{}()};
};

}  // namespace quintet
