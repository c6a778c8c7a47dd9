// What a verb of the command line is: it declares its flags and runs. One file a verb; the table is in
// app.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/result.h"
#include "cli/backend_choice.h"

namespace quintet {

class FlagSet;

/// Flags that every verb has.
struct CommonOptions {
  LogOptions log;
  BackendOptions backend;
};

/// How a verb ended. A signal that it answered (by stopping early and cleaning up) is no error.
struct VerbOutcome {
  Status status;
  int signal = 0;
  bool missed = false;  ///< the work was done and its result missed what was asked of it: exit code 1

  VerbOutcome() = default;
  VerbOutcome(Error error) : status(std::move(error)) {}     // NOLINT: implicit, so that TRY works
  VerbOutcome(Status result) : status(std::move(result)) {}  // NOLINT
  static VerbOutcome ended_by(int signal) {
    VerbOutcome outcome;
    outcome.signal = signal;
    return outcome;
  }
};

class Verb {
 public:
  virtual ~Verb() = default;

  /// Examples for --help, one a line, each a whole command.
  virtual std::string_view examples() const = 0;
  virtual std::string_view default_log_level() const { return "warn"; }
  virtual void declare(FlagSet& flags) = 0;
  /// The error's kind decides the exit code (app.h).
  virtual VerbOutcome run(const CommonOptions& common) = 0;
};

std::unique_ptr<Verb> make_inspect_verb();
std::unique_ptr<Verb> make_run_verb();
std::unique_ptr<Verb> make_chat_verb();
std::unique_ptr<Verb> make_tokenize_verb();
std::unique_ptr<Verb> make_template_verb();
std::unique_ptr<Verb> make_serve_verb();
std::unique_ptr<Verb> make_bench_verb();
std::unique_ptr<Verb> make_eval_verb();
std::unique_ptr<Verb> make_quantize_verb();
std::unique_ptr<Verb> make_convert_verb();

}  // namespace quintet
