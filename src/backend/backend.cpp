// What backends without devices of their own have in common.
#include "backend/backend.h"

namespace quintet {

Result<uint64_t> Backend::packed_bytes(WeightRole, std::span<const HostWeight> parts) const {
  uint64_t bytes = 0;
  for (const HostWeight& part : parts) bytes += static_cast<uint64_t>(part.n * part.row_bytes());
  return bytes;
}

Result<uint64_t> Backend::scratch_bytes(const StepLimits&) const { return uint64_t{0}; }

Status Backend::prepare_steps(const IssueStep&, int32_t) { return {}; }

Status Backend::run(const StepInputs& inputs, const IssueStep& issue) {
  TRY_ASSIGN(const StepView step, stage(inputs));
  issue(step);
  return {};
}

// Where run() is the step, everything is there when it returns.
Status Backend::post(const Sampled* sampled, std::span<Sampled> out, int) { return finish(sampled, out); }

Status Backend::await(int) { return {}; }

Result<std::unique_ptr<WeightSolver>> Backend::make_weight_solver() { return std::unique_ptr<WeightSolver>(); }

}  // namespace quintet
