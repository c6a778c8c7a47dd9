// Bounds of every field of a request.
#include "engine/request_check.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "engine/batch_builder.h"
#include "sampling/params.h"

namespace quintet {
namespace {

constexpr size_t kMaxStopIds = 1024;
constexpr size_t kMaxSaltBytes = 1024;
constexpr float kMaxBiasValue = 1e4f;  // far beyond any logit, small enough that sums stay finite

Status check_token(std::string_view field, size_t index, TokenId token, int32_t vocabulary) {
  if (token >= 0 && token < vocabulary) return {};
  return bad_input(
      fmt::format("{}[{}]: found token {}, allowed are 0 to {}", field, index, token, vocabulary - 1));
}

Status check_tokens(std::string_view field, const std::vector<TokenId>& tokens, int32_t vocabulary) {
  for (size_t i = 0; i < tokens.size(); ++i) TRY(check_token(field, i, tokens[i], vocabulary));
  return {};
}

}  // namespace

Status check_request(const Request& request, const EngineLimits& limits, int32_t vocabulary) {
  const size_t context = static_cast<size_t>(limits.context);
  if (request.prompt.empty() || request.prompt.size() >= context)
    return bad_input(
        fmt::format("prompt: found {} tokens, allowed are 1 to {} (a context of {} with room for an answer)",
                    request.prompt.size(), context - 1, context));
  if (request.generated.size() > context - request.prompt.size())
    return bad_input(fmt::format("generated: found {} tokens, allowed are at most {} after a prompt of {}",
                                 request.generated.size(), context - request.prompt.size(),
                                 request.prompt.size()));
  if (request.max_new_tokens < 0)
    return bad_input(
        fmt::format("max_new_tokens: found {}, allowed are 0 (no limit) and more", request.max_new_tokens));
  if (request.max_new_tokens > 0 && request.generated.size() > static_cast<size_t>(request.max_new_tokens))
    return bad_input(fmt::format("generated: found {} tokens, allowed are at most max_new_tokens, {}",
                                 request.generated.size(), request.max_new_tokens));
  TRY(check_tokens("prompt", request.prompt, vocabulary));
  TRY(check_tokens("generated", request.generated, vocabulary));
  if (request.stop_ids.size() > kMaxStopIds)
    return bad_input(
        fmt::format("stop_ids: found {}, allowed are at most {}", request.stop_ids.size(), kMaxStopIds));
  TRY(check_tokens("stop_ids", request.stop_ids, vocabulary));
  if (request.salt.size() > kMaxSaltBytes)
    return bad_input(
        fmt::format("salt: found {} bytes, allowed are at most {}", request.salt.size(), kMaxSaltBytes));
  if (request.arrival_us < 0)
    return bad_input(fmt::format("arrival_us: found {}, allowed are 0 (now) and more", request.arrival_us));
  if (request.penalty_window < -1)
    return bad_input(fmt::format("penalty_window: found {}, allowed are -1 (all tokens) and more",
                                 request.penalty_window));
  if (request.bias.size() > kMaxBias)
    return bad_input(
        fmt::format("bias: found {} entries, allowed are at most {}", request.bias.size(), kMaxBias));
  for (size_t i = 0; i < request.bias.size(); ++i) {
    TRY(check_token("bias", i, request.bias[i].token, vocabulary));
    if (!(std::fabs(request.bias[i].value) <= kMaxBiasValue))
      return bad_input(fmt::format("bias[{}]: found {:g}, allowed are {:g} to {:g}", i, request.bias[i].value,
                                   -kMaxBiasValue, kMaxBiasValue));
  }
  return check_sampling(request.sampling);
}

}  // namespace quintet
