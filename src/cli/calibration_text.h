// The text that `quintet quantize` calibrates on: files, conversations through the model's template, or what
// the model writes itself.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/interrupt.h"
#include "cli/verb.h"

namespace quintet {

struct CalibrationSource {
  std::vector<std::string> files;  ///< "self" alone: the model writes
  std::string model;               ///< path, for its template or its own text
  std::string chat_template;       ///< a file instead of its template, or empty
  bool chat = false;               ///< plain texts become user messages of the template
  int64_t samples = 16, length = 512;
};

struct CalibrationInput {
  std::string text;
  bool special = false;  ///< special tokens that it writes out count as such: a template was rendered
  std::string origin;    ///< for people
};

/// Files one after the other. Of a name that ends in .jsonl each line is a JSON string, an object with a
/// "text", or one with "messages", which the model's chat template renders; of others all bytes, which must
/// be UTF-8. With `chat` every text of a line, and every file that is none of lines, is one user message.
/// bad_input names file and line or byte.
///
/// "self": `samples` texts of about `length` tokens, drawn at temperature 1 behind the beginning of a text,
/// seeded (Liu et al., "LLM-QAT: Data-Free Quantization Aware Training for Large Language Models", 2023); the
/// whole model is loaded.
Result<CalibrationInput> read_calibration(const CalibrationSource& source, const CommonOptions& common,
                                          const Interrupts& interrupts);

}  // namespace quintet
