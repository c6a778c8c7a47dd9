// What a compressed model writes, beside what its source writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/interrupt.h"
#include "cli/verb.h"
#include "eval/scores.h"

namespace quintet {

/// Of a few generations. Rates are of all their tokens.
struct SmokeFigures {
  int64_t tokens = 0;
  double repetition = 0;  ///< tokens that end four in a row which the same text had before
  double garbage = 0;     ///< tokens whose text has characters that are no text: control characters, broken UTF-8
  double ppl = 0;         ///< perplexity of the texts as the source reads them
  std::vector<std::string> texts;
};

struct SmokeReport {
  SmokeFigures source, made;
  bool compared = false;  ///< the distribution on a text was compared, too
  Summary distance;       ///< KL of the compressed model from the source, and so on
  std::vector<float> kl;  ///< of each token
};

struct SmokeOptions {
  std::string source, made;  ///< paths
  std::string text;          ///< to compare on; empty: not compared
  int64_t text_tokens = 1024;
};

/// Generates from a few prompts, seeded, with both models, one after the other.
Result<SmokeReport> smoke_run(const SmokeOptions& options, const CommonOptions& common, const Interrupts& interrupts);

/// "repetition 3.1 % (source 2.9 %), ...", for people.
std::string smoke_line(const SmokeReport& report);

}  // namespace quintet
