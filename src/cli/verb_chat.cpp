// `quintet chat`: a conversation at the terminal, or in a pipe one line a turn.
#include <signal.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/output_file.h"
#include "base/printable.h"
#include "cli/conversation.h"
#include "cli/flags.h"
#include "cli/generation.h"
#include "cli/interrupt.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "io/mapped_file.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultContext_tokens = 8192;
constexpr int64_t kMaxReserve_tokens =
    512;  // room that drop-turns keeps free for an answer, where -n asks for no less

constexpr std::string_view kHelp =
    "/reset        forget the conversation (the system prompt stays)\n"
    "/save FILE    write the conversation as JSON\n"
    "/load FILE    go on with a saved conversation\n"
    "/help         this\n"
    "/exit         leave (Ctrl-D does too)\n"
    "\"\"\"           begins and ends a message of several lines; a line that ends in \\ goes on in the "
    "next\n"
    "//TEXT        sends /TEXT\n"
    "Ctrl-C stops an answer, or drops a message that is not finished; twice in a row, it leaves.";

enum class Overflow { error, drop_turns };

class ChatVerb : public Verb {
 public:
  std::string_view examples() const override {
    return "  quintet chat model.gguf\n"
           "  quintet chat model.gguf --system \"You are a terse expert.\" --temp 0.7\n"
           "  printf 'Hello\\nAnd in French?\\n' | quintet chat model.gguf\n"
           "  quintet chat model.gguf --context 2048 --overflow drop-turns\n";
  }

  void declare(FlagSet& flags) override {
    flags.model(model_path_);
    files_ = &flags.files();
    flags.text("--system", system_, "TEXT", "System prompt, kept whatever else is dropped");
    flags.integer("-n,--tokens", {tokens_, 1, INT32_MAX},
                  "Most tokens of an answer (default: until the context is full)");
    flags.integer("--context", {context_, 2, INT32_MAX},
                  "Tokens of the whole conversation (default: the model's, at most 8192)");
    flags.choice("--overflow", overflow_, {"error", "drop-turns"},
                 "When the context is full: say so, or drop the oldest turns (default error)");
    text_.declare(flags);
    sampling_.declare(flags);
  }

  VerbOutcome run(const CommonOptions& common) override {
    if (!system_.empty()) TRY(json_text(system_, "--system"));
    TRY(sampling_.check());
    TRY_ASSIGN(session_, open_session({.path = model_path_}, common, text_.load_options(context_),
                                        {.context = static_cast<int32_t>(context_ > 0 ? context_ : kDefaultContext_tokens), .sequences = 1}));
    TRY(check_template(*session_.model));
    TRY(check_context(context_, *session_.model));
    const int64_t context =
        context_ > 0 ? context_ : std::min<int64_t>(kDefaultContext_tokens, session_.model->config.context);
    TRY(session_.start({.context = static_cast<int32_t>(context),
                        .sequences = 1,
                        .kv_tokens = context,
                        .unread_events = static_cast<int32_t>(context)}));
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
    Interrupts interrupts(/*kill_after=*/3);
    return talk(interrupts);
  }

 private:
  VerbOutcome talk(Interrupts& interrupts) {
    const bool terminal = stdin_is_terminal();
    if (terminal)
      say(fmt::format("{}: context of {} tokens, /help tells more", one_line(session_.model->config.name, 80),
                      session_.engine->limits().context));
    LineReader reader(&interrupts);
    std::string text;
    for (;;) {
      const auto outcome = read_message(reader, interrupts, terminal, text);
      if (outcome == LineReader::Outcome::end) {
        if (terminal) say("");
        return {};
      }
      Status status;
      if (outcome == LineReader::Outcome::line) {
        if (text == "/exit" || text == "/quit") return {};
        if (text.starts_with("/") && !text.starts_with("//"))
          status = command(text);
        else if (!text.empty())
          status = answer(text.starts_with("//") ? text.substr(1) : text, interrupts);
      }
      if (const int signal = interrupts.signal(); signal != 0) {
        interrupts.acknowledge();
        const bool at_prompt = outcome == LineReader::Outcome::interrupted;
        if (terminal && at_prompt) say("");
        if (signal != SIGINT || interrupts.count() >= 2 || !terminal) return VerbOutcome::ended_by(signal);
        say(!at_prompt     ? "(stopped; Ctrl-C again leaves)"
            : text.empty() ? "(Ctrl-C again leaves)"
                           : "(message dropped; Ctrl-C again leaves)");
      }
      if (status) continue;
      // A script must not go on with half a conversation; a person can mend it.
      if (!terminal || status.error().kind == ErrorKind::cancelled) return status;
      say_error("quintet chat", status.error().message);
    }
  }

  /// One message: a line, lines joined by a \ at their ends, or what stands between two """. Whoever ends a
  /// line is at work: the Ctrl-C before it no longer counts. Interrupted, `text` is the draft so far.
  static LineReader::Outcome read_message(LineReader& reader, Interrupts& interrupts, bool terminal,
                                          std::string& text) {
    constexpr std::string_view kQuotes = "\"\"\"";
    text.clear();
    bool quoted = false;
    std::string line;
    for (bool first = true;; first = false) {
      if (terminal) hint(first ? "> " : "  ");
      const auto outcome = reader.read(line);
      if (outcome == LineReader::Outcome::end && !first) return LineReader::Outcome::line;
      if (outcome != LineReader::Outcome::line) return outcome;
      interrupts.clear();
      if (first && line.starts_with(kQuotes)) {
        quoted = true;
        line.erase(0, kQuotes.size());
      }
      if (quoted) {
        if (line.ends_with(kQuotes)) {
          text += line.substr(0, line.size() - kQuotes.size());
          if (text.ends_with('\n')) text.pop_back();
          return LineReader::Outcome::line;
        }
        text += line;
        if (!text.empty()) text += '\n';
      } else if (line.ends_with('\\')) {
        text += line.substr(0, line.size() - 1) + '\n';
      } else {
        text += line;
        return LineReader::Outcome::line;
      }
    }
  }

  void reset() {
    const Json system = !messages_.empty() && messages_[0]["role"] == "system" ? messages_[0] : Json();
    messages_ = Json::array();
    if (!system.is_null()) messages_.push_back(system);
  }

  Status command(std::string_view text) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string_view name = text.substr(0, space);
    std::string argument(text.substr(std::min(text.find_first_not_of(' ', space), text.size())));
    while (argument.ends_with(' ')) argument.pop_back();
    const bool takes_file = name == "/save" || name == "/load";
    if (!takes_file && !argument.empty() &&
        (name == "/help" || name == "/reset" || name == "/exit" || name == "/quit"))
      return bad_input(fmt::format("{}: found '{}', allowed is {} alone", name, argument, name));
    if (name == "/help") return say(kHelp), Status();
    if (name == "/reset") return reset(), say("(forgotten)"), Status();
    if (!takes_file)
      return bad_input(fmt::format(
          "found '{}', allowed are /reset, /save FILE, /load FILE, /help, /exit (//TEXT sends /TEXT)", name));
    if (argument.empty()) return bad_input(fmt::format("{}: found no file, allowed is {} FILE", name, name));
    return name == "/save" ? save(argument) : load(argument);
  }

  Status save(const std::string& path) const {
    TRY(files_->check_output("/save", path));
    TRY_ASSIGN(OutputFile file, OutputFile::create(path));
    const std::string text = messages_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    if (std::fwrite(text.data(), 1, text.size(), file.stream()) != text.size()) return file.write_error();
    TRY(file.finish());
    say(fmt::format("({} messages saved to {})", messages_.size(), path));
    return {};
  }

  Status load(const std::string& path) {
    TRY_ASSIGN(const std::string text,
               read_text_file(path, kMaxTextBytes));  // no pipe, which could keep one waiting
    TRY_ASSIGN(Json loaded, parse_messages(text, path, nullptr));
    reset();
    const bool brings_system = !loaded.empty() && loaded[0]["role"] == "system";
    if (brings_system) messages_ = Json::array();
    for (auto& message : loaded) messages_.push_back(std::move(message));
    say(fmt::format("({} messages loaded from {})", loaded.size(), path));
    return {};
  }

  /// Asks, streams the answer and keeps both in the conversation. Neither is kept where it fails.
  Status answer(const std::string& text, const Interrupts& interrupts) {
    TRY_ASSIGN(Json content, json_text(text, "message"));
    messages_.push_back({{"role", "user"}, {"content", std::move(content)}});
    auto ids = fitting_prompt();
    auto generation = ids ? generate_answer(std::move(*ids), interrupts) : Result<Generation>(ids.error());
    if (!generation) {
      messages_.erase(messages_.size() - 1);
      return generation.error();
    }
    messages_.push_back({{"role", "assistant"}, {"content", generation->text}});
    LOG_INFO("{}", speed_line(*generation));
    const bool asked_for = tokens_ > 0 && generation->usage.completion_tokens >= tokens_;
    if (generation->finish != FinishReason::length || asked_for) return {};
    auto message = fmt::format("the answer stopped: the context of {} tokens is full",
                               session_.engine->limits().context);
    if (overflow() == Overflow::error)
      return no_room(message + "; /reset, --overflow drop-turns or a larger --context");
    say("(" + message + ")");
    return {};
  }

  Result<Generation> generate_answer(std::vector<TokenId> ids, const Interrupts& interrupts) {
    const Model& model = *session_.model;
    Request request;
    request.id = ++requests_;
    request.prompt = std::move(ids);
    request.max_new_tokens = static_cast<int32_t>(tokens_);
    request.stop_ids = model.stop_ids;
    sampling_.apply(model.defaults, request);
    Output output;
    TRY_ASSIGN(Generation generation,
               generate({.engine = *session_.engine,
                         .tokenizer = *model.tokenizer,
                         .request = std::move(request),
                         .stop = sampling_.stop(),
                         .interrupts = &interrupts,
                         .on_text = [&](std::string_view piece) { return output.print(piece); }}));
    TRY(output.print("\n"));
    return generation;
  }

  Overflow overflow() const { return overflow_ == "error" ? Overflow::error : Overflow::drop_turns; }

  /// The conversation as ids that leave room for an answer; drops the oldest turns where that is wanted.
  Result<std::vector<TokenId>> fitting_prompt() {
    const int64_t context = session_.engine->limits().context;
    const int64_t reserve =
        overflow() == Overflow::error
            ? 1
            : std::min(tokens_ > 0 ? tokens_ : kMaxReserve_tokens, std::max<int64_t>(context / 4, 1));
    for (int dropped = 0;; ++dropped) {
      TRY_ASSIGN(std::vector<TokenId> ids, encode_conversation(*session_.model, messages_));
      const auto used = static_cast<int64_t>(ids.size());
      const bool can_drop = overflow() == Overflow::drop_turns && oldest_turn_end() < messages_.size();
      const bool fits = used + reserve <= context;
      if (fits || (!can_drop && used < context)) {
        if (dropped > 0)
          say(fmt::format("({} oldest {} dropped: the context of {} tokens was full)", dropped,
                          dropped == 1 ? "turn" : "turns", context));
        return ids;
      }
      if (!can_drop)
        return no_room(overflow() == Overflow::error
                           ? fmt::format("the context is full: the conversation takes {} tokens, allowed are "
                                         "{}; /reset, --overflow "
                                         "drop-turns or a larger --context",
                                         used, context - 1)
                           : fmt::format("the message takes {} tokens with its system prompt, allowed are "
                                         "{}; --context raises it",
                                         used, context - 1));
      const size_t first = first_turn();
      messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(first),
                      messages_.begin() + static_cast<std::ptrdiff_t>(oldest_turn_end()));
    }
  }

  size_t first_turn() const { return !messages_.empty() && messages_[0]["role"] == "system" ? 1 : 0; }

  /// Where the second turn begins: the next message of the user after the first; the end where there is one
  /// turn alone.
  size_t oldest_turn_end() const {
    size_t end = first_turn() + 1;
    while (end < messages_.size() && messages_[end]["role"] != "user") ++end;
    return std::min(end, messages_.size());
  }

  const NamedFiles* files_ = nullptr;  ///< of the flags, which outlive the run
  std::string model_path_, system_, overflow_ = "error";
  TextFlags text_;
  SamplingFlags sampling_;
  int64_t tokens_ = 0, context_ = 0;
  Session session_;
  Json messages_ = Json::array();
  RequestId requests_ = 0;
};

}  // namespace

std::unique_ptr<Verb> make_chat_verb() { return std::make_unique<ChatVerb>(); }

}  // namespace quintet
