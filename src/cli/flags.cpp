// Declares the shared flags and reads texts.
#include "cli/flags.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/units.h"
#include "cli/terminal.h"

namespace quintet {
namespace {

constexpr int64_t kMaxThreads = 1024;
constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;
constexpr size_t kReadBytes = 64 << 10;

template <class T>
bool parse_whole(const std::string& text, T& value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() && end == text.data() + text.size();
}

CLI::Validator check(std::function<std::string(std::string&)> test) { return CLI::Validator(std::move(test), ""); }

}  // namespace

CLI::Option* integer_flag(CLI::App& app, const std::string& name, int64_t& value, const std::string& help, int64_t low,
                          int64_t high) {
  return app.add_option(name, value, help)->type_name("N")->transform(check([low, high](std::string& text) {
    int64_t parsed = 0;
    if (parse_whole(text, parsed) && parsed >= low && parsed <= high) return std::string();
    return fmt::format("found '{}', allowed is a whole number from {} to {}", text, low, high);
  }));
}

CLI::Option* number_flag(CLI::App& app, const std::string& name, double& value, const std::string& help, double low,
                         double high) {
  return app.add_option(name, value, help)->type_name("X")->transform(check([low, high](std::string& text) {
    double parsed = 0;
    if (parse_whole(text, parsed) && std::isfinite(parsed) && parsed >= low && parsed <= high) return std::string();
    return fmt::format("found '{}', allowed is a number from {} to {}", text, low, high);
  }));
}

void declare_common(CLI::App& app, CommonOptions& common) {
  const auto group = std::string("Everywhere");
  std::string devices = "auto";
  for (std::string_view name : backend_names()) devices += "|" + std::string(name);
  app.add_option("--device", common.backend.device, "What computes (auto: the fastest there is)")
      ->type_name(devices)->group(group)
      ->transform(check([](std::string& text) {
        auto status = check_device(text);
        // The flag's name is in front of every message already.
        return status ? std::string() : status.error().message.substr(std::string_view("--device: ").size());
      }));
  app.add_option("--threads", common.backend.threads, "Threads of the cpu device (0: as many as there are cores)")
      ->type_name("N")->group(group)->transform(check([](std::string& text) {
        int64_t parsed = 0;
        if (parse_whole(text, parsed) && parsed >= 0 && parsed <= kMaxThreads) return std::string();
        return fmt::format("found '{}', allowed is a whole number from 0 to {}", text, kMaxThreads);
      }));
  app.add_option("--log-level", common.log.level, fmt::format("How much to log (here: {})", common.log.level))
      ->type_name("trace|debug|info|warn|error|off")->group(group);
  app.add_option("--log-file", common.log.file, "Log to this file instead of stderr")->type_name("FILE")->group(group);
}

void declare_model(CLI::App& app, std::string& path) {
  app.add_option("MODEL", path, "A GGUF file (any part of a split one) or a Hugging Face folder")->required()
      ->type_name("");
}

void TextFlags::declare(CLI::App& app) {
  app.add_option("--tokenizer", tokenizer, "Take the tokenizer from this GGUF, tokenizer.json or folder")
      ->type_name("PATH");
  app.add_option("--chat-template", chat_template, "Use this Jinja template instead of the model's")->type_name("FILE");
}

LoadOptions TextFlags::load_options() const {
  LoadOptions options;
  options.tokenizer_path = tokenizer;
  options.chat_template_path = chat_template;
  return options;
}

void SamplingFlags::declare(CLI::App& app) {
  const auto group = std::string("Sampling (defaults: the model's generation_config, else greedy)");
  temperature_option_ = number_flag(app, "--temp", temperature_, "Temperature; 0: the likeliest token", 0, 100);
  top_k_option_ = integer_flag(app, "--top-k", top_k_, "Only the k likeliest tokens; 0: all", 0, INT32_MAX);
  top_p_option_ = number_flag(app, "--top-p", top_p_, "Only the likeliest tokens that make up this probability", 0, 1);
  min_p_option_ = number_flag(app, "--min-p", min_p_, "Only tokens of at least this share of the likeliest one", 0, 1);
  repeat_penalty_option_ =
      number_flag(app, "--repeat-penalty", repeat_penalty_, "Weaken tokens of the last 64; 1: off", 0.01, 100);
  for (auto* option : {temperature_option_, top_k_option_, top_p_option_, min_p_option_, repeat_penalty_option_})
    option->group(group);
  integer_flag(app, "--seed", seed_, "Same seed, same text (default 0)", 0, INT64_MAX)->group(group);
}

SampleParams SamplingFlags::params(const GenerationDefaults& defaults) const {
  const auto pick = [](const CLI::Option* option, auto given, const auto& model, auto otherwise) {
    using T = decltype(otherwise);
    return option->count() > 0 ? static_cast<T>(given) : model.value_or(otherwise);
  };
  SampleParams params;
  params.temperature = pick(temperature_option_, temperature_, defaults.temperature, 0.0f);
  params.top_k = pick(top_k_option_, top_k_, defaults.top_k, int32_t{0});
  params.top_p = pick(top_p_option_, top_p_, defaults.top_p, 1.0f);
  params.min_p = pick(min_p_option_, min_p_, defaults.min_p, 0.0f);
  params.repeat_penalty = pick(repeat_penalty_option_, repeat_penalty_, defaults.repeat_penalty, 1.0f);
  return params;
}

void TextSource::declare(CLI::App& app, const std::string& what) {
  text_option = app.add_option("-p,--prompt", text, what)->type_name("TEXT");
  file_option = app.add_option("-f,--file", file, what + " from a file ('-': standard input)")->type_name("FILE")
                    ->excludes(text_option);
}

std::string TextSource::name() const {
  if (text_option->count() > 0) return "--prompt";
  return file_option->count() > 0 && file != "-" ? file : "standard input";
}

Result<std::string> TextSource::read(std::string_view what) const {
  if (text_option->count() > 0) return text;
  if (file_option->count() > 0) return read_text(file, what);
  if (stdin_is_terminal()) return bad_input(fmt::format("no {}: give -p TEXT, -f FILE or a pipe", what));
  return read_text("-", what);
}

Result<std::string> read_text(const std::string& path, std::string_view what) {
  const bool standard_input = path == "-";
  const auto error = [&](int number) {
    auto message = fmt::format("{} ({}): {}", standard_input ? "standard input" : path, what, std::strerror(number));
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
    if (bytes.size() > kMaxTextBytes) {
      status = bad_input(fmt::format("{} ({}): found more than {}, allowed is {}", path, what, format_bytes(kMaxTextBytes),
                                     format_bytes(kMaxTextBytes)));
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
    const size_t length = lead >= 0xC2 && lead < 0xE0 ? 2 : lead >= 0xE0 && lead < 0xF0 ? 3 : lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
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
