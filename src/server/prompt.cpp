// Marks, renders, unmarks, encodes.
#include "server/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace quintet {
namespace {

/// Bytes of the UTF-8 character that begins with `lead`.
size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// One of Unicode's noncharacters U+FDD0 to U+FDEF, which are for a program's own use.
struct Mark {
  std::string text;     ///< in UTF-8
  std::string escaped;  ///< what tojson(ensure_ascii=true) makes of it
};

constexpr unsigned kFirstMark = 0xFDD0, kMarks = 32;

/// A mark that no text given contains, neither as it is nor as an escape; none where all are there.
std::optional<Mark> unused_mark(const ConversationInput& input) {
  std::array<bool, kMarks> used{};
  for (const std::string_view json :
       {std::string_view(input.messages_json), std::string_view(input.tools_json),
        std::string_view(input.extra_json)}) {
    constexpr size_t kNone = std::string_view::npos;
    for (size_t at = json.find("\xEF\xB7"); at != kNone && at + 2 < json.size();
         at = json.find("\xEF\xB7", at + 2))
      if (const unsigned index = static_cast<unsigned char>(json[at + 2]) - 0x90u; index < kMarks)
        used[index] = true;
    for (size_t at = json.find("\\u"); at != kNone && at + 6 <= json.size(); at = json.find("\\u", at + 2)) {
      unsigned code = 0;
      std::from_chars(json.data() + at + 2, json.data() + at + 6, code, 16);
      if (code - kFirstMark < kMarks) used[code - kFirstMark] = true;
    }
  }
  const auto free = std::find(used.begin(), used.end(), false);
  if (free == used.end()) return std::nullopt;
  const auto index = static_cast<unsigned>(free - used.begin());
  return Mark{{'\xEF', '\xB7', static_cast<char>(0x90 + index)},
              fmt::format("\\u{:04x}", kFirstMark + index)};
}

/// Takes the marks, in both forms, out of a rendered text. Each stands behind the first character of what
/// only looks special.
std::vector<size_t> unmark(std::string& text, const Mark& mark) {
  std::vector<size_t> places;
  std::string clean;
  size_t plain = text.find(mark.text), escaped = text.find(mark.escaped), taken = 0;
  while (plain != escaped) {  // both npos: there are no more
    const size_t from = std::min(plain, escaped);
    clean += std::string_view(text).substr(taken, from - taken);
    // Where the template cut that character off, the mark may stand at the very beginning: then it means
    // nothing.
    if (!clean.empty()) {
      size_t begin = clean.size();
      while (begin > 0 && (static_cast<unsigned char>(clean[--begin]) & 0xC0) == 0x80) {
      }
      if (places.empty() || places.back() < begin) places.push_back(begin);
    }
    size_t& found = from == plain ? plain : escaped;
    const std::string& form = from == plain ? mark.text : mark.escaped;
    taken = from + form.size();
    found = text.find(form, taken);
  }
  if (taken > 0) {
    clean += std::string_view(text).substr(taken);
    text = std::move(clean);
  }
  return places;
}

std::string token_text_of(const Tokenizer& tokenizer, const std::optional<TokenId>& token) {
  return token ? std::string(tokenizer.token_text(*token)) : std::string();
}

/// `rewrite`: of every string that the conversation holds (TemplateInput); empty: none.
Result<std::string> render(const Model& model, const ConversationInput& input,
                           std::function<std::string(std::string)> rewrite) {
  if (!model.chat_template && !model.chat_template_error.empty())
    return bad_input("The model's chat template cannot be used: " + model.chat_template_error);
  if (!model.chat_template)
    return bad_input(
        "The model has no chat template; use /v1/completions, or start the server with --chat-template "
        "FILE.");
  const Tokenizer& tokenizer = *model.tokenizer;
  return model.chat_template->render({.messages_json = input.messages_json,
                                      .tools_json = input.tools_json,
                                      .extra_json = input.extra_json,
                                      .rewrite = std::move(rewrite),
                                      .add_generation_prompt = input.add_generation_prompt,
                                      .bos_token = token_text_of(tokenizer, tokenizer.spec().bos),
                                      .eos_token = token_text_of(tokenizer, tokenizer.spec().eos),
                                      .now_unix_s = wall_clock_s()});
}

}  // namespace

Result<std::string> render_conversation(const Model& model, const ConversationInput& input) {
  return render(model, input, {});
}

bool takes_tools(const ChatTemplate& chat_template) {
  constexpr const char* kTool = R"([{"type": "function", "function": {"name": "f", "description": "d", )"
                                R"("parameters": {"type": "object", "properties": {}}}}])";
  bool tried = false;
  // Some templates write tools into the system message alone, others refuse to have one.
  for (const char* messages :
       {R"([{"role": "user", "content": "Hi"}])",
        R"([{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}])"}) {
    TemplateInput input{.messages_json = messages, .bos_token = "<s>", .eos_token = "</s>"};
    const auto without = chat_template.render(input);
    input.tools_json = kTool;
    const auto with = chat_template.render(input);
    if (!without && !with) continue;
    if (!without || !with || *without != *with) return true;
    tried = true;
  }
  return !tried;
}

PromptBuilder::PromptBuilder(const Model& model) : model_(model) {
  const Tokenizer& tokenizer = *model.tokenizer;
  std::vector<std::pair<std::string_view, TokenId>> specials;
  for (TokenId id = 0; id < tokenizer.vocabulary(); ++id)
    if (tokenizer.is_special(id)) specials.emplace_back(tokenizer.token_text(id), id);
  specials_ = PrefixTree(std::move(specials));
}

std::string PromptBuilder::mark(std::string text, std::string_view mark) const {
  const auto begins = [&](char c) { return specials_.begins(static_cast<uint8_t>(c)); };
  const auto first = std::find_if(text.begin(), text.end(), begins);
  if (first == text.end()) return text;
  const std::string_view given = text;
  auto at = static_cast<size_t>(first - text.begin());
  std::string marked(given.substr(0, at));
  while (at < given.size()) {
    const size_t step = std::min(character_bytes(given[at]), given.size() - at);
    bool special = false;
    if (begins(given[at])) specials_.each_prefix(given.substr(at), [&](size_t, TokenId) { special = true; });
    marked += given.substr(at, step);
    if (special) marked += mark;
    at += step;
  }
  return marked;
}

Result<std::vector<TokenId>> PromptBuilder::conversation(const ConversationInput& input,
                                                         size_t max_tokens) const {
  const std::optional<Mark> mark = unused_mark(input);
  if (!mark)
    return bad_input(
        "messages: found all of the noncharacters U+FDD0 to U+FDEF, allowed is to leave one unused");
  TRY_ASSIGN(std::string text, render(model_, input, [&](std::string said) {
               return this->mark(std::move(said), mark->text);
             }));

  EncodeOptions options;
  options.parse_special = true;
  options.not_special_at = unmark(text, *mark);
  options.max_tokens = max_tokens;
  // Many templates write the BOS token themselves: never two. What merely looks like one is none.
  const std::string bos = token_text_of(*model_.tokenizer, model_.tokenizer->spec().bos);
  const bool has_bos = !bos.empty() && text.starts_with(bos) &&
                       (options.not_special_at.empty() || options.not_special_at[0] != 0);
  options.add_bos = !has_bos;
  return model_.tokenizer->encode(text, options);
}

std::vector<TokenId> PromptBuilder::raw(std::string_view text, size_t max_tokens) const {
  EncodeOptions options;
  options.max_tokens = max_tokens;
  options.parse_special = true;
  const std::string bos = token_text_of(*model_.tokenizer, model_.tokenizer->spec().bos);
  options.add_bos = bos.empty() || !text.starts_with(bos);
  return model_.tokenizer->encode(text, options);
}

}  // namespace quintet
