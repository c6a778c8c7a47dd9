// The table of verbs and the way from argv to an exit code.
#include "cli/app.h"

#include <CLI/CLI.hpp>
#include <array>
#include <new>

#include "base/printable.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "cli/version.h"
#include "io/mapping_guard.h"

namespace quintet {
namespace {

constexpr size_t kMaxErrorBytes = 4096;
constexpr int kDone = 0, kFailed = 1, kBadInput = 2, kSignalled = 128, kOutputClosed = 141;  // 128 + SIGPIPE

struct VerbEntry {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<Verb> (*make)();
};

constexpr std::array kVerbs = {
    VerbEntry{"run", "Answer one prompt, streamed to standard output", make_run_verb},
    VerbEntry{"chat", "Talk with a model", make_chat_verb},
    VerbEntry{"serve", "Serve a model over HTTP in OpenAI's shape", make_serve_verb},
    VerbEntry{"inspect", "Say what a model file is and what it needs", make_inspect_verb},
    VerbEntry{"tokenize", "Text to token ids and back", make_tokenize_verb},
    VerbEntry{"template", "Render a conversation with a model's chat template", make_template_verb},
    VerbEntry{"bench", "Measure prompt and decode speed beside the machine's ceilings", make_bench_verb},
    VerbEntry{"quantize", "Compress a model's weights into the project's own formats", make_quantize_verb},
    VerbEntry{"eval", "Measure perplexity, and how far models are from a reference", make_eval_verb},
};

const VerbEntry* find_verb(std::string_view name) {
  for (const auto& entry : kVerbs)
    if (entry.name == name) return &entry;
  return nullptr;
}

std::string verb_names() {
  std::string names;
  for (const auto& entry : kVerbs) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

std::string program_help() {
  std::string text = fmt::format(
      "quintet {}: runs and serves large language models on one machine\n\n"
      "Usage: quintet VERB [flags]\n\nVerbs:\n",
      version_number());
  for (const auto& entry : kVerbs) text += fmt::format("  {:<10} {}\n", entry.name, entry.summary);
  text +=
      "\n  quintet VERB --help   flags and examples of a verb\n"
      "  quintet --version     version, commit, compiler, backends\n\n"
      "Exit codes: 0 done, 1 failed, 2 bad input or usage, 128 + n ended by signal n (130: Ctrl-C)\n";
  return text;
}

int fail(std::string_view who, std::string_view message, int code) {
  // Whatever the message quotes: a model file's strings must not move a terminal's cursor, nor fill it.
  say(one_line(fmt::format("{}: {}", who, message), kMaxErrorBytes));
  return code;
}

int exit_code(std::string_view who, const Status& status) {
  if (status) return kDone;
  const Error& error = status.error();
  switch (error.kind) {
    case ErrorKind::bad_input:
    case ErrorKind::not_found: return fail(who, error.message, kBadInput);
    case ErrorKind::cancelled: return kOutputClosed;
    case ErrorKind::no_room:
    case ErrorKind::io:
    case ErrorKind::internal: break;
  }
  return fail(who, error.message, kFailed);
}

int print_and_end(std::string_view text) {
  Output output;
  return exit_code("quintet", output.print(text));
}

int run_verb(const VerbEntry& entry, int argc, char** argv) {
  const std::string who = fmt::format("quintet {}", entry.name);
  const auto verb = entry.make();
  CommonOptions common;
  common.log.level = verb->default_log_level();
  CLI::App app(std::string(entry.summary), who);
  app.get_formatter()->column_width(34);
  FlagSet flags(app);
  verb->declare(flags);
  flags.common(common);
  app.footer(fmt::format(
      "\nExamples:\n{}\nExit codes: 0 done, 1 failed, 2 bad input or usage, 128 + n ended by signal n",
      verb->examples()));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return print_and_end(app.help());
  } catch (const CLI::ParseError& error) {
    return fail(who, fmt::format("{} (see {} --help)", error.what(), who), kBadInput);
  }
  if (auto status = configure_logging(common.log); !status) return exit_code(who, status);
  const VerbOutcome outcome = verb->run(common);
  spdlog::default_logger()->flush();
  if (outcome.signal != 0 && outcome.status) return kSignalled + outcome.signal;
  if (outcome.missed && outcome.status) return kFailed;
  return exit_code(who, outcome.status);
}

}  // namespace

int run_app(int argc, char** argv) {
  ignore_broken_pipes();
  guard_mappings();
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--help" || first == "-h" || first == "help") return print_and_end(program_help());
  if (first == "--version" || first == "-V") return print_and_end(version_text());
  if (first.empty())
    return fail("quintet", fmt::format("no verb, allowed are {} (see quintet --help)", verb_names()),
                kBadInput);
  const VerbEntry* entry = find_verb(first);
  if (!entry)
    return fail("quintet",
                fmt::format("found '{}', allowed are {} (see quintet --help)", first, verb_names()),
                kBadInput);
  try {
    return run_verb(*entry, argc - 1, argv + 1);
  } catch (const std::bad_alloc&) {
    return fail(fmt::format("quintet {}", entry->name), "out of memory", kFailed);
  }
}

}  // namespace quintet
