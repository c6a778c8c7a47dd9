// Counts what is certain and gives the rest to the cache.
#include "plan/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace quintet {
namespace {

constexpr int32_t kUsualTokens = 4096;  ///< what one of many sequences is given room for
/// Left alone of the free memory: the allocator's own, a backend's scratch, and the rest of the machine.
constexpr uint64_t kSpareBytes = 64 << 20;
constexpr uint64_t kSpareFraction = 20;
constexpr int64_t kMaxKvTokens = int64_t{1} << 31;

int64_t blocks_of(int64_t tokens, const PageClass& page) { return (tokens + page.tokens - 1) / page.tokens; }

}  // namespace

std::string MemoryPlan::sum() const {
  return fmt::format("weights {} + workspace {} + KV cache {} ({} tokens of {}) = {}",
                     format_bytes(weights_bytes), format_bytes(workspace_bytes), format_bytes(kv_bytes),
                     kv_blocks * block_tokens, format_bytes(static_cast<uint64_t>(token_bytes)),
                     format_bytes(weights_bytes + workspace_bytes + kv_bytes));
}

Result<MemoryPlan> plan_memory(const MemoryQuestion& question) {
  const ModelConfig& config = question.config;
  const PageClass& page = question.page;
  const int32_t longest = config.context > 0 ? config.context : kUsualTokens;
  // A sequence is a prompt token and an answer token at least.
  if (question.context != 0 && (question.context < 2 || question.context > longest))
    return bad_input(
        fmt::format("context: found {} tokens, allowed are 2 to {} (what the model was made for)",
                    question.context, longest));
  if (question.kv_tokens < 0 || question.kv_tokens > kMaxKvTokens ||
      (question.kv_tokens > 0 && question.kv_tokens < std::max(2, question.context)))
    return bad_input(fmt::format("kv_tokens: found {}, allowed are {} to {}", question.kv_tokens,
                                 std::max(2, question.context), kMaxKvTokens));

  MemoryPlan plan{.weights_bytes = question.weights_bytes,
                  .free_bytes = question.free_bytes,
                  .block_tokens = page.tokens,
                  .token_bytes = static_cast<double>(page.bytes) / page.tokens};
  plan.context = question.context > 0 ? question.context : longest;
  if (question.kv_tokens > 0) {
    plan.kv_blocks = blocks_of(question.kv_tokens, page);
    plan.context = static_cast<int32_t>(std::min<int64_t>(plan.context, plan.kv_blocks * page.tokens));
  } else {
    const int64_t many = int64_t{question.sequences} * std::min(plan.context, kUsualTokens);
    plan.kv_blocks = blocks_of(std::clamp<int64_t>(many, plan.context, kMaxKvTokens), page);
  }
  plan.workspace_limits = {.rows = question.step_tokens + question.sequences,
                           .seqs = question.sequences,
                           .logit_rows = question.sequences,
                           .context = plan.context,
                           .unfused = question.unfused};
  plan.workspace_bytes = Workspace::bytes_needed(config, plan.workspace_limits, question.activation);
  if (question.scratch_bytes) {
    TRY_ASSIGN(const uint64_t scratch_bytes, question.scratch_bytes(step_limits(config, plan.workspace_limits)));
    plan.workspace_bytes += scratch_bytes;
  }
  plan.kv_bytes = static_cast<uint64_t>(plan.kv_blocks) * static_cast<uint64_t>(page.bytes);
  if (question.free_bytes == 0) return plan;

  const uint64_t spare_bytes = std::max(kSpareBytes, question.free_bytes / kSpareFraction);
  const uint64_t taken_bytes =
      spare_bytes + plan.workspace_bytes + (question.weights_are_loaded ? 0 : question.weights_bytes);
  const uint64_t room_bytes = question.free_bytes > taken_bytes ? question.free_bytes - taken_bytes : 0;
  const int64_t room_blocks = static_cast<int64_t>(room_bytes / static_cast<uint64_t>(page.bytes));
  // What was asked for by number is given or refused; what was left to choose shrinks.
  const int64_t least_tokens = question.kv_tokens > 0 ? question.kv_tokens
                               : question.context > 0 ? question.context
                                                      : std::min(longest, 2 * page.tokens);
  if (room_blocks < blocks_of(least_tokens, page)) {
    plan.kv_blocks = blocks_of(least_tokens, page);
    plan.kv_bytes = static_cast<uint64_t>(plan.kv_blocks) * static_cast<uint64_t>(page.bytes);
    return no_room(fmt::format("the model does not fit: {}; free are {}{}, of which {} stay spare",
                               plan.sum(), format_bytes(question.free_bytes),
                               question.weights_are_loaded ? " beside the weights" : "",
                               format_bytes(spare_bytes)));
  }
  if (plan.kv_blocks > room_blocks) {
    plan.kv_blocks = room_blocks;
    plan.kv_bytes = static_cast<uint64_t>(plan.kv_blocks) * static_cast<uint64_t>(page.bytes);
    plan.context = static_cast<int32_t>(std::min<int64_t>(plan.context, plan.kv_blocks * page.tokens));
    plan.workspace_limits.context = plan.context;
  }
  return plan;
}

}  // namespace quintet
