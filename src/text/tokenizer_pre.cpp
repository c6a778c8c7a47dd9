// Cutting text into words, step by step, as Hugging Face tokenizers do.
#include "text/tokenizer_pre.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "text/bpe_bytes.h"
#include "text/regex.h"
#include "text/tokenizer_families.h"
#include "text/unicode.h"

namespace quintet {
namespace {

using Step = PreTokenizerStep;
using Kind = PreTokenizerStep::Kind;
using Behavior = PreTokenizerStep::Behavior;

// The pattern of GPT-2 (its encoder.py).
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTrailingSpacePattern = R"(\s+$)";
constexpr std::string_view kWordsPattern = R"(\w+|[^\w\s]+)";  // the Whitespace pre-tokenizer

/// Collects alternating pieces and delimiters and joins them as `behavior` says.
class Joiner {
 public:
  Joiner(Behavior behavior, bool invert, std::vector<WordRange>& out)
      : behavior_(behavior), invert_(invert), out_(out), first_(out.size()) {}

  void add(size_t begin, size_t end, bool match) {
    if (begin == end) return;
    if (invert_) match = !match;
    switch (behavior_) {
      case Behavior::removed:
        if (!match) out_.push_back({begin, end});
        break;
      case Behavior::isolated: out_.push_back({begin, end}); break;
      case Behavior::contiguous:
        if (out_.size() > first_ && match == previous_match_) {
          out_.back().end = end;
        } else {
          out_.push_back({begin, end});
        }
        break;
      case Behavior::merged_with_previous:
        if (match && !previous_match_ && out_.size() > first_) {
          out_.back().end = end;
        } else {
          out_.push_back({begin, end});
        }
        break;
      case Behavior::merged_with_next:
        if (!match && previous_match_) {  // the delimiter before it waits for this piece
          out_.back().end = end;
        } else {
          out_.push_back({begin, end});
        }
        break;
    }
    previous_match_ = match;
  }

 private:
  Behavior behavior_;
  bool invert_;
  std::vector<WordRange>& out_;
  size_t first_;
  bool previous_match_ = false;
};

template <class Predicate>
void cut_characters(std::string_view text, WordRange range, Joiner& joiner, Predicate matches) {
  size_t piece = range.begin;
  for (size_t at = range.begin; at < range.end;) {
    const Utf8Char character = decode_utf8(text, at);
    if (matches(character.code_point)) {
      joiner.add(piece, at, false);
      joiner.add(at, at + character.bytes, true);
      piece = at + character.bytes;
    }
    at += character.bytes;
  }
  joiner.add(piece, range.end, false);
}

void cut_literal(std::string_view text, WordRange range, Joiner& joiner, std::string_view pattern) {
  size_t piece = range.begin;
  const std::string_view window = text.substr(0, range.end);
  while (true) {
    const size_t at = window.find(pattern, piece);
    if (at == std::string_view::npos) break;
    joiner.add(piece, at, false);
    joiner.add(at, at + pattern.size(), true);
    piece = at + pattern.size();
  }
  joiner.add(piece, range.end, false);
}

/// \s+$ by hand, since a search for it is quadratic in runs of spaces: $ is the end or stands before a line
/// feed.
void cut_trailing_space(std::string_view text, WordRange range, Joiner& joiner) {
  size_t piece = range.begin;
  for (size_t at = range.begin; at < range.end;) {
    const size_t run = at;
    size_t line_feed = run;  // the last one in the run, past its first character
    while (at < range.end) {
      const Utf8Char character = decode_utf8(text, at);
      if (!is_unicode_space(character.code_point)) break;
      if (character.code_point == '\n') line_feed = at;
      at += character.bytes;
    }
    if (at == run) {
      at += decode_utf8(text, at).bytes;
      continue;
    }
    const size_t end = at == range.end ? at : line_feed;
    if (end > run) {
      joiner.add(piece, run, false);
      joiner.add(run, end, true);
      piece = end;
    }
  }
  joiner.add(piece, range.end, false);
}

void cut_regex(std::string_view text, WordRange range, Joiner& joiner, Regex::Matcher& matcher) {
  matcher.start(text.substr(range.begin, range.end - range.begin));
  size_t piece = range.begin;
  Regex::Match match;
  while (matcher.next(match)) {
    joiner.add(piece, range.begin + match.begin, false);
    piece = range.begin + match.end;
    joiner.add(range.begin + match.begin, piece, true);
  }
  joiner.add(piece, range.end, false);
}

}  // namespace

struct PreTokenizer::Impl {
  struct Compiled {
    Step step;
    std::optional<Regex> regex;
    bool trailing_space = false;
  };
  std::vector<Compiled> steps;
};

PreTokenizer::PreTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::compile(const TokenizerSpec& spec) {
  auto impl = std::make_unique<Impl>();
  if (spec.pre_tokenizers.size() > 64) {
    return bad_input(
        fmt::format("{}: {} pre-tokenizer steps; allowed are 64", spec.origin, spec.pre_tokenizers.size()));
  }
  for (const Step& step : spec.pre_tokenizers) {
    auto& compiled = impl->steps.emplace_back();
    compiled.step = step;
    std::string_view pattern;
    if (step.kind == Kind::split && step.regex) pattern = step.pattern;
    if (step.kind == Kind::byte_level && step.use_regex) pattern = kGpt2Pattern;
    if (step.kind == Kind::whitespace) pattern = kWordsPattern;
    if ((step.kind == Kind::split || step.kind == Kind::metaspace) && step.pattern.empty()) {
      return bad_input(fmt::format("{}: a pre-tokenizer has an empty pattern", spec.origin));
    }
    if (!is_valid_utf8(step.pattern)) {
      return bad_input(fmt::format("{}: the pattern of a pre-tokenizer is not UTF-8", spec.origin));
    }
    if (step.kind == Kind::metaspace && decode_utf8(step.pattern, 0).bytes != step.pattern.size()) {
      return bad_input(
          fmt::format("{}: Metaspace's replacement '{}' is not one character", spec.origin, step.pattern));
    }
    if (pattern == kTrailingSpacePattern) {
      compiled.trailing_space = true;
    } else if (!pattern.empty()) {
      const bool known =
          pattern == kGpt2Pattern || pattern == kWordsPattern || is_known_linear_pattern(pattern);
      auto regex = Regex::compile(pattern, known ? Regex::Effort::unbounded : Regex::Effort::linear);
      if (!regex) return bad_input(fmt::format("{}: pre-tokenizer: {}", spec.origin, regex.error().message));
      compiled.regex = std::move(regex).value();
    }
  }
  return PreTokenizer(std::move(impl));
}

struct PreTokenizer::Cutter::State {
  const Impl& impl;
  std::vector<std::unique_ptr<Regex::Matcher>> matchers;  // by step; null where it has no regex
  std::string_view text;
  std::string storage;  // holds `text` once a step has changed it
  std::vector<WordRange> words, next;
  bool stand_ins = false;

  /// Rebuilds text and words: `write(word, out)` appends what a word becomes.
  template <class Write>
  void rewrite(Write write) {
    std::string out;
    out.reserve(text.size() + text.size() / 4);
    for (WordRange& word : words) {
      const size_t begin = out.size();
      write(word, out);
      word = {begin, out.size()};
    }
    storage = std::move(out);
    text = storage;
  }

  std::string_view view(WordRange word) const { return text.substr(word.begin, word.end - word.begin); }
};

PreTokenizer::Cutter::Cutter(const PreTokenizer& pre_tokenizer)
    : state_(new State{*pre_tokenizer.impl_, {}, {}, {}, {}, {}}) {
  for (const auto& compiled : state_->impl.steps) {
    state_->matchers.push_back(compiled.regex ? std::make_unique<Regex::Matcher>(*compiled.regex) : nullptr);
  }
}
PreTokenizer::Cutter::~Cutter() = default;
std::string_view PreTokenizer::Cutter::text() const { return state_->text; }

const std::vector<WordRange>& PreTokenizer::Cutter::cut(std::string_view text, bool at_start) {
  State& s = *state_;
  s.text = text;
  s.stand_ins = false;
  s.words.clear();
  if (text.empty()) return s.words;
  s.words.push_back({0, text.size()});
  for (size_t i = 0; i < s.impl.steps.size(); ++i) {
    const auto& compiled = s.impl.steps[i];
    const Step& step = compiled.step;
    if (step.kind == Kind::byte_level && step.add_prefix_space) {
      s.rewrite([&](WordRange word, std::string& out) {
        if (s.text[word.begin] != ' ') out += ' ';
        out += s.view(word);
      });
    }
    if (step.kind == Kind::metaspace) {
      s.rewrite([&](WordRange word, std::string& out) {
        const bool prepend = step.prepend == Step::Prepend::always ||
                             (step.prepend == Step::Prepend::first && at_start && word.begin == 0);
        const std::string_view view = s.view(word);
        if (prepend && view[0] != ' ' && !view.starts_with(step.pattern)) out += step.pattern;
        for (const char c : view) {
          if (c == ' ') {
            out += step.pattern;
          } else {
            out += c;
          }
        }
      });
    }
    const bool cuts = !(step.kind == Kind::byte_level && !step.use_regex) &&
                      !(step.kind == Kind::metaspace && !step.split_words);
    if (cuts) {
      s.next.clear();
      Behavior behavior = step.behavior;
      if (step.kind == Kind::digits) behavior = step.individual ? Behavior::isolated : Behavior::contiguous;
      if (step.kind == Kind::byte_level) behavior = Behavior::isolated;
      if (step.kind == Kind::metaspace) behavior = Behavior::merged_with_next;
      if (step.kind == Kind::whitespace || step.kind == Kind::whitespace_split) behavior = Behavior::removed;
      // The Whitespace pre-tokenizer keeps what its pattern matches.
      const bool invert = step.kind == Kind::whitespace || (step.kind == Kind::split && step.invert);
      for (const WordRange word : s.words) {
        Joiner joiner(behavior, invert, s.next);
        if (compiled.trailing_space) {
          cut_trailing_space(s.text, word, joiner);
        } else if (compiled.regex) {
          cut_regex(s.text, word, joiner, *s.matchers[i]);
        } else if (step.kind == Kind::digits) {
          cut_characters(s.text, word, joiner, is_unicode_number);
        } else if (step.kind == Kind::punctuation) {
          cut_characters(s.text, word, joiner, is_punctuation);
        } else if (step.kind == Kind::whitespace_split) {
          cut_characters(s.text, word, joiner, is_unicode_space);
        } else {
          cut_literal(s.text, word, joiner, step.pattern);
        }
      }
      s.words.swap(s.next);
    }
    if (step.kind == Kind::byte_level && i + 1 < s.impl.steps.size()) {
      // Later steps see the stand-ins, as they do in Hugging Face tokenizers (some stand-ins are digits, for
      // one).
      s.rewrite([&](WordRange word, std::string& out) { out += to_stand_ins(s.view(word)); });
      s.stand_ins = true;
    }
  }
  if (s.stand_ins) {
    s.rewrite([&](WordRange word, std::string& out) { out += *from_stand_ins(s.view(word)); });
  }
  return s.words;
}

}  // namespace quintet
