// One tensor of a model after the other into its new format.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "backend/weight_solver.h"
#include "base/result.h"
#include "compress/model_to_quantize.h"
#include "compress/outlier_shares.h"
#include "compress/second_moments.h"
#include "quant/quantize.h"

namespace quintet {

struct RoundedTensor {
  QuantizedMatrix matrix;
  double error = 0;  ///< OutputError::relative()
  WeightPlot plot;   ///< where the options ask for it
};

/// Rounds by the method of the options. Beside the result, rows are in memory as floats: a few for each thread where no row's
/// codes depend on others', else options.weights_at_once weights. One thread calls, but for give_back(), and the work is spread
/// over options.threads.
class TensorRounder {
 public:
  /// `solver`: of gptq, where the backend has one, else null. `shares` and `layer` are read when a tensor is rounded; all must
  /// outlive the object.
  TensorRounder(const ModelToQuantize& model, const TensorShares& shares, LayerInputs& layer, WeightSolver* solver)
      : model_(model), moments_(model), shares_(shares), layer_(layer), solver_(solver) {}

  /// Whatever task.changed says: what scales are folded into is rounded, too. bad_input, named by tensor and row, of values
  /// that its format cannot have.
  Result<RoundedTensor> round(const TensorTask& task);

  /// gptq: the Hessian of an input of the layer is summed up, in its statistics or by the solver; tensors that read it come next.
  /// It is factored with the first of them.
  void begin_input() { on_device_ = solver_ ? OnDevice::hessian : OnDevice::nothing; }
  void end_input() {
    gptq_.reset();
    on_device_ = OnDevice::nothing;
  }

  /// Of a tensor that is written: memory that is there already. Any thread.
  void give_back(std::vector<uint8_t> blocks);

 private:
  struct Stretch;
  static void decode_rows(const Stretch& part, int64_t first, int64_t count, float* values);
  void fold_rows(const Stretch& part, int64_t first, int64_t count, float* values) const;
  static MatrixToQuantize matrix_of(const Stretch& part, int64_t first, int64_t count, const float* values, int threads);
  bool rows_stand_alone(const TensorTask& task) const;
  std::vector<uint8_t> spare_blocks(size_t bytes);
  Status round_at_once(const Stretch& part, RoundedTensor& made, OutputError& error);
  Status round_by_rows(const Stretch& part, RoundedTensor& made, OutputError& error);
  Status prepare_for_gptq(const TensorTask& task);
  Result<QuantizedMatrix> round(const MatrixToQuantize& matrix, const TensorTask& task) const;

  ModelToQuantize model_;
  SecondMoments moments_;
  const TensorShares& shares_;
  LayerInputs& layer_;
  WeightSolver* solver_;
  std::optional<GptqInputs> gptq_;  ///< of the input that is worked on
  enum class OnDevice : uint8_t { nothing, hessian, factor };
  OnDevice on_device_ = OnDevice::nothing;  ///< what solver_ holds of it

  std::unique_ptr<float[]> values_;  ///< of round_at_once(): memory that is there already
  int64_t values_size_ = 0;
  std::mutex spare_mutex_;
  std::vector<uint8_t> spare_blocks_;
};

}  // namespace quintet
