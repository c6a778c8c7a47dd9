// Puts the parts of the server together, and takes them apart in order.
#include "server/server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "base/log.h"
#include "server/api.h"
#include "server/errors.h"
#include "server/frontend.h"
#include "server/http.h"
#include "server/options_check.h"

namespace quintet {
namespace {

constexpr int64_t kFlushMs = 2'000;  // for the last bytes of answers that are whole
constexpr int64_t kBusyMs = 5'000;   // for requests that are being parsed, rendered or tokenized

class OpenAiServer : public Server {
 public:
  OpenAiServer(EngineClient& engine, const Model& model, const ServerOptions& options)
      : options_(options), frontend_(engine, *model.tokenizer), api_(engine, model, options, frontend_) {}

  ~OpenAiServer() override {
    static_cast<void>(stop());
    if (wake_fd_ >= 0) ::close(wake_fd_);
  }

  Status start() {
    TRY(check_server_options(options_));
    wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    if (wake_fd_ < 0) return io_error("cannot make an eventfd");
    HttpOptions http{
        .host = options_.host, .port = options_.port, .threads = options_.threads, .limits = options_.limits};
    const auto refusal = [](int status, const std::string& message) {
      return error_response(status_error(status, message, refusal_code(status)));
    };
    TRY_ASSIGN(http_, start_http(
                          http,
                          [this](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
                            api_.handle(std::move(request), exchange);
                          },
                          refusal));
    return {};
  }

  uint16_t port() const override { return http_->port(); }
  const std::string& model_id() const override { return api_.model_id(); }

  void request_stop() override {
    const uint64_t one = 1;
    // A full counter cannot happen, and a signal handler could do nothing about it.
    [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof one);
  }

  Status wait() override {
    std::lock_guard lock(mutex_);
    if (stopped_ || !http_) return {};
    take_stop(-1);
    api_.drain();
    http_->drain();
    wait_for_answers();
    frontend_.shut_down();
    http_->wait_idle(kFlushMs);
    if (!http_->close(kBusyMs))
      return io_error(fmt::format("a request is still being read after {} s", kBusyMs / 1000));
    stopped_ = true;
    return {};
  }

  Status stop() override {
    if (!http_) return {};
    request_stop();
    return wait();
  }

 private:
  static const char* refusal_code(int status) {
    switch (status) {
      case 408: return "request_timeout";
      case 413: return "body_too_large";
      case 431: return "headers_too_large";
      case 503: return "too_many_connections";
      default: return "invalid_http";
    }
  }

  /// Waits for one request to stop and takes it; false where the time is over.
  bool take_stop(int timeout_ms) {
    pollfd query{wake_fd_, POLLIN, 0};
    while (::poll(&query, 1, timeout_ms) < 0) {
    }
    uint64_t count = 0;
    return ::read(wake_fd_, &count, sizeof count) == sizeof count;
  }

  /// The grace time, unless somebody asks to stop once more.
  void wait_for_answers() {
    using namespace std::chrono;
    const auto end = steady_clock::now() + milliseconds(options_.grace_ms);
    while (steady_clock::now() < end && !frontend_.wait_idle(20))
      if (take_stop(0)) return;
  }

  const ServerOptions options_;
  int wake_fd_ = -1;
  std::mutex mutex_;  ///< one wait() at a time
  bool stopped_ = false;
  Frontend frontend_;
  Api api_;
  std::unique_ptr<HttpServer> http_;  ///< destroyed first: its threads call the above
};

}  // namespace

Result<std::unique_ptr<Server>> start_server(EngineClient& engine, const Model& model,
                                             const ServerOptions& options) {
  auto server = std::make_unique<OpenAiServer>(engine, model, options);
  TRY(server->start());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace quintet
