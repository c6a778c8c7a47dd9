// Times steps of chosen rows and contexts as the engine's loop makes them: batch builder, executor, sampled ids into the
// next step. No requests and no scheduler, so that a context of 32768 tokens costs no prompt of that length: the cache is
// filled with random keys and values instead.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/model_executor.h"

namespace quintet {

/// One kind of step.
struct StepWork {
  enum class Kind : uint8_t { decode, prompt, attention };
  Kind kind = Kind::decode;
  int32_t rows = 1;     ///< sequences; of a prompt: its tokens
  int32_t context = 0;  ///< tokens in the cache before the first step; of a prompt: 0
  bool unfused = false;  ///< decode and prompt: through UnfusedOps
};

struct StepTime {
  double ms = 0;           ///< of a step
  double extra_bytes = 0;  ///< that an unfused one moves beyond what a fused one does (UnfusedOps::extra_bytes)
};

/// Tokens of cache that a work takes when it runs `steps` steps.
int64_t cache_tokens(const StepWork& work, int32_t steps);

class StepBench {
 public:
  struct Options {
    WorkspaceLimits limits;  ///< the largest of every work, steps included
    PageClass page;
    int64_t pages = 0;
  };
  /// Takes the memory and fills the cache. Backend and model must outlive it.
  static Result<std::unique_ptr<StepBench>> make(Backend& backend, const Model& model, const Options& options);

  /// Mean milliseconds of a step of `steps` consecutive ones (decode, and attention alone, summed over the layers), or of
  /// one whole prompt: the median of three.
  Result<StepTime> run(const StepWork& work, int32_t steps);

 private:
  StepBench(Backend& backend, const Model& model, const Options& options, ModelExecutor executor, BatchBuilder::Staging staging);
  Status allocate_qkv();
  Status fill_cache();
  Result<double> time(const StepWork& work, int32_t steps);
  Result<double> decode(const StepWork& work, int32_t steps);
  Result<double> prompt(const StepWork& work);
  Result<double> attention(const StepWork& work, int32_t steps);
  /// `count` sequences of `tokens` random known tokens, with blocks for `room` tokens each.
  std::vector<Sequence> sequences(int32_t count, int32_t tokens, int32_t room) const;
  AttentionSpec attention_spec(int32_t layer) const;
  Status launch(const std::vector<Sequence>& sequences, int32_t first, int32_t tokens);
  /// Waits for the step launched first, and appends the sampled ids.
  Status wait(std::vector<Sequence>& sequences);

  Backend& backend_;
  const Model& model_;
  Options options_;
  ModelExecutor executor_;
  BatchBuilder builder_;
  Residency residency_;
  Buffer qkv_, attention_out_;
  int32_t qkv_rows_ = 0;
  int64_t launched_ = 0;  ///< steps
  std::vector<BatchItem> items_;
  std::vector<Sampled> sampled_;
  std::vector<Alternative> alternatives_;
};

}  // namespace quintet
