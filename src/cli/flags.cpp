// Declares the shared flags and reads texts.
#include "cli/flags.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/units.h"
#include "cli/kernel_table_file.h"
#include "cli/terminal.h"
#include "sampling/params.h"

namespace quintet {
namespace {

constexpr int64_t kMaxThreads = 1024;
constexpr size_t kReadBytes = 64 << 10;

template <class T>
bool parse_whole(const std::string& text, T& value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() && end == text.data() + text.size();
}

/// The parts of "a,b,c", empty ones too.
std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == ',') parts.emplace_back();
    else parts.back() += c;
  return parts;
}

CLI::Validator check(std::function<std::string(std::string&)> test) {
  return CLI::Validator(std::move(test), "");
}

/// Says what was missing in the word that --help has for it.
CLI::Validator not_empty(const std::string& kind) {
  return CLI::Validator(
      [kind](std::string& text) {
        return text.empty() ? fmt::format("found nothing, allowed is {}", kind) : "";
      },
      "");
}

std::string check_whole(const std::string& text, int64_t low, int64_t high) {
  int64_t parsed = 0;
  if (parse_whole(text, parsed) && parsed >= low && parsed <= high) return {};
  return fmt::format("found '{}', allowed is a whole number from {} to {}", text, low, high);
}

}  // namespace

bool Flag::given() const { return option_->count() > 0; }
std::string Flag::name() const { return option_->get_name(); }
Flag& Flag::excludes(Flag other) { return option_->excludes(other.option_), *this; }
Flag& Flag::needs(Flag other) { return option_->needs(other.option_), *this; }
Flag& Flag::group(const std::string& heading) { return option_->group(heading), *this; }

void FlagSet::model(std::string& path) {
  app_.add_option("MODEL", path, "A GGUF file (any part of a split one) or a Hugging Face folder")
      ->required()
      ->type_name("");
  files_.reads("MODEL", path);
}

void FlagSet::models(std::vector<std::string>& paths) {
  app_.add_option("MODEL", paths, "GGUF files or Hugging Face folders")
      ->required()
      ->type_name("")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  files_.reads("MODEL", paths);
}

void FlagSet::optional_model(std::string& path) {
  app_.add_option("MODEL", path, "A GGUF file (any part of a split one) or a Hugging Face folder")->type_name("");
  files_.reads("MODEL", path);
}

void FlagSet::positional(const std::string& name, std::string& value, const std::string& help) {
  app_.add_option(name, value, help)->required()->type_name("");
}

Flag FlagSet::text(const std::string& name, std::string& value, const std::string& kind,
                   const std::string& help) {
  CLI::Option* option = app_.add_option(name, value, help)->type_name(kind);
  if (kind != "TEXT") option->check(not_empty(kind));
  return Flag(option);
}

Flag FlagSet::text_pair(const std::string& name, std::pair<std::string, std::string>& values,
                        const std::string& kind, const std::string& help) {
  return Flag(app_.add_option(name, values, help)
                  ->type_name(kind)
                  ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
}

Flag FlagSet::texts(const std::string& name, std::vector<std::string>& values, const std::string& kind,
                    const std::string& help) {
  return Flag(app_.add_option(name, values, help)
                  ->type_name(kind)
                  ->expected(1)
                  ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
}

Flag FlagSet::bits(const std::string& name, uint64_t& value, const std::string& help) {
  // CLI11 would read the text anew: the option's own value is not used.
  const auto read = [&value](const std::string& text) {
    int64_t negative = 0;
    if (parse_whole(text, value)) return std::string();
    if (!parse_whole(text, negative))
      return fmt::format("found '{}', allowed is a whole number of at most 64 bits", text);
    value = static_cast<uint64_t>(negative);
    return std::string();
  };
  return Flag(app_.add_option(name)->description(help)->type_name("N")->check(read));
}

Flag FlagSet::toggle(const std::string& name, bool& value, const std::string& help) {
  return Flag(app_.add_flag(name, value, help));
}

Flag FlagSet::choice(const std::string& name, std::string& value, std::vector<std::string> allowed,
                     const std::string& help) {
  const auto kind = fmt::format("{}", fmt::join(allowed, "|"));
  const auto test = [allowed = std::move(allowed)](std::string& text) {
    if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return std::string();
    return fmt::format("found '{}', allowed are {}", text, fmt::join(allowed, ", "));
  };
  return Flag(app_.add_option(name, value, help)->type_name(kind)->transform(check(test)));
}

Flag FlagSet::integer(const std::string& name, Integer integer, const std::string& help) {
  const auto test = [low = integer.low, high = integer.high](std::string& text) {
    return check_whole(text, low, high);
  };
  return Flag(app_.add_option(name, integer.value, help)->type_name("N")->transform(check(test)));
}

Flag FlagSet::integers(const std::string& name, Integers integers, const std::string& help) {
  // Split here: the library's own delimiter leaves out what is empty, so that "1,,2" would be "1,2".
  const auto test = [low = integers.low, high = integers.high](std::string& text) {
    for (const std::string& part : split_list(text))
      if (std::string wrong = check_whole(part, low, high); !wrong.empty()) return wrong;
    return std::string();
  };
  const auto take = [&values = integers.values](const std::vector<std::string>& texts) {
    values.clear();
    for (const std::string& text : texts)
      for (const std::string& part : split_list(text)) parse_whole(part, values.emplace_back());
  };
  return Flag(app_.add_option_function<std::vector<std::string>>(name, take, help)
                  ->type_name("N[,N...]")
                  ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
                  ->allow_extra_args(false)
                  ->transform(check(test)));
}

Flag FlagSet::number(const std::string& name, Number number, const std::string& help) {
  const auto test = [low = number.low, high = number.high](std::string& text) {
    double parsed = 0;
    if (parse_whole(text, parsed) && std::isfinite(parsed) && parsed >= low && parsed <= high)
      return std::string();
    return fmt::format("found '{}', allowed is a number from {} to {}", text, low, high);
  };
  return Flag(app_.add_option(name, number.value, help)->type_name("X")->transform(check(test)));
}

void FlagSet::common(CommonOptions& common) {
  const std::string group = "Everywhere";
  app_.add_option("--device", common.backend.device, "What computes (auto: the GPU where there is one and the model fits, else the CPU)")
      ->type_name(fmt::format("auto|{}", fmt::join(backend_names(), "|")))
      ->group(group)
      ->transform(check([](std::string& text) {
        auto status = check_device(text);
        // The flag's name is in front of every message already.
        return status ? std::string() : status.error().message.substr(std::string_view("--device: ").size());
      }));
  app_.add_option("--threads", common.backend.threads,
                  "Threads of the cpu device (0: as many as there are cores)")
      ->type_name("N")
      ->group(group)
      ->transform(check([](std::string& text) { return check_whole(text, 0, kMaxThreads); }));
  app_.add_flag("--eager", common.backend.eager, "The cuda device issues every kernel apart, without graphs")
      ->group(group);
  choice("--cuda-path", common.backend.cuda_path, {cuda_paths().begin(), cuda_paths().end()}, "Kernels of the cuda device (auto: the fastest that it runs; the bits are the same)")
      .group(group);
  app_.add_option("--kernel-table", common.backend.kernel_table,
                  "Choices among the cuda device's kernels, as bench --tune writes them (default: the committed ones)")
      ->type_name("FILE")
      ->group(group)
      ->transform(check([&common](std::string& path) {
        if (path.empty()) return std::string("found nothing, allowed is FILE");
        auto table = read_kernel_table(path);  // once: it may be a pipe
        if (!table) return table.error().message;
        common.backend.table = std::move(table).value();
        return std::string();
      }));
  files_.reads("--kernel-table", common.backend.kernel_table);
  app_.add_flag("--for-racecheck", common.backend.for_racecheck, "The cuda device's barriers in a form that compute-sanitizer's racecheck follows: slower")
      ->group(group);
  app_.add_option("--log-level", common.log.level,
                  fmt::format("How much to log (here: {})", common.log.level))
      ->type_name("trace|debug|info|warn|error|off")
      ->group(group);
  app_.add_option("--log-file", common.log.file, "Log to this file instead of stderr")
      ->type_name("FILE")
      ->check(not_empty("FILE"))
      ->group(group);
  files_.writes("--log-file", common.log.file);
}

void TextFlags::declare(FlagSet& flags) {
  flags.text("--tokenizer", tokenizer, "PATH", "Take the tokenizer from this GGUF, tokenizer.json or folder");
  flags.text("--chat-template", chat_template, "FILE", "Use this Jinja template instead of the model's");
  flags.files().reads("--tokenizer", tokenizer);
  flags.files().reads("--chat-template", chat_template);
}

LoadOptions TextFlags::load_options(int64_t context_tokens) const {
  LoadOptions options;
  options.context = static_cast<int32_t>(context_tokens);
  options.tokenizer_path = tokenizer;
  options.chat_template_path = chat_template;
  return options;
}

void SamplingFlags::declare(FlagSet& flags) {
  const std::string group = "Sampling (defaults: the model's generation_config, else greedy)";
  temperature_flag_ =
      flags.number("--temp", {temperature_, 0, 100}, "Temperature; 0: the likeliest token").group(group);
  top_k_flag_ =
      flags.integer("--top-k", {top_k_, 0, INT32_MAX}, "Only the k likeliest tokens; 0: all").group(group);
  top_p_flag_ =
      flags.number("--top-p", {top_p_, 0, 1}, "Only the likeliest tokens that make up this probability")
          .group(group);
  min_p_flag_ =
      flags.number("--min-p", {min_p_, 0, 1}, "Only tokens of at least this share of the likeliest one")
          .group(group);
  repeat_penalty_flag_ =
      flags.number("--repeat-penalty", {repeat_penalty_, 0.01, 100}, "Weaken tokens of the last 64; 1: off")
          .group(group);
  const std::string whole_text = ": -2 to 2, over prompt and answer; 0: off";
  flags.number("--presence-penalty", {presence_penalty_, -2, 2}, "Weaken tokens that were there" + whole_text)
      .group(group);
  flags
      .number("--frequency-penalty", {frequency_penalty_, -2, 2},
              "Weaken tokens by how often they were there" + whole_text)
      .group(group);
  flags.bits("--seed", seed_, "Same seed, same text (default 0)").group(group);
  flags.texts("--stop", stop_, "TEXT", "End the answer before this text; may be given several times")
      .group(group);
}

Status SamplingFlags::check() const {
  if (auto status = check_stop_strings(stop_); !status) return bad_input("--stop: " + status.error().message);
  return {};
}

void SamplingFlags::apply(const GenerationDefaults& defaults, Request& request) const {
  const auto pick = [](Flag flag, auto given, const auto& model, auto otherwise) {
    return flag.given() ? static_cast<decltype(otherwise)>(given) : model.value_or(otherwise);
  };
  request.seed = seed_;
  SampleParams& params = request.sampling;
  params.temperature = pick(temperature_flag_, temperature_, defaults.temperature, 0.0f);
  params.top_k = pick(top_k_flag_, top_k_, defaults.top_k, int32_t{0});
  params.top_p = pick(top_p_flag_, top_p_, defaults.top_p, 1.0f);
  params.min_p = pick(min_p_flag_, min_p_, defaults.min_p, 0.0f);
  params.repeat_penalty = pick(repeat_penalty_flag_, repeat_penalty_, defaults.repeat_penalty, 1.0f);
  params.presence_penalty = static_cast<float>(presence_penalty_);
  params.frequency_penalty = static_cast<float>(frequency_penalty_);
  // As in the server: these two count the whole text, not a window of it.
  if (presence_penalty_ != 0 || frequency_penalty_ != 0) request.penalty_window = -1;
}

void TextSource::declare(FlagSet& flags, const std::string& what) {
  text_flag = flags.text("-p,--prompt", text, "TEXT", what);
  file_flag =
      flags.text("-f,--file", file, "FILE", what + " from a file ('-': standard input)").excludes(text_flag);
  flags.files().reads("--file", file);
}

std::string TextSource::name() const {
  if (text_flag.given()) return "--prompt";
  return file_flag.given() && file != "-" ? file : "standard input";
}

void TextSource::note_unread_input() const {
  if (name() == "standard input" || stdin_is_terminal()) return;
  struct stat input {};
  int unread_bytes = 0;
  // Of a pipe: what waits now. Somebody who holds its other end and says nothing is not asked.
  if (::fstat(STDIN_FILENO, &input) != 0 || !(S_ISFIFO(input.st_mode) || S_ISREG(input.st_mode)) ||
      ::ioctl(STDIN_FILENO, FIONREAD, &unread_bytes) != 0 || unread_bytes <= 0)
    return;
  say(fmt::format("note: standard input is not read, the text comes from {}", name()));
}

Result<std::string> TextSource::read(std::string_view what) const {
  if (text_flag.given()) return text;
  if (file_flag.given()) return read_text(file, what);
  if (stdin_is_terminal()) return bad_input(fmt::format("no {}: give -p TEXT, -f FILE or a pipe", what));
  return read_text("-", what);
}

Result<std::string> read_text(const std::string& path, std::string_view what, uint64_t limit_bytes) {
  const bool standard_input = path == "-";
  const auto error = [&](int number) {
    auto message =
        fmt::format("{} ({}): {}", standard_input ? "standard input" : path, what, std::strerror(number));
    return number == ENOENT ? not_found(std::move(message)) : bad_input(std::move(message));
  };
  const int fd = standard_input ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return error(errno);
  std::string bytes;
  Status status;
  for (;;) {
    const size_t old = bytes.size();
    bytes.resize(old + kReadBytes);
    const ssize_t got = ::read(fd, bytes.data() + old, kReadBytes);
    const int number = errno;
    bytes.resize(old + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) break;
    if (got < 0 && number == EINTR) continue;
    if (got < 0) {
      status = error(number);
      break;
    }
    if (bytes.size() > limit_bytes) {
      status = bad_input(fmt::format("{} ({}): found more than {}, allowed is {}",
                                     standard_input ? "standard input" : path, what,
                                     format_bytes(limit_bytes), format_bytes(limit_bytes)));
      break;
    }
  }
  if (!standard_input) ::close(fd);
  TRY(status);
  return bytes;
}

size_t find_broken_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const unsigned char lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t length = lead >= 0xC2 && lead < 0xE0   ? 2
                          : lead >= 0xE0 && lead < 0xF0 ? 3
                          : lead >= 0xF0 && lead < 0xF5 ? 4
                                                        : 0;
    if (length == 0 || length > text.size() - i) return i;
    // The second byte's range rules out overlong forms, surrogates and code points past U+10FFFF.
    const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(i + 1) < low || byte(i + 1) > high) return i;
    for (size_t j = 2; j < length; ++j)
      if (byte(i + j) < 0x80 || byte(i + j) > 0xBF) return i;
    i += length;
  }
  return std::string_view::npos;
}

}  // namespace quintet
