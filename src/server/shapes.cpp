// Writes answers in the order of members that OpenAI documents.
#include "server/shapes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

/// Tokens may hold half a character: what JSON cannot carry becomes U+FFFD.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

const char* object_name(Endpoint endpoint, bool chunk) {
  if (endpoint == Endpoint::completions) return "text_completion";
  return chunk ? "chat.completion.chunk" : "chat.completion";
}

Json head_json(const AnswerHead& head, bool chunk) {
  return {{"id", head.id},
          {"object", object_name(head.endpoint, chunk)},
          {"created", head.created_unix_s},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint}};
}

Json finish_json(FinishReason finish) {
  if (finish == FinishReason::none) return nullptr;
  return finish == FinishReason::length ? "length" : "stop";
}

/// JSON has no infinities; OpenAI writes -9999 for a token that is next to impossible. A certain one is 0,
/// not -0.
double finite(float logprob) { return std::max(logprob, -9999.0f) + 0.0; }

Json entry_json(const TokenLogprob::Entry& entry) {
  Json bytes = Json::array();
  for (const char byte : entry.bytes) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", entry.bytes}, {"logprob", finite(entry.logprob)}, {"bytes", std::move(bytes)}};
}

Json chat_logprobs_json(const AnswerPiece& piece) {
  if (!piece.with_logprobs) return nullptr;
  Json content = Json::array();
  for (const TokenLogprob& token : piece.logprobs) {
    Json item = entry_json(token.chosen);
    Json alternatives = Json::array();
    for (const auto& entry : token.alternatives) alternatives.push_back(entry_json(entry));
    item["top_logprobs"] = std::move(alternatives);
    content.push_back(std::move(item));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs_json(const AnswerPiece& piece) {
  if (!piece.with_logprobs) return nullptr;
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const TokenLogprob& token : piece.logprobs) {
    tokens.push_back(token.chosen.bytes);
    logprobs.push_back(finite(token.chosen.logprob));
    offsets.push_back(token.text_offset);
    Json top = Json::object();
    for (const auto& entry : token.alternatives) top[entry.bytes] = finite(entry.logprob);
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", static_cast<int64_t>(usage.prompt_tokens) + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json completion_choice(const AnswerPiece& piece) {
  return {{"index", 0},
          {"text", piece.text},
          {"logprobs", completion_logprobs_json(piece)},
          {"finish_reason", finish_json(piece.finish)}};
}

Json chat_chunk_choice(const AnswerPiece& piece) {
  Json delta = Json::object();
  if (piece.first) delta["role"] = "assistant";
  if (piece.first || !piece.text.empty()) delta["content"] = piece.text;
  Json choice = {{"index", 0}, {"delta", std::move(delta)}};
  choice["logprobs"] = piece.logprobs.empty() ? Json(nullptr) : chat_logprobs_json(piece);
  choice["finish_reason"] = finish_json(piece.finish);
  return choice;
}

}  // namespace

std::string chunk_json(const AnswerHead& head, const AnswerPiece& piece, bool usage_follows) {
  Json json = head_json(head, true);
  json["choices"] = Json::array();
  json["choices"].push_back(head.endpoint == Endpoint::chat ? chat_chunk_choice(piece)
                                                            : completion_choice(piece));
  if (usage_follows) json["usage"] = nullptr;
  return dump(json);
}

std::string usage_chunk_json(const AnswerHead& head, const Usage& usage) {
  Json json = head_json(head, true);
  json["choices"] = Json::array();
  json["usage"] = usage_json(usage);
  return dump(json);
}

std::string answer_json(const AnswerHead& head, const AnswerPiece& piece, const Usage& usage) {
  Json json = head_json(head, false);
  Json choice = completion_choice(piece);
  if (head.endpoint == Endpoint::chat)
    choice = {{"index", 0},
              {"message", {{"role", "assistant"}, {"content", piece.text}, {"refusal", nullptr}}},
              {"logprobs", chat_logprobs_json(piece)},
              {"finish_reason", finish_json(piece.finish)}};
  json["choices"] = Json::array();
  json["choices"].push_back(std::move(choice));
  json["usage"] = usage_json(usage);
  return dump(json);
}

std::string model_json(const ModelCard& card) {
  return dump(Json{{"id", card.id},
                   {"object", "model"},
                   {"created", card.created_unix_s},
                   {"owned_by", "quintet"},
                   {"context_window", card.context_tokens}});
}

std::string model_list_json(const ModelCard& card) {
  return "{\"object\":\"list\",\"data\":[" + model_json(card) + "]}";
}

}  // namespace quintet
