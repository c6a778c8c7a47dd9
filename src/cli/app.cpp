// The table of verbs and the way from argv to an exit code.
#include "cli/app.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <new>
#include <span>
#include <vector>

#include "base/printable.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/suggest.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "cli/version.h"
#include "io/mapping_guard.h"

namespace quintet {
namespace {

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
    VerbEntry{"convert", "Turn a Hugging Face folder into a GGUF file", make_convert_verb},
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

std::string did_you_mean(std::string_view name, std::span<const std::string> known) {
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

/// What the command line has beyond the verb's flags and its MODEL, the first of it.
std::string unexpected(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining();
  const auto is_flag = [](const std::string& word) { return word.starts_with("-") && word.size() > 1; };
  const auto flag = std::find_if(extras.begin(), extras.end(), is_flag);
  if (flag == extras.end()) return fmt::format("found '{}', which no flag takes", extras.front());
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options())
    for (const auto& name : option->get_lnames()) known.push_back("--" + name);
  const std::string name = flag->substr(0, flag->find('='));
  return fmt::format("found the unknown flag '{}'{}", name, did_you_mean(name, known));
}

std::string program_help() {
  std::string text = fmt::format(
      "quintet {}: runs and serves large language models on one machine\n\n"
      "Usage: quintet VERB [flags]\n\nVerbs:\n",
      version_number());
  for (const auto& entry : kVerbs) text += fmt::format("  {:<10} {}\n", entry.name, entry.summary);
  text +=
      "\n  quintet VERB --help   flags and examples of a verb (quintet help VERB does the same)\n"
      "  quintet --version     version, commit, compiler, backends (-v and quintet version, too)\n\n"
      "Exit codes: 0 done, 1 failed, 2 bad input or usage, 128 + n ended by signal n (130: Ctrl-C)\n";
  return text;
}

int fail(std::string_view who, std::string_view message, int code) {
  say_error(who, message);
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
  // The library takes the next argument for the value of "--flag=".
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i)
    if (const std::string_view arg = argv[i]; arg.starts_with("--") && arg.find('=') == arg.size() - 1)
      return fail(who, fmt::format("{}: found nothing behind the '=', allowed is a value (see {} --help)", one_line(arg.substr(0, arg.size() - 1), 80), who),
                  kBadInput);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return print_and_end(app.help());
  } catch (const CLI::ExtrasError&) {
    return fail(who, fmt::format("{} (see {} --help)", unexpected(app), who), kBadInput);
  } catch (const CLI::ParseError& error) {
    return fail(who, fmt::format("{} (see {} --help)", error.what(), who), kBadInput);
  }
  if (auto status = flags.files().check(); !status) return exit_code(who, status);
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
  std::vector<char*> args(argv + 1, argv + argc);
  const auto word = [&](size_t i) {
    return i < args.size() ? std::string_view(args[i]) : std::string_view();
  };
  static char help_flag[] = "--help";
  // `help VERB` is `VERB --help`.
  if (word(0) == "help" && !word(1).empty()) args = {args[1], help_flag};
  const std::string_view first = word(0);
  if (first == "--help" || first == "-h" || first == "help") return print_and_end(program_help());
  if (first == "--version" || first == "-V" || first == "-v" || first == "version")
    return print_and_end(version_text());
  if (first.empty())
    return fail("quintet", fmt::format("no verb, allowed are {} (see quintet --help)", verb_names()),
                kBadInput);
  const VerbEntry* entry = find_verb(first);
  if (!entry) {
    const std::vector<std::string> known = [] {
      std::vector<std::string> names;
      for (const auto& verb : kVerbs) names.emplace_back(verb.name);
      return names;
    }();
    return fail("quintet",
                fmt::format("found '{}', allowed are {}{} (see quintet --help)", first, verb_names(),
                            did_you_mean(first, known)),
                kBadInput);
  }
  try {
    return run_verb(*entry, static_cast<int>(args.size()), args.data());
  } catch (const std::bad_alloc&) {
    return fail(fmt::format("quintet {}", entry->name), "out of memory", kFailed);
  }
}

}  // namespace quintet
