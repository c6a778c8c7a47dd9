// Chat templates: our own subset of Jinja, bounded in steps and output, without I/O.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quintet {

/// What a template sees beside the messages.
struct TemplateInput {
  std::string messages_json;        ///< JSON list of {role, content, ...}
  std::string tools_json;           ///< JSON list or empty (none)
  std::string extra_json;           ///< JSON object of further variables (enable_thinking, date_string) or empty
  /// What every string and key of the three above becomes before the template sees it; empty: it stays as it is.
  std::function<std::string(std::string)> rewrite;
  bool add_generation_prompt = true;
  std::string bos_token, eos_token;
  int64_t now_unix_s = 0;           ///< for strftime_now: wall_clock_s() where the template shall see local time
};

/// Seconds since 1970 as the clock on the wall shows them: now, shifted by the local zone's offset.
int64_t wall_clock_s();

/// A parsed template. Immutable; safe for many threads.
class ChatTemplate {
 public:
  /// Errors name line and construct.
  static Result<ChatTemplate> parse(std::string_view source);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// The prompt's text. raise_exception and every limit (steps, output, depth) are bad_input.
  Result<std::string> render(const TemplateInput& input) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quintet
