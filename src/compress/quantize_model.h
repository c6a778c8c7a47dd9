// A whole model into a folder of the project's own formats, tensor by tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "compress/gguf_mix.h"
#include "quant/quantize.h"

namespace quintet {

enum class QuantizeMethod : uint8_t { rtn, outlier, gptq, gptq_outlier, gguf };

/// Shares of the weights that are kept in FP16, by where a tensor stands: the first eighth of the layers, the
/// others, and embedding and head.
struct OutlierShares {
  double first = 0.0005, middle = 0.001, head = 0.002;
};

/// Tensors whose name matches get another format: one of the project's integer formats, or f16, bf16 or f32
/// to stay dense.
struct FormatOverride {
  std::string pattern;  ///< '*' stands for any characters
  WeightFormat format = WeightFormat::f16;
};

struct QuantizeOptions {
  QuantizeMethod method = QuantizeMethod::outlier;
  const GgufMix* mix = nullptr;  ///< of gguf
  IntegerFormat format;
  Granularity granularity = Granularity::group;  ///< of rtn
  OutlierSelect select = OutlierSelect::activation;
  OutlierShares shares;
  double damping = 0.01;
  bool act_order = true;
  std::vector<FormatOverride>
      overrides;                 ///< the last match counts. Embedding and head stay as they are without one
  std::string calibration_text;  ///< for activation and gptq
  int64_t samples = 16, length = 512;
  int threads = 0;

  bool has_outliers() const {
    return method == QuantizeMethod::outlier || method == QuantizeMethod::gptq_outlier;
  }
  bool is_gptq() const { return method == QuantizeMethod::gptq || method == QuantizeMethod::gptq_outlier; }
  bool needs_calibration() const {
    return is_gptq() || (method == QuantizeMethod::gguf && !calibration_text.empty()) ||
           (method == QuantizeMethod::outlier && select == OutlierSelect::activation);
  }
};

/// What became of one tensor.
struct TensorReport {
  std::string name;
  WeightFormat format = WeightFormat::f16;
  bool changed = false;  ///< false: it stayed as it was
  int64_t weights = 0;
  uint64_t bytes = 0;  ///< outliers included
  int64_t outliers = 0;
  double error = 0;  ///< relative_error(): of the output, as far as inputs are uncorrelated
  std::string note;  ///< usually empty
};

struct QuantizeReport {
  uint64_t source_bytes = 0, bytes = 0;
  std::vector<TensorReport> tensors;
};

struct QuantizeHooks {
  std::function<void(const TensorReport&)> on_tensor;
  std::function<void(std::string_view message)> on_warning;
  /// `stage` is "calibrate" or "quantize"; in tokens or bytes. false: stop (cancelled).
  std::function<bool(std::string_view stage, uint64_t done, uint64_t all)> progress;
};

/// Reads `source` (a GGUF file or a Hugging Face folder) and writes `destination`, which must not exist: a
/// folder, or with method gguf a GGUF file; under another name first, which is removed on failure. `backend`
/// runs the calibration; without one only a tensor at a time is in memory. Weights of linear layers that are
/// no whole number of groups get the largest smaller group that fits, or stay dense. With calibration the
/// mixes of GGUF weigh by the inputs' second moments.
Result<QuantizeReport> quantize_model(const std::string& source, const std::string& destination,
                                      Backend& backend, const QuantizeOptions& options,
                                      const QuantizeHooks& hooks);

/// "gptq+outlier int4_g128 ...": what config.json says of the method.
std::string describe(const QuantizeOptions& options);

bool matches(std::string_view pattern, std::string_view name);

}  // namespace quintet
