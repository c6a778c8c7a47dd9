// The steps before the model proper: normalizing the text and cutting it into words.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace quintet {

/// A word as bytes of some text.
struct WordRange {
  size_t begin = 0, end = 0;
};

/// The chain of normalizers. Immutable; safe for many threads.
class Normalizer {
 public:
  static Result<Normalizer> compile(const TokenizerSpec& spec);
  Normalizer(Normalizer&&) noexcept;
  Normalizer& operator=(Normalizer&&) noexcept;
  ~Normalizer();

  /// Valid UTF-8 in, valid UTF-8 out.
  std::string run(std::string_view text) const;
  bool empty() const;

 private:
  struct Impl;
  explicit Normalizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The chain of pre-tokenizers. Immutable; safe for many threads.
class PreTokenizer {
 public:
  static Result<PreTokenizer> compile(const TokenizerSpec& spec);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  /// Works on one text at a time; belongs to one thread.
  class Cutter {
   public:
    explicit Cutter(const PreTokenizer& pre_tokenizer);
    ~Cutter();
    Cutter(const Cutter&) = delete;
    Cutter& operator=(const Cutter&) = delete;

    /// Cuts valid UTF-8; `at_start`: it is the beginning of what is encoded. The words are ranges of text()
    /// (the bytes themselves, never the stand-in characters of byte-level vocabularies), which stay until the
    /// next call.
    const std::vector<WordRange>& cut(std::string_view text, bool at_start);
    std::string_view text() const;

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Impl;
  explicit PreTokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quintet
