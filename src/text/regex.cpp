// Compiling and searching: PCRE2 with JIT, whole texts for trusted patterns, bounded effort for others.
#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace quintet {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
// Of patterns of strangers. A first window holds most words, and the first limit of backtracking is what the
// usual patterns need for one. Growing in steps keeps the last try within a small multiple of what was
// needed.
constexpr size_t kFirstWindowBytes = 128, kWindowGrowth = 4;
constexpr uint32_t kFirstMatchLimit = 64, kMaxMatchLimit = 1 << 20, kLimitGrowth = 8;
/// Bytes looked at and steps backtracked in tries beyond the first (some nanoseconds each): for each byte of
/// the text, and for any text, however short.
constexpr size_t kEffortPerByte = 48, kBaseEffort = 1024;

/// Where a window of `bytes` that begins at `from` ends: at the end of a character.
size_t window_end(std::string_view text, size_t from, size_t bytes) {
  if (text.size() - from <= bytes) return text.size();
  size_t at = from + bytes;
  while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

size_t next_character(std::string_view text, size_t at) {
  do {
    ++at;
  } while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

}  // namespace

struct Regex::Impl {
  pcre2_code* code = nullptr;
  Effort effort = Effort::unbounded;
  bool jit = false;

  ~Impl() { pcre2_code_free(code); }
};

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern, Effort effort) {
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
  const uint32_t options =
      PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE | (effort == Effort::linear ? PCRE2_USE_OFFSET_LIMIT : 0);
  impl->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options,
                             &code, &offset, settings);
  pcre2_compile_context_free(settings);
  if (impl->code == nullptr) {
    char reason[256] = "";
    pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof reason);
    return bad_input(fmt::format("the pattern '{}' does not compile: {}", pattern.substr(0, 200), reason));
  }
  impl->effort = effort;
  const uint32_t modes = PCRE2_JIT_COMPLETE | (effort == Effort::linear ? PCRE2_JIT_PARTIAL_HARD : 0);
  impl->jit = pcre2_jit_compile(impl->code, modes) == 0;
  return Regex(std::move(impl));
}

struct Regex::Matcher::State {
  const Impl& regex;
  pcre2_match_data* data;
  pcre2_match_context* limits;
  std::string_view text;
  size_t at = 0;      ///< where the next search begins
  size_t effort = 0;  ///< that is left

  /// Searches text[at, end); a result of PCRE2. With `partial` a match that the end cuts short is told as
  /// such.
  int search(size_t end, bool partial) const {
    // A window that is not the last ends where the text goes on: $ does not match there.
    const uint32_t options =
        PCRE2_NOTEMPTY | (end < text.size() ? PCRE2_NOTEOL : 0) | (partial ? PCRE2_PARTIAL_HARD : 0);
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    if (regex.jit) {
      const int found = pcre2_jit_match(regex.code, subject, end, at, options, data, limits);
      if (found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
      // A long match of a repeated group: the interpreter keeps its way back on the heap.
    }
    return pcre2_match(regex.code, subject, end, at, options | PCRE2_NO_UTF_CHECK, data, limits);
  }

  bool spend(size_t amount) {
    if (effort < amount) return false;
    effort -= amount;
    return true;
  }

  int search_unbounded(size_t& end) {
    end = text.size();
    return search(end, false);
  }

  /// Grows window and limit until the search is through, or nothing is left to spend. `end`: of the last
  /// window.
  int search_bounded(size_t& end) {
    size_t window = kFirstWindowBytes;
    uint32_t limit = kFirstMatchLimit;
    bool partial = true, one_place = false;
    pcre2_set_offset_limit(limits, PCRE2_UNSET);
    for (;;) {
      end = window_end(text, at, window);
      pcre2_set_match_limit(limits, limit);
      const int found = search(end, partial && end < text.size());
      if (found == PCRE2_ERROR_PARTIAL) {
        // Nothing begins before it. In a larger window only this one place is tried: to try every place in it
        // would take the square of its size.
        at = std::max(at, static_cast<size_t>(pcre2_get_ovector_pointer(data)[0]));
        one_place = true;
        pcre2_set_offset_limit(limits, at);
        if (spend(window * kWindowGrowth))
          window *= kWindowGrowth;
        else
          partial = false;
      } else if (found == PCRE2_ERROR_MATCHLIMIT && limit < kMaxMatchLimit && spend(limit * kLimitGrowth)) {
        limit *= kLimitGrowth;
      } else {
        if (found == PCRE2_ERROR_NOMATCH && one_place) end = next_character(text, at);
        return found;
      }
    }
  }
};

Regex::Matcher::Matcher(const Regex& regex)
    : state_(new State{
          *regex.impl_, pcre2_match_data_create(1, nullptr), pcre2_match_context_create(nullptr), {}, 0, 0}) {
}
Regex::Matcher::~Matcher() {
  pcre2_match_context_free(state_->limits);
  pcre2_match_data_free(state_->data);
}

void Regex::Matcher::start(std::string_view text) {
  state_->text = text;
  state_->at = 0;
  state_->effort = kBaseEffort + kEffortPerByte * text.size();
}

bool Regex::Matcher::next(Match& match) {
  State& s = *state_;
  while (s.at < s.text.size()) {
    size_t end = 0;
    const int found = s.regex.effort == Effort::unbounded ? s.search_unbounded(end) : s.search_bounded(end);
    if (found > 0) {
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(s.data);
      match = {bounds[0], bounds[1]};
      s.at = match.end;
      return true;
    }
    s.at = end;  // no match, or one that passed the limits
  }
  return false;
}

}  // namespace quintet
