// Starts the built program, talks to it through pipes or a terminal, and says how it ended.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::test {

using Args = std::vector<std::string>;

/// How a process ended. `code` is what a shell would say: the exit code, or 128 + n where signal n killed it.
struct Outcome {
  int code = -1;
  bool killed = false;  ///< by a signal, rather than by its own exit
  bool timed_out = false;
  std::string out, err;
};

/// One running program. Standard output is a pipe always; input and error are pipes, or one terminal.
class Program {
 public:
  enum class Streams { pipes, terminal };

  explicit Program(const Args& args, Streams streams = Streams::pipes, const std::string& stdout_path = "");
  ~Program();
  Program(const Program&) = delete;

  void write(std::string_view text);
  void close_input();
  void close_output();  ///< its next write fails
  void send_signal(int number);
  /// True once `text` stands in what it wrote after what was waited for before; false at its end or after
  /// `limit`.
  bool wait_out(std::string_view text, std::chrono::seconds limit = std::chrono::seconds(100));
  bool wait_err(std::string_view text, std::chrono::seconds limit = std::chrono::seconds(100));
  Outcome finish(std::chrono::seconds limit = std::chrono::seconds(100));

 private:
  bool pump(int wait_ms);  ///< false where both outputs have ended
  bool wait(std::string& text_so_far, size_t& seen, std::string_view text, std::chrono::seconds limit);

  int pid_ = -1, in_ = -1, out_ = -1, err_ = -1;
  bool terminal_ = false, reaped_ = false;
  std::string out_text_, err_text_;
  size_t out_seen_ = 0, err_seen_ = 0;
};

/// Runs it to the end with `input` on standard input.
Outcome run(const Args& args, std::string_view input = "");

/// A file of the source tree; models and vocabularies may be absent.
std::string source_path(std::string_view relative);

/// A folder of this test's own, removed at its end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string path(std::string_view name) const { return (path_ / name).string(); }
  std::string write(std::string_view name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::string& path);

/// One line, of the verb, that says all of `parts`, and nothing on standard output.
void expect_error(const Outcome& outcome, int code, const std::vector<std::string>& parts);

}  // namespace quintet::test

/// Skips where a fetched file is absent, and says how to fetch it.
#define NEED_FILE(path, how) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << (path) << " is absent: run " << (how)
