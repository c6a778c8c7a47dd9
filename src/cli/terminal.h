// Standard input, output and error: unbuffered answers, lines that Ctrl-C can interrupt, progress for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quintet {

class Interrupts;

/// Standard output. Every error is reported: a full disk is io, a reader that has gone is cancelled (ends
/// quietly).
class Output {
 public:
  ~Output() { (void)flush(); }

  /// Writes at once: streamed text.
  Status print(std::string_view text);
  /// Collects up to 64 KiB: many short lines. flush() before the end, so that its error is seen.
  Status collect(std::string_view text);
  Status flush();

 private:
  std::string held_;
};

bool stdin_is_terminal();
bool stderr_is_terminal();

/// Writes a line for people to stderr (not a log line: usage errors, speeds, hints).
void say(std::string_view line);
/// The same without an end of line: an input prompt.
void hint(std::string_view text);
/// An error, "quintet VERB: message": one line, whatever it quotes. A model file's strings must not move a
/// terminal's cursor.
void say_error(std::string_view who, std::string_view message);

/// Reads lines from standard input through its own buffer.
class LineReader {
 public:
  enum class Outcome { line, end, interrupted };

  /// `interrupts` may be null. A line comes without its "\n" (and without a "\r" before it); the last one
  /// needs none. Errors of the operating system count as the end.
  explicit LineReader(const Interrupts* interrupts = nullptr) : interrupts_(interrupts) {}
  Outcome read(std::string& line);
  /// True where a whole line lies in the buffer, so that read() will not wait.
  bool ready() const { return held_.find('\n', begin_) != std::string::npos; }

 private:
  const Interrupts* interrupts_;
  std::string held_;
  size_t begin_ = 0;    ///< of the unread part of held_
  size_t scanned_ = 0;  ///< no "\n" in held_[begin_, scanned_)
  bool end_ = false;
};

/// A bar on stderr with the speed of what goes on and the time that is left, both by what was done since its first update:
/// work that goes on has done some before. Draws only on a terminal, at most ten times a second, and leaves nothing behind.
class ProgressBar {
 public:
  enum class Unit { bytes, tokens, steps };

  explicit ProgressBar(std::string label, Unit unit = Unit::bytes);
  ~ProgressBar();
  void update(uint64_t done, uint64_t total);
  /// Takes it away until the next update: before a line on stdout.
  void hide();

 private:
  std::string label_;
  Unit unit_;
  bool enabled_;
  int64_t start_us_ = 0, last_us_ = 0;  ///< of the first update; of the last that was drawn
  std::optional<uint64_t> first_done_;
};

}  // namespace quintet
