// Files that a person names for a result: whole or not there at all.
#pragma once

#include <cstdio>
#include <string>

#include "base/result.h"

namespace quintet {

/// A file to write. Where the path leads to a regular file or to nothing yet (symbolic links are followed),
/// the bytes have no name before finish() puts them in place at once: whatever ends the process before, an
/// older file stays as it was and nothing else is left. (A file system without nameless files, O_TMPFILE, has
/// them in "PATH.partial.PID" meanwhile; a killed process leaves that.) A character device or a FIFO is
/// written as the bytes come.
///
/// A path that cannot be written is bad_input, a write that fails is io.
class OutputFile {
 public:
  /// Whether create() would take this path, as far as can be told without touching it.
  static Status check(const std::string& path);
  static Result<OutputFile> create(const std::string& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  /// For writing; a file that is put in place by finish() can be read back, too.
  std::FILE* stream() { return stream_; }
  /// Everything is written: flushes, and puts the file in place. The stream stays open.
  Status finish();
  /// An error of the stream, from errno.
  Error write_error() const;

 private:
  OutputFile(std::string path, std::FILE* stream) : path_(std::move(path)), stream_(stream) {}

  std::string path_;     ///< as the caller named it
  std::string target_;   ///< where finish() puts it; empty: written in place
  std::string partial_;  ///< its name meanwhile; empty: it has none
  std::FILE* stream_;
};

}  // namespace quintet
