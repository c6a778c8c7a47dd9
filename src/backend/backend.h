// A device and its memory, as the parts above see it. Implementations: reference/, cpu/, cuda/.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/memory.h"
#include "backend/numerics.h"
#include "backend/ops.h"
#include "backend/step_view.h"
#include "backend/weight.h"
#include "backend/weight_solver.h"
#include "base/result.h"

namespace quintet {

struct BackendInfo {
  std::string name;          ///< "reference", "cpu", "cuda:0"
  std::string description;   ///< for people: "AVX-512 VNNI, 2 threads"
  DType activation = DType::f32;  ///< type of qkv, attention output and MLP activations
  DType kv = DType::f32;          ///< element type of page class 0
  bool asynchronous = false;      ///< run() returns before the step is done, so that a second one can be issued behind it
  uint64_t total_bytes = 0;  ///< memory of the device
  uint64_t free_bytes = 0;   ///< as read now
};

/// The most that any step will ask for; a backend sizes its private scratch from it.
struct StepLimits {
  int32_t rows = 0;
  int32_t seqs = 0;
  int32_t logit_rows = 0;
  int32_t context = 0;     ///< tokens of one sequence
  int32_t hidden = 0;
  int32_t max_k = 0;       ///< longest input of a linear
  int32_t max_n = 0;       ///< longest output of a linear, the head apart
  int32_t vocabulary = 0;
  int32_t max_heads = 0;
  int32_t max_head_dim = 0;
  bool unfused = false;    ///< steps may take LinearArgs::dequantize_first

  bool operator==(const StepLimits&) const = default;
};

/// A step's inputs as the batch builder wrote them, in host memory (allocated as BufferUse::staging).
struct StepInputs {
  StepView view;   ///< pointers into `bytes`
  std::span<const uint8_t> bytes;
};

/// Calls the operations that make up a step, on Backend::ops(), and does nothing else: steps of the same rows, sequences
/// and logit rows, whatever their numbers, make the same calls.
using IssueStep = std::function<void(const StepView& step)>;

/// Not thread-safe: one thread owns a backend (prepare may use the backend's own threads inside).
class Backend {
 public:
  virtual ~Backend() = default;

  virtual BackendInfo info() const = 0;
  virtual Numerics numerics() const = 0;
  virtual Ops& ops() = 0;

  /// Memory of the device (BufferUse::staging: of the host). no_room names the bytes asked for and what is free.
  virtual Result<Buffer> allocate(size_t bytes, BufferUse use) = 0;

  /// Bytes that prepare() would take for these parts, without reading them; bad_input, naming the tensor, where this
  /// backend has no kernels for their format or shape.
  virtual Result<uint64_t> packed_bytes(WeightRole role, std::span<const HostWeight> parts) const;

  /// Bytes that reserve() would take; bad_input, naming what was found and what is allowed, where the operations do not
  /// take a model of this geometry.
  virtual Result<uint64_t> scratch_bytes(const StepLimits& limits) const;

  /// Lays weights out for this backend's products: reads the mapped bytes once. The parts share k and are stacked along
  /// n. Values that cannot be (NaN or Inf scales) are bad_input, named by tensor.
  virtual Result<Weight> prepare(WeightRole role, std::span<const HostWeight> parts) = 0;

  /// Decodes rows [first, first + count) of a prepared weight, in logical order, into out [count, k]: equal to the
  /// scalar codec's decode bit for bit. For tests and tools.
  virtual Status unpack(const Weight& weight, int64_t first, int64_t count, float* out) = 0;

  /// The page class 0 of this backend for a model of this geometry.
  virtual PageClass page_class(int32_t layers, int32_t kv_heads, int32_t head_dim, int32_t tokens) const = 0;

  /// Sizes private scratch. After the weights, before the first step; a further call, with no step under way and none
  /// prepared, sizes it anew.
  virtual Status reserve(const StepLimits& limits) = 0;

  /// Makes the inputs readable by the device; the returned view is valid until the next call. Inputs may be reused once
  /// the step has finished.
  virtual Result<StepView> stage(const StepInputs& inputs) = 0;

  /// Makes ready what run() replays: decode steps (one row a sequence), short prompts, where the backend can. Once,
  /// after reserve(), before the first step: no step allocates. `block_tokens` as in page_class().
  virtual Status prepare_steps(const IssueStep& issue, int32_t block_tokens);

  /// Stages the inputs and issues a step: by calling `issue`, or by replaying what prepare_steps() recorded of it, which
  /// gives the same bits.
  virtual Status run(const StepInputs& inputs, const IssueStep& issue);

  /// Orders the copy of a step's results into `out` (BufferUse::staging) behind the work issued so far, and before what is
  /// issued next. `turn` (0 or 1) names it to await(), which waits for it and reports a latched device error. So one step
  /// can be waited for while the next one runs.
  virtual Status post(const Sampled* sampled, std::span<Sampled> out, int turn);
  virtual Status await(int turn);

  /// Waits for all work issued so far, copies the results of the last step, and reports a latched device error.
  virtual Status finish(const Sampled* sampled, std::span<Sampled> out) = 0;

  /// Copies device memory to the host or within the device, ordered after the work issued so far. `read` waits.
  virtual Status read(const void* device, std::span<uint8_t> out) = 0;
  virtual Status write(std::span<const uint8_t> bytes, void* device) = 0;

  /// GPTQ on the device. Null: this backend has none, and the CPU does it; not_found, saying why, where it would have one on
  /// another machine.
  virtual Result<std::unique_ptr<WeightSolver>> make_weight_solver();
};

}  // namespace quintet
