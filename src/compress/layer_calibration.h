// Runs calibration tokens through a model layer by layer: one layer's weights are in memory at a time, and those that
// are compressed already take the place of the source's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "compress/hidden_states.h"
#include "compress/observing_backend.h"
#include "model/model.h"
#include "model/weight_map.h"

namespace quintet {

/// Of the inputs of one weight; tensors that are parts of one weight (q, k and v) share it.
struct InputStatistics {
  int64_t k = 0;
  int64_t rows = 0;            ///< inputs that were seen
  std::vector<float> moments;  ///< [k] mean of x_j^2
  std::vector<float> hessian;  ///< [k, k] mean of x_i x_j; empty where not asked for, or where Setup::solver keeps it
};

/// By layer: the inputs of qkv, attn_out, gate_up and mlp_out, in this order.
inline constexpr int kLayerInputs = 4;
using LayerStatistics = std::vector<InputStatistics>;  ///< [kLayerInputs]
/// The four weights of a layer, in the order of their inputs.
std::array<Weight*, kLayerInputs> input_weights(LayerWeights& layer);

using CalibrationTokens = std::vector<std::vector<TokenId>>;

/// Rows [tokens of all sequences, table.k] of the embedding.
void embed_rows(const HostWeight& table, std::span<const std::vector<TokenId>> sequences, float scale, float* rows, int threads = 1);

/// What one pass over a layer is for.
struct PassRequest {
  bool inputs[kLayerInputs] = {};  ///< whose statistics are wanted
  bool hessians = false;
  bool advance = false;  ///< what leaves the layer becomes what enters the next
  /// The layer's passes ask for one input after the other, and then advance; weights before the one that is asked for are not
  /// replaced any more. Where the states are in the backend's memory, each pass goes on from where the one before stopped.
  bool sequential = false;
};

class LayerCalibration {
 public:
  struct Setup {
    const ModelFiles& files;
    const ModelConfig& config;
    Backend& backend;
    const CalibrationTokens& tokens;
    int threads = 0;
    WeightSolver* solver = nullptr;  ///< of the backend: passes for Hessians leave theirs there, one input at a time
    std::function<bool()> goes_on;  ///< asked after each sequence; false: stop (cancelled)
    uint64_t kept_bytes = 0;  ///< of the backend's memory, for what sequential passes go on from, beside states that are there
  };
  /// `states` has a row for each token; they enter layer `first_layer`, where that is not 0. Setup's parts must outlive it.
  static Result<std::unique_ptr<LayerCalibration>> make(const Setup& setup, HiddenStates states, int32_t first_layer);

  /// Prepares the next layer's weights as the source has them.
  Status load(int32_t layer);
  /// Tensors by name in their compressed form take the place of the source's in weight `input` of the layer. Borrowed
  /// during the call.
  Status replace(int input, const std::map<std::string, HostWeight, std::less<>>& made);
  /// Runs all sequences through the loaded layer. Statistics that were not asked for are empty.
  Result<LayerStatistics> pass(const PassRequest& request);

  /// Prepares weight `input` of the layer as the source has it.
  Status restore(int input);
  /// Rows [tokens of all sequences, hidden] of other sequences as the source's embedding has them.
  Status embed(const CalibrationTokens& sequences, float* rows) const;
  /// Runs other rows [tokens of all sequences, hidden] through the loaded layer, in place.
  Status through(const CalibrationTokens& sequences, float* rows);
  int entering() const { return states_.entering(); }
  /// HiddenStates::is_saved_or_due(), save(): between layers.
  bool is_saved_or_due() const { return states_.is_saved_or_due(); }
  Status save() { return states_.save(); }

  using LogitsSink = std::function<void(const float* logits)>;  ///< [vocabulary] of each row in turn
  /// What the model makes of rows behind its last layer. Output norm and head are prepared for it, with `made` in place of
  /// the source's head; they stay until a call with another `made`.
  Status read_out(const CalibrationTokens& sequences, const float* rows, const HostWeight* made, const LogitsSink& sink);

 private:
  LayerCalibration(const Setup& setup, HiddenStates states) : setup_(setup), states_(std::move(states)) {}
  Status prepare(const PlannedWeight& planned, std::span<const HostWeight> parts, Weight& target);
  Status prepare_head(const HostWeight* made);
  Status enter_embedding();
  void keep_inputs();
  void go_on(const PassRequest& request, ObservingOptions& options);
  std::function<uint8_t*(int64_t count)> kept_rows(int input);
  const PlannedWeight& planned_of(const Weight* target) const;

  Setup setup_;
  HiddenStates states_;
  ModelWeights planned_for_;           ///< what plan_'s targets point into; never prepared
  std::vector<PlannedWeight> plan_;
  Model one_;                          ///< a model of one layer
  int32_t layer_ = -1;
  Buffer kept_[kLayerInputs];  ///< inputs of attn_out and mlp_out of all tokens, in the backend's memory, where there is room
  /// How far sequential passes have got: what is kept is the input of this weight (1 or 3), or (2) the states are those in front of
  /// it. 0: the states are those that entered.
  int reached_ = 0;
  std::vector<std::vector<float>> vectors_;  ///< the layer's norms and biases, decoded
  std::unique_ptr<Model> head_;              ///< a model of no layers
  const HostWeight* head_made_ = nullptr;    ///< what its head is made of
};

/// Second moments (and Hessians) must be numbers: an activation that overflowed leaves none. bad_input names `source`.
Status check_statistics(const std::string& source, int32_t layer, const LayerStatistics& statistics);

struct CalibrationText {
  std::string_view text;
  bool special = false;  ///< special tokens that it writes out count as such
};

/// `samples` stretches of `length` tokens, spread evenly over the text, each with BOS where the tokenizer
/// adds one. Fewer where the text is shorter, without overlap. bad_input where it has not even one.
Result<CalibrationTokens> calibration_sequences(const Tokenizer& tokenizer, const CalibrationText& text,
                                                int64_t samples, int64_t length);

struct CalibrationRequest {
  const std::string& source;  ///< whose tokenizer cuts the text
  const ModelConfig& config;
  CalibrationText text;
  int64_t samples = 0, length = 0;
};
/// The same by a model's own tokenizer, for itself. bad_input where it has none, where it has tokens that the model does not
/// know, and where the stretches are longer than its context.
Result<CalibrationTokens> calibration_sequences(const CalibrationRequest& request);

}  // namespace quintet
