// `quintet serve`: an engine behind HTTP until somebody stops it.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/log.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/session.h"
#include "server/options_check.h"

namespace quintet {
namespace {

constexpr uint64_t kMaxKeyBytes = 4096;
constexpr int32_t kBlock_tokens = 16;
constexpr int64_t kLeastKvTokens = 256;  // one question and its answer

class ServeVerb : public Verb {
 public:
  std::string_view examples() const override {
    return "  quintet serve model.gguf\n"
           "  quintet serve model.gguf --host 0.0.0.0 --port 8080 --api-key-file key.txt --sequences 8\n"
           "  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
           "       -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"stream\": true}'\n";
  }
  std::string_view default_log_level() const override { return "info"; }

  void declare(FlagSet& flags) override {
    model_.declare(flags);
    flags.text("--host", server_.host, "ADDRESS",
               "Address to listen on (default 127.0.0.1: this machine alone)");
    flags.integer("--port", {port_, 0, 65535}, "Port (default 8000; 0: any free one, logged)");
    flags.text("--model-name", server_.model_alias, "ID",
               "The id that clients name (default: the file's name without .gguf)");
    flags.text("--api-key-file", api_key_path_, "FILE",
               "Ask for the key in this file: \"Authorization: Bearer KEY\"");
    flags.files().reads("--api-key-file", api_key_path_);
    flags.text("--cors-origin", server_.cors_origin, "ORIGIN", "Let pages of this origin call ('*': any)");
    flags.integer("--context", {context_, 2, INT32_MAX},
                  "Tokens of one request, prompt and answer (default: the model's, as memory allows)");
    flags.integer("--sequences", {sequences_, 1, 1024}, "Requests that run at once (default 16)");
    flags.integer("--waiting", {waiting_, 1, 1 << 20},
                  "Requests that may wait; more are answered 503 (default 256)");
    flags.integer("--kv-tokens", {kv_tokens_, kLeastKvTokens, INT32_MAX},
                  "Room of the KV cache over all requests (default: 4096 for each of --sequences, as memory allows)");
    flags.integer("--grace", {grace_s_, 0, 3600},
                  "Seconds that running answers have at the end (default 10)");
    text_.declare(flags);
  }

  VerbOutcome run(const CommonOptions& common) override {
    TRY(model_.check());
    TRY(check_server_options(server_));
    if (!api_key_path_.empty()) TRY(read_api_key());
    if (kv_tokens_ > 0 && kv_tokens_ < sequences_ * kBlock_tokens)
      return bad_input(fmt::format(
          "--kv-tokens: found {}, allowed are at least {}: a block of {} tokens for each of the {} requests "
          "that --sequences lets run at once",
          kv_tokens_, sequences_ * kBlock_tokens, kBlock_tokens, sequences_));
    if (kv_tokens_ > 0 && kv_tokens_ < context_)
      return bad_input(fmt::format("--kv-tokens: found {}, allowed are at least the {} of --context",
                                   kv_tokens_, context_));
    server_.port = static_cast<uint16_t>(port_);
    TRY(check_address(server_.host, server_.port));
    const EngineOptions engine{.context = static_cast<int32_t>(context_),
                               .sequences = static_cast<int32_t>(sequences_),
                               .waiting = static_cast<int32_t>(waiting_),
                               .kv_tokens = kv_tokens_,
                               .block_tokens = kBlock_tokens};
    TRY_ASSIGN(Session session, open_session(model_, common, text_.load_options(context_), engine));
    TRY(check_context(context_, *session.model));
    TRY(session.start(engine));
    if (!session.model->chat_template_error.empty())
      LOG_WARN("{}; chats are refused", session.model->chat_template_error);
    server_.grace_ms = grace_s_ * 1000;
    server_.numerics_id = session.backend->numerics().id();
    Interrupts interrupts(/*kill_after=*/3);
    TRY_ASSIGN(const auto server, start_server(*session.engine, *session.model, server_));
    const EngineLimits limits = session.engine->limits();
    LOG_INFO("{} answers at http://{}/v1 (at most {} requests at once, {} tokens in one, {} in all of them)",
             server->model_id(), authority(server_.host, server->port()), limits.sequences, limits.context,
             limits.kv_tokens);
    wait_for_signal(interrupts);
    LOG_INFO("stopping: running answers have {} s, a second signal cuts them", grace_s_);
    server->request_stop();
    std::jthread second([&](const std::stop_token& done) {
      while (!done.stop_requested() && interrupts.count() < 2)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (!done.stop_requested()) server->request_stop();
    });
    if (const Status ended = server->wait(); !ended) {
      LOG_ERROR("{}; the server ends without it", ended.error().message);
      std::_Exit(1);  // destructors would wait for the thread
    }
    return {};  // being told to stop is how a server ends well: exit code 0
  }

 private:
  Status read_api_key() {
    TRY_ASSIGN(server_.api_key, read_text(api_key_path_, "API key", kMaxKeyBytes));
    std::string& key = server_.api_key;
    while (key.ends_with('\n') || key.ends_with('\r')) key.pop_back();
    // What a header can carry; anything else no client could ever send.
    const bool sendable = std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7F; });
    if (!key.empty() && sendable) return {};
    return bad_input(fmt::format("{}: found {}, allowed is one line of visible ASCII characters",
                                 api_key_path_, key.empty() ? "no key" : "other characters"));
  }

  static void wait_for_signal(const Interrupts& interrupts) {
    while (interrupts.signal() == 0) {
      pollfd wait{interrupts.wake_fd(), POLLIN, 0};
      ::poll(&wait, 1, -1);
    }
  }

  ModelSource model_;
  std::string api_key_path_;
  ServerOptions server_;
  TextFlags text_;
  int64_t port_ = 8000, context_ = 0, sequences_ = 16, waiting_ = 256, kv_tokens_ = 0, grace_s_ = 10;
};

}  // namespace

std::unique_ptr<Verb> make_serve_verb() { return std::make_unique<ServeVerb>(); }

}  // namespace quintet
