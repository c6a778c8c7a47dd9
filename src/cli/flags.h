// Flags of a verb, and those that several verbs share. Error messages name what was found and what is
// allowed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/named_files.h"
#include "cli/verb.h"
#include "engine/request.h"
#include "model/model.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quintet {

/// A flag that was declared; cheap to copy. Lives as long as its FlagSet.
class Flag {
 public:
  Flag() = default;
  explicit Flag(CLI::Option* option) : option_(option) {}
  /// True where the command line has it.
  bool given() const;
  /// As it is written: "--bits".
  std::string name() const;
  Flag& excludes(Flag other);
  Flag& needs(Flag other);
  /// The heading under which --help shows it.
  Flag& group(const std::string& heading);

 private:
  CLI::Option* option_ = nullptr;
};

/// Declares flags on CLI11, which only flags.cpp and app.cpp include: it takes ten seconds to compile.
class FlagSet {
 public:
  explicit FlagSet(CLI::App& app) : app_(app) {}

  /// The positional MODEL.
  void model(std::string& path);
  /// One or more of them.
  void models(std::vector<std::string>& paths);
  /// The same where something else may stand for it.
  void optional_model(std::string& path);
  /// Another positional argument, which must be given.
  void positional(const std::string& name, std::string& value, const std::string& help);
  /// `name` as "-n,--tokens"; `kind` is what --help shows for the value: "FILE". Only where that is "TEXT"
  /// may the value be empty: elsewhere it would look as if the flag were not there.
  Flag text(const std::string& name, std::string& value, const std::string& kind, const std::string& help);
  /// Two values after one flag; `kind` as "MODEL FILE".
  Flag text_pair(const std::string& name, std::pair<std::string, std::string>& values,
                 const std::string& kind, const std::string& help);
  /// May be given several times.
  Flag texts(const std::string& name, std::vector<std::string>& values, const std::string& kind,
             const std::string& help);
  /// Any 64-bit integer, signed or not.
  Flag bits(const std::string& name, uint64_t& value, const std::string& help);
  Flag toggle(const std::string& name, bool& value, const std::string& help);
  Flag choice(const std::string& name, std::string& value, std::vector<std::string> allowed,
              const std::string& help);

  struct Integer {
    int64_t& value;
    int64_t low, high;  ///< allowed, both included
  };
  Flag integer(const std::string& name, Integer integer, const std::string& help);

  /// Whole numbers with commas between; replaces what `values` holds.
  struct Integers {
    std::vector<int64_t>& values;
    int64_t low, high;
  };
  Flag integers(const std::string& name, Integers integers, const std::string& help);

  struct Number {
    double& value;
    double low, high;
  };
  Flag number(const std::string& name, Number number, const std::string& help);

  /// Those that every verb has.
  void common(CommonOptions& common);

  /// Which flags name files to read and to write; every one of a verb has its entry. MODEL's and the log's are there.
  NamedFiles& files() { return files_; }

 private:
  CLI::App& app_;
  NamedFiles files_;
};

/// --tokenizer and --chat-template.
struct TextFlags {
  std::string tokenizer, chat_template;
  void declare(FlagSet& flags);
  /// `context_tokens`: of --context, 0 where the verb has none.
  LoadOptions load_options(int64_t context_tokens = 0) const;
};

/// --temp, --top-k, --top-p, --min-p, --repeat-penalty, --presence-penalty, --frequency-penalty, --seed,
/// --stop.
class SamplingFlags {
 public:
  void declare(FlagSet& flags);
  /// What was given on the command line; else the model's generation_config; else greedy.
  void apply(const GenerationDefaults& defaults, Request& request) const;
  /// bad_input where a --stop cannot be used.
  Status check() const;
  const std::vector<std::string>& stop() const { return stop_; }

 private:
  double temperature_ = 0, top_p_ = 1, min_p_ = 0, repeat_penalty_ = 1;
  double presence_penalty_ = 0, frequency_penalty_ = 0;
  int64_t top_k_ = 0;
  uint64_t seed_ = 0;
  std::vector<std::string> stop_;
  Flag temperature_flag_, top_k_flag_, top_p_flag_, min_p_flag_, repeat_penalty_flag_;
};

/// Where a verb's text comes from: -p TEXT, -f FILE ("-": standard input), or a pipe on standard input.
struct TextSource {
  std::string text, file;
  Flag text_flag, file_flag;

  void declare(FlagSet& flags, const std::string& what);
  /// All bytes as they are. `what` names them in errors ("prompt"). bad_input where nothing was given.
  Result<std::string> read(std::string_view what) const;
  /// Where read() takes it from: the file's name, "standard input" or "--prompt".
  std::string name() const;
  /// A note on stderr where a pipe or file on standard input holds text that read() did not take.
  void note_unread_input() const;
  /// True where read() gives a file or a pipe, whose last newline is the file's and not the text's.
  bool from_file() const { return !text_flag.given(); }
};

/// More is no prompt for any context.
inline constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;

/// All bytes of a file ("-": standard input). `what` says in errors what it was meant to be.
Result<std::string> read_text(const std::string& path, std::string_view what,
                              uint64_t limit_bytes = kMaxTextBytes);

/// The offset of the first byte that is not UTF-8, or npos.
size_t find_broken_utf8(std::string_view text);

}  // namespace quintet
