// Reads what tools/make_golden.py wrote, and measures distances to it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "io/safetensors.h"
#include "model/config_reader.h"
#include "model/loader.h"
#include "model/single_sequence.h"

namespace quintet::testing {

inline const std::string kData = std::string(QUINTET_SOURCE_DIR) + "/tests/golden/data";
inline const std::string kModels = std::string(QUINTET_SOURCE_DIR) + "/models";

/// One file of fixtures.
class Fixture {
 public:
  explicit Fixture(const std::string& path) {
    Result<SafetensorsFile> file = SafetensorsFile::open(path);
    QUINTET_CHECK(file.has_value(), "{}", file.error().message);
    file_ = std::make_unique<SafetensorsFile>(std::move(file).value());
  }

  template <class T>
  std::vector<T> values(std::string_view name) const {
    const SafeTensor* tensor = file_->find(name);
    QUINTET_CHECK(tensor, "{}: no tensor '{}'", file_->path(), name);
    QUINTET_CHECK(tensor->dtype == (std::is_same_v<T, float> ? "F32" : "I32"), "{}: '{}' is {}",
                  file_->path(), name, tensor->dtype);
    std::vector<T> out(tensor->bytes.size() / sizeof(T));
    std::memcpy(out.data(), tensor->bytes.data(), tensor->bytes.size());
    return out;
  }

 private:
  std::unique_ptr<SafetensorsFile> file_;
};

/// Opens a model without its text parts, which the tiny ones mostly lack; `context` as in LoadOptions.
inline std::unique_ptr<Model> load_network(const std::string& path, Backend& backend, int32_t context = 0) {
  Result<ModelFiles> files = ModelFiles::open(path);
  QUINTET_CHECK(files.has_value(), "{}", files.error().message);
  auto model = std::make_unique<Model>();
  Result<ModelConfig> config = read_config(*files, context);
  QUINTET_CHECK(config.has_value(), "{}", config.error().message);
  model->config = std::move(config).value();
  auto source = std::make_shared<WeightSource>(WeightSource{std::move(files).value(), {}});
  Result<ModelWeights> weights = load_weights(*source, model->config, backend, {});
  QUINTET_CHECK(weights.has_value(), "{}", weights.error().message);
  model->weights = std::move(weights).value();
  model->files = source;
  return model;
}

/// How far a backend's logits may lie from the fixture's. `noise` is how far the network in FP32 is from
/// itself in FP64: what its conditioning makes of roundings of 2^-24, and of their adding up over a product.
///
/// FP32 activations and cache: the same in another order. Four times, since it is the largest of many
/// differences. An FP16 cache: roundings 2^13 times as coarse, but one for each number where FP32 has sqrt(k)
/// >= 5 of them, in each of a layer's seven products. Measured, it comes to 60 (SmolLM2) to 560 (a tiny
/// model) times the noise; 2^13 / 8 are allowed. 16-bit activations are 32 times finer than that and vanish
/// beside it.
inline double tolerance(double noise, const BackendInfo& info) {
  QUINTET_CHECK(info.activation == DType::f32, "activations of type {}", dtype_name(info.activation));
  if (info.kv == DType::f32) return 4 * noise;
  QUINTET_CHECK(info.kv == DType::f16, "a cache of type {}", dtype_name(info.kv));
  return noise * (0x1p-11 / 0x1p-24) / 8;
}

}  // namespace quintet::testing
