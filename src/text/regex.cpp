// Compiling and searching: PCRE2 with JIT, whole texts for trusted patterns, windows for others.
#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace quintet {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr size_t kWindowBytes = 4 << 10;
/// Of backtracking in a window: at some ten nanoseconds a step, a second for a megabyte of the worst text.
constexpr uint32_t kWindowMatchLimit = 300'000;

/// Where a window that begins at `from` ends: between a letter and a space if there is such a place in its
/// second half.
size_t window_end(std::string_view text, size_t from) {
  if (text.size() - from <= kWindowBytes) return text.size();
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (size_t at = from + kWindowBytes; at > from + kWindowBytes / 2; --at) {
    if (text[at] == ' ' && is_letter(text[at - 1])) return at;
  }
  size_t at = from + kWindowBytes;
  while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

struct Regex::Impl {
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
  Reach reach = Reach::whole;
  bool jit = false;

  ~Impl() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }
};

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern, Reach reach) {
  if (pattern.size() > kMaxPatternBytes) {
    return bad_input(fmt::format("a pattern of {} bytes; allowed are {}", pattern.size(), kMaxPatternBytes));
  }
  TRY_ASSIGN(const std::string translated, translate_oniguruma(pattern));
  pcre2_compile_context* settings = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(settings, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(settings, 64);
  int code = 0;
  PCRE2_SIZE offset = 0;
  auto impl = std::make_unique<Impl>();
  impl->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE, &code, &offset, settings);
  pcre2_compile_context_free(settings);
  if (impl->code == nullptr) {
    char reason[256] = "";
    pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof reason);
    return bad_input(fmt::format("the pattern '{}' does not compile: {}", pattern.substr(0, 200), reason));
  }
  impl->reach = reach;
  impl->jit = pcre2_jit_compile(impl->code, PCRE2_JIT_COMPLETE) == 0;
  impl->limits = pcre2_match_context_create(nullptr);
  if (reach == Reach::window) pcre2_set_match_limit(impl->limits, kWindowMatchLimit);
  return Regex(std::move(impl));
}

struct Regex::Matcher::State {
  const Impl& regex;
  pcre2_match_data* data;
  std::string_view text;
  size_t at = 0;          ///< where the next search begins
  size_t window_end = 0;  ///< where the current window ends
};

Regex::Matcher::Matcher(const Regex& regex)
    : state_(new State{*regex.impl_, pcre2_match_data_create(1, nullptr), {}, 0, 0}) {}
Regex::Matcher::~Matcher() { pcre2_match_data_free(state_->data); }

void Regex::Matcher::start(std::string_view text) {
  state_->text = text;
  state_->at = 0;
  state_->window_end = state_->regex.reach == Reach::whole ? text.size() : quintet::window_end(text, 0);
}

bool Regex::Matcher::next(Match& match) {
  State& s = *state_;
  while (s.at < s.text.size()) {
    // A window that is not the last ends where the text goes on: $ does not match there.
    const uint32_t options =
        PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | (s.window_end < s.text.size() ? PCRE2_NOTEOL : 0);
    const auto subject = reinterpret_cast<PCRE2_SPTR>(s.text.data());
    const int found =
        s.regex.jit ? pcre2_jit_match(s.regex.code, subject, s.window_end, s.at,
                                      options & ~PCRE2_NO_UTF_CHECK, s.data, s.regex.limits)
                    : pcre2_match(s.regex.code, subject, s.window_end, s.at, options, s.data, s.regex.limits);
    if (found > 0) {
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(s.data);
      match = {bounds[0], bounds[1]};
      s.at = match.end;
    } else {
      s.at = s.window_end;  // no match, or one that passed the limits
    }
    if (s.at >= s.window_end && s.window_end < s.text.size())
      s.window_end = quintet::window_end(s.text, s.at);
    if (found > 0) return true;
  }
  return false;
}

}  // namespace quintet
