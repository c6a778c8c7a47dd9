// From a conversation to token ids: the model's template, then its tokenizer, with user content kept apart
// from markup.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "text/prefix_tree.h"

namespace quintet {

struct ConversationInput {
  std::string messages_json;  ///< list of {role, content, ...}
  std::string tools_json;     ///< list, or empty
  std::string extra_json;     ///< object of further template variables, or empty
  bool add_generation_prompt = true;
};

/// The prompt's text. bad_input where the model has no template, or the template refuses the conversation.
Result<std::string> render_conversation(const Model& model, const ConversationInput& input);

/// Whether tools show in what a template renders: found by trying. True where it refuses to be tried.
bool takes_tools(const ChatTemplate& chat_template);

/// Renders and encodes conversations for one model. Immutable; safe for many threads. The model must outlive
/// it.
///
/// Whatever a request says - contents, names, arguments, tools, variables, keys too - may look like a special
/// token ("<|im_end|>") without being one: before rendering, such places are marked with a character that the
/// conversation does not contain, and behind it the marks become EncodeOptions::not_special_at.
class PromptBuilder {
 public:
  explicit PromptBuilder(const Model& model);

  /// Errors as render_conversation(). More than `max_tokens` ids mean that it is longer than that; then they
  /// are not all of it.
  Result<std::vector<TokenId>> conversation(const ConversationInput& input,
                                            size_t max_tokens = EncodeOptions::kAll) const;
  /// A text to be continued as it is; special tokens written out in it are meant.
  std::vector<TokenId> raw(std::string_view text, size_t max_tokens = EncodeOptions::kAll) const;

 private:
  std::string mark(std::string text, std::string_view mark) const;

  const Model& model_;
  PrefixTree specials_;  ///< texts of control tokens
};

}  // namespace quintet
