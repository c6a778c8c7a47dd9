// Marks, renders, unmarks, encodes.
#include "server/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

/// Bytes of the UTF-8 character that begins with `lead`.
size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// One of Unicode's noncharacters U+FDD0 to U+FDEF, which are for a program's own use, that no text given
/// contains.
std::string unused_mark(const ConversationInput& input) {
  for (unsigned low = 0x90; low <= 0xAF; ++low) {
    const std::string mark = {'\xEF', '\xB7', static_cast<char>(low)};
    if (input.messages_json.find(mark) == std::string::npos &&
        input.tools_json.find(mark) == std::string::npos && input.extra_json.find(mark) == std::string::npos)
      return mark;
  }
  return {};
}

/// Takes the marks out of a rendered text. Each stands behind the first character of what only looks special.
std::vector<size_t> unmark(std::string& text, std::string_view mark) {
  std::vector<size_t> places;
  size_t from = text.find(mark);
  if (from == std::string::npos) return places;
  std::string clean = text.substr(0, from);
  while (from != std::string::npos) {
    // Where the template cut that character off, the mark may stand at the very beginning: then it means
    // nothing.
    if (!clean.empty()) {
      size_t begin = clean.size();
      while (begin > 0 && (static_cast<unsigned char>(clean[--begin]) & 0xC0) == 0x80) {
      }
      if (places.empty() || places.back() < begin) places.push_back(begin);
    }
    const size_t next = text.find(mark, from + mark.size());
    clean += std::string_view(text).substr(from + mark.size(),
                                           next == std::string::npos ? next : next - from - mark.size());
    from = next;
  }
  text = std::move(clean);
  return places;
}

std::string token_text_of(const Tokenizer& tokenizer, const std::optional<TokenId>& token) {
  return token ? std::string(tokenizer.token_text(*token)) : std::string();
}

}  // namespace

PromptBuilder::PromptBuilder(const Model& model) : model_(model) {
  for (TokenId id = 0; id < model.tokenizer->vocabulary(); ++id)
    if (model.tokenizer->is_special(id) && !model.tokenizer->token_text(id).empty())
      specials_.emplace_back(model.tokenizer->token_text(id));
  std::sort(specials_.begin(), specials_.end());
}

bool PromptBuilder::special_begins(std::string_view text) const {
  // Narrows the sorted list by one byte at a time.
  auto low = specials_.begin(), high = specials_.end();
  for (size_t at = 0; at < text.size() && low != high; ++at) {
    const auto byte_at = [at](const std::string& special) { return static_cast<unsigned char>(special[at]); };
    const auto wanted = static_cast<unsigned char>(text[at]);
    low = std::partition_point(low, high,
                               [&](const std::string& special) { return byte_at(special) < wanted; });
    high = std::partition_point(low, high,
                                [&](const std::string& special) { return byte_at(special) <= wanted; });
    if (low != high && low->size() == at + 1) return true;
  }
  return false;
}

std::string PromptBuilder::mark(std::string_view text, std::string_view mark) const {
  std::string marked;
  for (size_t at = 0; at < text.size();) {
    const size_t step = std::min(character_bytes(text[at]), text.size() - at);
    marked += text.substr(at, step);
    if (special_begins(text.substr(at))) marked += mark;
    at += step;
  }
  return marked;
}

Result<std::vector<TokenId>> PromptBuilder::conversation(const ConversationInput& input) const {
  if (!model_.chat_template && !model_.chat_template_error.empty())
    return bad_input("The model's chat template cannot be used: " + model_.chat_template_error);
  if (!model_.chat_template)
    return bad_input(
        "The model has no chat template; use /v1/completions, or start the server with --chat-template "
        "FILE.");
  const std::string mark = unused_mark(input);
  if (mark.empty())
    return bad_input(
        "messages: found all of the noncharacters U+FDD0 to U+FDEF, allowed is to leave one unused");

  Json messages = Json::parse(input.messages_json, nullptr, false);
  if (!messages.is_array()) return bad_input("messages: found no JSON list, allowed is a list of messages");
  for (Json& message : messages)
    for (const char* name : {"content", "reasoning_content", "name"})
      if (const auto found = message.find(name); found != message.end() && found->is_string())
        *found = this->mark(found->get_ref<const std::string&>(), mark);

  const Tokenizer& tokenizer = *model_.tokenizer;
  using namespace std::chrono;
  TemplateInput render;
  render.messages_json = messages.dump();
  render.tools_json = input.tools_json;
  render.extra_json = input.extra_json;
  render.bos_token = token_text_of(tokenizer, tokenizer.spec().bos);
  render.eos_token = token_text_of(tokenizer, tokenizer.spec().eos);
  render.now_unix_s = duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
  TRY_ASSIGN(std::string text, model_.chat_template->render(render));

  EncodeOptions options;
  options.parse_special = true;
  options.not_special_at = unmark(text, mark);
  // Many templates write the BOS token themselves: never two.
  options.add_bos = render.bos_token.empty() || !text.starts_with(render.bos_token);
  return tokenizer.encode(text, options);
}

std::vector<TokenId> PromptBuilder::raw(std::string_view text) const {
  EncodeOptions options;
  options.parse_special = true;
  const std::string bos = token_text_of(*model_.tokenizer, model_.tokenizer->spec().bos);
  options.add_bos = bos.empty() || !text.starts_with(bos);
  return model_.tokenizer->encode(text, options);
}

}  // namespace quintet
