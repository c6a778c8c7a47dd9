// `quintet run`: one prompt, one streamed answer.
#include <nlohmann/json.hpp>

#include "base/output_file.h"
#include "cli/conversation.h"
#include "cli/flags.h"
#include "cli/generation.h"
#include "cli/interrupt.h"
#include "cli/npy_file.h"
#include "cli/session.h"
#include "cli/terminal.h"

namespace quintet {
namespace {

constexpr int32_t kDefaultContext_tokens = 4096;  // where neither --context nor the prompt asks for more
constexpr int32_t kLogitsChunk_tokens = 64;       // Ctrl-C waits for one

class RunVerb : public Verb {
 public:
  std::string_view examples() const override {
    return "  quintet run model.gguf -p \"What is the capital of France?\"\n"
           "  quintet run model.gguf --raw -p \"Once upon a time\" -n 100 --temp 0.8 --seed 7\n"
           "  git diff | quintet run model.gguf --system \"Describe this change in one line.\"\n"
           "  quintet run model.gguf -f prompt.txt --json > answer.json\n"
           "  quintet run model.gguf --raw -f text.txt -n 0 --dump-logits logits.npy\n";
  }

  void declare(FlagSet& flags) override {
    model_.declare(flags);
    source_.declare(flags, "The prompt");
    tokens_flag_ =
        flags.integer("-n,--tokens", {tokens_, -1, INT32_MAX},
                      "Most tokens to answer (default 512); 0: none, -1: until the context is full");
    Flag raw = flags.toggle("--raw", raw_, "Continue the text as it is, without the chat template");
    flags.toggle("--special", special_, "With --raw: special tokens that the text writes out count as such")
        .needs(raw);
    flags.text("--system", system_, "TEXT", "System prompt").excludes(raw);
    flags.toggle("--json", json_, "Print one JSON object at the end instead of streaming text");
    logits_flag_ = flags.text("--dump-logits", logits_path_, "FILE.npy",
                              "Write the prompt's logits, float32 [tokens, vocabulary]");
    flags.files().writes("--dump-logits", logits_path_);
    flags.toggle("--unfused", unfused_, "Dequantize, multiply and the rest apart, as `bench --unfused` does: slower, to compare with");
    flags.integer("--context", {context_, 2, INT32_MAX},
                  "Tokens of prompt and answer together (default: what they need, up to the model's)");
    text_.declare(flags);
    sampling_.declare(flags);
  }

  VerbOutcome run(const CommonOptions& common) override {
    TRY(model_.check());
    TRY_ASSIGN(std::string prompt, source_.read("prompt"));
    if (prompt.empty())
      return bad_input(fmt::format(
          "{} (prompt): found an empty text, allowed is one byte or more, from -p TEXT, -f FILE or a pipe",
          source_.name()));
    TRY(sampling_.check());
    if (logits_flag_.given()) TRY(OutputFile::check(logits_path_));
    // Before there is a tokenizer: no text has more tokens than bytes, but for a few that mark its begin and its turns.
    const int64_t estimate = std::min<int64_t>(static_cast<int64_t>(prompt.size()) + std::max<int64_t>(tokens_, 0) + 64, INT32_MAX);
    TRY_ASSIGN(Session session, open_session(model_, common, text_.load_options(context_),
                                             {.context = static_cast<int32_t>(context_ > 0 ? context_ : estimate), .sequences = 1, .unfused = unfused_}));
    source_.note_unread_input();
    const Model& model = *session.model;
    TRY_ASSIGN(const std::vector<TokenId> ids, encode(model, std::move(prompt)));
    TRY(check_context(context_, model));
    const Interrupts interrupts;
    const int32_t context = context_for(model, static_cast<int64_t>(ids.size()));
    if (static_cast<int64_t>(ids.size()) > context ||
        (tokens_ != 0 && static_cast<int64_t>(ids.size()) == context))
      return bad_input(fmt::format("prompt: found {} tokens, allowed are {} (the context of {} tokens{})",
                                   ids.size(), tokens_ == 0 ? context : context - 1, context,
                                   context < model.config.context ? "; --context raises it" : ""));
    if (logits_flag_.given()) {
      const Status dumped = dump_logits(session, ids, interrupts);
      if (interrupts.signal() != 0) return VerbOutcome::ended_by(interrupts.signal());
      TRY(dumped);
    }
    Generation answer;
    answer.finish = FinishReason::length;
    answer.usage.prompt_tokens = static_cast<int32_t>(ids.size());
    if (tokens_ != 0) {
      TRY(session.start(
          {.context = context, .sequences = 1, .kv_tokens = context, .unfused = unfused_, .unread_events = context}));
      TRY_ASSIGN(answer, generate_answer(session, ids, interrupts));
    }
    TRY(report(answer, context));
    return interrupts.signal() != 0 ? VerbOutcome::ended_by(interrupts.signal()) : VerbOutcome();
  }

 private:
  Result<std::vector<TokenId>> encode(const Model& model, std::string prompt) const {
    if (raw_ || (!model.chat_template && model.chat_template_source.empty())) {
      if (!system_.empty())
        return bad_input(fmt::format(
            "--system: {} has no chat template to put it into (--chat-template gives one)", model.path));
      const auto& bos = model.tokenizer->spec().bos;
      const bool has_bos = special_ && bos && prompt.starts_with(model.tokenizer->token_text(*bos));
      return model.tokenizer->encode(prompt, {.add_bos = !has_bos, .parse_special = special_});
    }
    // A shell ends its lines with a newline that nobody meant as part of the question.
    if (source_.from_file() && prompt.back() == '\n') prompt.pop_back();
    auto messages = nlohmann::ordered_json::array();
    if (!system_.empty()) {
      TRY_ASSIGN(auto content, json_text(system_, "--system"));
      messages.push_back({{"role", "system"}, {"content", std::move(content)}});
    }
    TRY_ASSIGN(auto content, json_text(prompt, "prompt"));
    messages.push_back({{"role", "user"}, {"content", std::move(content)}});
    return encode_conversation(model, messages);
  }

  /// Room for the prompt and the answer, within what the model was made for.
  int32_t context_for(const Model& model, int64_t prompt_tokens) const {
    const int64_t wanted = context_ > 0   ? context_
                           : tokens_ >= 0 ? prompt_tokens + tokens_
                                          : std::max<int64_t>(kDefaultContext_tokens, 2 * prompt_tokens);
    return static_cast<int32_t>(std::min<int64_t>(wanted, model.config.context));
  }

  /// A signal ends it after the chunk that is being computed; no file is left then.
  Status dump_logits(Session& session, const std::vector<TokenId>& ids, const Interrupts& interrupts) const {
    const int32_t vocabulary = session.model->config.vocabulary;
    TRY_ASSIGN(NpyFile file, NpyFile::create(logits_path_, static_cast<int64_t>(ids.size()), vocabulary));
    TRY(prompt_logits(*session.backend, *session.model, ids, kLogitsChunk_tokens,
                      [&](int32_t, int32_t rows, const float* logits) -> Status {
                        if (interrupts.signal() != 0)
                          return Error{ErrorKind::cancelled, "stopped by a signal"};
                        return file.write(logits, int64_t{rows} * vocabulary);
                      }, unfused_));
    return file.finish();
  }

  Result<Generation> generate_answer(Session& session, const std::vector<TokenId>& ids,
                                     const Interrupts& interrupts) const {
    const Model& model = *session.model;
    Request request;
    request.id = 1;
    request.prompt = ids;
    request.max_new_tokens = static_cast<int32_t>(std::max<int64_t>(tokens_, 0));
    request.stop_ids = model.stop_ids;
    sampling_.apply(model.defaults, request);
    Output output;
    const auto stream = [&output](std::string_view text) { return output.print(text); };
    return generate({.engine = *session.engine,
                     .tokenizer = *model.tokenizer,
                     .request = std::move(request),
                     .stop = sampling_.stop(),
                     .interrupts = &interrupts,
                     .on_text = json_ ? std::function<Status(std::string_view)>() : stream});
  }

  Status report(const Generation& answer, int32_t context) const {
    Output output;
    if (json_) {
      const nlohmann::ordered_json object = {{"text", answer.text},
                                             {"tokens", answer.tokens},
                                             {"finish_reason", finish_name(answer.finish)},
                                             {"usage",
                                              {{"prompt_tokens", answer.usage.prompt_tokens},
                                               {"completion_tokens", answer.usage.completion_tokens}}}};
      TRY(output.print(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"));
    } else if (tokens_ != 0 && (answer.text.empty() || answer.text.back() != '\n')) {
      TRY(output.print("\n"));
    }
    if (tokens_ == 0) return {};
    const bool reached_tokens = tokens_ > 0 && answer.usage.completion_tokens >= tokens_;
    if (answer.finish == FinishReason::length && reached_tokens && !tokens_flag_.given())
      say(fmt::format("stopped after {} tokens (-n raises it)", tokens_));
    else if (answer.finish == FinishReason::length && !reached_tokens)
      say(fmt::format("stopped: the context of {} tokens is full (--context raises it, up to the model's)",
                      context));
    say(speed_line(answer));
    return {};
  }

  ModelSource model_;
  std::string system_, logits_path_;
  TextSource source_;
  TextFlags text_;
  SamplingFlags sampling_;
  Flag tokens_flag_, logits_flag_;
  int64_t tokens_ = 512, context_ = 0;
  bool raw_ = false, special_ = false, json_ = false, unfused_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_run_verb() { return std::make_unique<RunVerb>(); }

}  // namespace quintet
