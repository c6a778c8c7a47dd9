// Flags that several verbs share, and the checks that make their error messages name what was found and allowed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "cli/verb.h"
#include "engine/request.h"
#include "model/model.h"

namespace quintet {

void declare_common(CLI::App& app, CommonOptions& common);

/// The positional MODEL.
void declare_model(CLI::App& app, std::string& path);

/// A whole number in [low, high].
CLI::Option* integer_flag(CLI::App& app, const std::string& name, int64_t& value, const std::string& help, int64_t low,
                          int64_t high);
/// A finite number in [low, high].
CLI::Option* number_flag(CLI::App& app, const std::string& name, double& value, const std::string& help, double low,
                         double high);

/// --tokenizer and --chat-template.
struct TextFlags {
  std::string tokenizer, chat_template;
  void declare(CLI::App& app);
  LoadOptions load_options() const;
};

/// --temp, --top-k, --top-p, --min-p, --repeat-penalty, --seed.
class SamplingFlags {
 public:
  void declare(CLI::App& app);
  /// What was given on the command line; else the model's generation_config; else greedy.
  SampleParams params(const GenerationDefaults& defaults) const;
  uint64_t seed() const { return static_cast<uint64_t>(seed_); }

 private:
  double temperature_ = 0, top_p_ = 1, min_p_ = 0, repeat_penalty_ = 1;
  int64_t top_k_ = 0, seed_ = 0;
  CLI::Option *temperature_option_ = nullptr, *top_k_option_ = nullptr, *top_p_option_ = nullptr,
              *min_p_option_ = nullptr, *repeat_penalty_option_ = nullptr;
};

/// Where a verb's text comes from: -p TEXT, -f FILE ("-": standard input), or a pipe on standard input.
struct TextSource {
  std::string text, file;
  CLI::Option *text_option = nullptr, *file_option = nullptr;

  void declare(CLI::App& app, const std::string& what);
  /// All bytes as they are. `what` names them in errors ("prompt"). bad_input where nothing was given.
  Result<std::string> read(std::string_view what) const;
  /// Where read() takes it from: the file's name, "standard input" or "--prompt".
  std::string name() const;
  /// True where read() gives a file or a pipe, whose last newline is the file's and not the text's.
  bool from_file() const { return text_option->count() == 0; }
};

/// All bytes of a file ("-": standard input). `what` says in errors what it was meant to be.
Result<std::string> read_text(const std::string& path, std::string_view what);

/// The offset of the first byte that is not UTF-8, or npos.
size_t find_broken_utf8(std::string_view text);

}  // namespace quintet
