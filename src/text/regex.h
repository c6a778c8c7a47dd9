// Regular expressions of tokenizer.json (Oniguruma's dialect) on PCRE2 with JIT, in time linear in the text.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quintet {

/// A compiled pattern. Immutable; safe for many threads.
class Regex {
 public:
  /// How much work a search may do.
  enum class Effort {
    unbounded,  ///< for patterns known to search in linear time
    linear,  ///< for patterns of strangers, which may be quadratic or worse. Each match sees a small window
             ///< of the text first, a larger one where it came to its end, and may backtrack a little first,
             ///< more where that was too little. What that adds up to is bounded by a multiple of the text;
             ///< past it windows stay small: what does not fit one ends there, what takes too much
             ///< backtracking is no match.
  };

  /// Errors name the construct. Patterns over 64 KiB are refused.
  static Result<Regex> compile(std::string_view pattern, Effort effort);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// A match, in bytes.
  struct Match {
    size_t begin = 0, end = 0;
  };

  /// Finds one match after the other; belongs to one thread and to a regex that outlives it.
  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;
    /// Begins at the start of `text`, which must be valid UTF-8 and stay until the last next().
    void start(std::string_view text);
    /// The next match; false at the end. Empty matches are left out.
    bool next(Match& match);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Impl;
  explicit Regex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The pattern in PCRE2's dialect, meaning what it means to Oniguruma with Unicode 16. Constructs that would
/// mean something else, or that could run without bound (recursion, back-references), are refused by name.
Result<std::string> translate_oniguruma(std::string_view pattern);

}  // namespace quintet
