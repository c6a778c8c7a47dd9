// A whole model into a folder of the project's own formats, tensor by tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "compress/gguf_mix.h"
#include "compress/importance.h"
#include "quant/quantize.h"

namespace quintet {

/// direct: into a format of quantize_direct().
enum class QuantizeMethod : uint8_t { rtn, outlier, gptq, gptq_outlier, awq, gguf, direct };

/// Shares of the weights that are kept in FP16, by where a tensor stands: the first eighth of the layers, the
/// others, and embedding and head.
struct OutlierShares {
  double first = 0.0005, middle = 0.001, head = 0.002;
};

/// Tensors whose name matches get another format: one of the project's own, or f16, bf16 or f32 to stay dense.
struct FormatOverride {
  std::string pattern;  ///< '*' stands for any characters
  WeightFormat format = WeightFormat::f16;
  bool stays = false;  ///< as they are, whatever `format` says: not compressed anew into the format that they have
};

/// Whose tools read the folder (compress/exchange_sink.h).
enum class FolderLayout : uint8_t { quintet, gptq, awq };

struct QuantizeOptions {
  FolderLayout layout = FolderLayout::quintet;
  QuantizeMethod method = QuantizeMethod::outlier;
  const GgufMix* mix = nullptr;  ///< of gguf
  WeightFormat direct = WeightFormat::nf4_dq;  ///< of direct
  IntegerFormat format;
  Granularity granularity = Granularity::group;  ///< of rtn
  OutlierSelect select = OutlierSelect::activation;
  OutlierShares shares;
  /// Each tensor's share from its measured error (compress/outlier_shares.h), together as many outliers as `shares` says.
  bool auto_shares = false;
  double damping = 0.01;
  bool act_order = true;
  bool true_sequential = true;  ///< gptq: a layer's later weights see what its compressed earlier ones give
  std::vector<FormatOverride>
      overrides;                 ///< the last match counts. Embedding and head stay as they are without one
  bool chosen_formats = false;   ///< `overrides` name every linear layer (compress/choose_formats.h): `format` is no tensor's
  std::string calibration_text;  ///< for activation and gptq
  std::string calibration_origin;    ///< where it comes from, for people
  bool calibration_special = false;  ///< special tokens that it writes out count as such (chat templates were rendered)
  int64_t samples = 16, length = 512;
  /// Second moments from elsewhere, instead of calibration: of outlier and gguf alone.
  std::optional<ImportanceMatrix> importance;
  std::string save_importance;  ///< where what calibration finds is written, too; empty: nowhere
  /// Matrices of more weights are compressed some rows at a time, each part with its share of outliers: a table of a large
  /// vocabulary would take more memory than all else.
  int64_t weights_at_once = int64_t{1} << 28;
  bool plots = false;    ///< fill in TensorReport::plot
  bool restart = false;  ///< throw away what a killed command left
  int threads = 0;

  bool has_outliers() const {
    return method == QuantizeMethod::outlier || method == QuantizeMethod::gptq_outlier;
  }
  bool is_gptq() const { return method == QuantizeMethod::gptq || method == QuantizeMethod::gptq_outlier; }
  bool needs_calibration() const {
    return is_gptq() || method == QuantizeMethod::awq ||
           (!importance && ((method == QuantizeMethod::gguf && !calibration_text.empty()) ||
                            (method == QuantizeMethod::outlier && select == OutlierSelect::activation)));
  }
};

/// The weights of a compressed tensor, for a plot.
struct WeightPlot {
  int32_t layer = -1;
  float largest = 0;                ///< absolute
  std::vector<int64_t> counts;      ///< weights in equal bins from -largest to largest
  float reach = 0;                  ///< largest value that codes stand for, mean over stretches of 128
  std::vector<float> outliers;      ///< values of some of those kept apart
};

/// What became of one tensor.
struct TensorReport {
  std::string name;
  WeightFormat format = WeightFormat::f16;
  bool changed = false;  ///< false: it stayed as it was
  int64_t weights = 0;
  uint64_t bytes = 0;  ///< outliers included
  int64_t outliers = 0;
  double error = 0;  ///< OutputError::relative(): of the output, as far as inputs are uncorrelated
  std::string note;  ///< usually empty
  WeightPlot plot;   ///< empty where not asked for (QuantizeOptions::plots), or where resumed behind it
};

struct QuantizeReport {
  uint64_t source_bytes = 0, bytes = 0;
  std::vector<TensorReport> tensors;
};

struct QuantizeHooks {
  std::function<void(const TensorReport&)> on_tensor;
  std::function<void(std::string_view message)> on_warning;
  /// In bytes of the source; called during calibration, too. false: stop (cancelled).
  std::function<bool(uint64_t done, uint64_t all)> progress;
};

/// Reads `source` (a GGUF file or a Hugging Face folder) and writes `destination`, which must not exist: a folder, or with
/// method gguf a GGUF file. `backend` runs the calibration, one layer at a time: in memory are a layer's weights and,
/// of gptq, the Hessian of one of its inputs, never the model. Weights of linear layers that are no whole number of
/// groups get the largest smaller group that fits, or stay dense. With calibration the mixes of GGUF weigh by the
/// inputs' second moments.
///
/// Until it is whole the result lies in "DESTINATION.partial" (compress/work_folder.h) with its state, saved after each
/// layer: after a kill, a signal or a full disk the same command goes on there, to the same bytes. Other errors remove it,
/// unless there was something to go on with.
Result<QuantizeReport> quantize_model(const std::string& source, const std::string& destination,
                                      Backend& backend, const QuantizeOptions& options,
                                      const QuantizeHooks& hooks);

/// "gptq+outlier int4_g128 ...": what config.json says of the method.
std::string describe(const QuantizeOptions& options);

bool matches(std::string_view pattern, std::string_view name);

}  // namespace quintet
