// Log-probabilities of a reference model on disk: two bytes an entry of the vocabulary.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"

namespace quintet {

/// What a row says. A code is the distance below the row's most likely token in steps of 1 / 2048 nat, at
/// most 32 nats (65535: anything below): the rounding moves a KL divergence by about its variance, 1e-8.
struct LogProbRow {
  float top = 0;                ///< log-probability of the most likely token
  float target = 0;             ///< log-probability of the token that the text has there
  std::vector<uint16_t> codes;  ///< [vocabulary]
};
inline constexpr float kLogProbSteps = 2048;

/// Turns logits into a row. Not finite: false.
bool make_log_prob_row(std::span<const float> logits, int32_t target, LogProbRow& row);

/// Rows in order of the scored tokens. `key` says what they belong to (model, text, windows): a file of
/// another key is not opened. Reading is for one thread at a time.
class LogProbFile {
 public:
  struct Shape {
    uint64_t key = 0;
    int64_t rows = 0;
    int32_t vocabulary = 0;
  };

  /// A new file. An empty path: a nameless one in the folder for temporary files, gone with this object.
  /// Otherwise an OutputFile, in place after finish(). no_room where the disk has too little left.
  static Result<LogProbFile> create(const std::string& path, const Shape& shape);
  /// not_found where there is none; bad_input, with what it belongs to, where shape or key differ.
  static Result<LogProbFile> open(const std::string& path, const Shape& shape);

  Status append(const LogProbRow& row);
  Status finish();  ///< all rows were appended
  Status read(int64_t index, LogProbRow& row);

  const Shape& shape() const { return shape_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  LogProbFile(std::string path, std::FILE* file, const Shape& shape)
      : path_(std::move(path)), opened_(file), file_(file), shape_(shape) {}
  LogProbFile(std::string path, OutputFile output, const Shape& shape)
      : path_(std::move(path)), output_(std::move(output)), file_(output_->stream()), shape_(shape) {}
  Status write_header();
  Error failure(const char* what) const;

  std::string path_;
  std::optional<OutputFile> output_;          ///< of create() with a path
  std::unique_ptr<std::FILE, Close> opened_;  ///< of the others
  std::FILE* file_;                           ///< one of the two
  Shape shape_;
  int64_t appended_ = 0;
};

}  // namespace quintet
