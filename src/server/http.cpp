// The HTTP transport: listens, accepts, and owns the threads. The one translation unit that knows Boost.
#include "server/http.h"

#include <algorithm>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/strand.hpp>
#include <thread>

#include "server/http_connection.h"
#include "server/options_check.h"

namespace quintet {
namespace {

constexpr int64_t kAcceptPauseMs = 100;  ///< after a failed accept (out of descriptors)

Result<tcp::resolver::results_type> resolve(asio::io_context& io, const std::string& host, uint16_t port) {
  ErrorCode error;
  tcp::resolver resolver(io);
  auto found = resolver.resolve(host, std::to_string(port),
                                tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error)
    return bad_input(
        fmt::format("--host: found '{}', allowed is an address of this machine, or a name of one: {}", host,
                    error.message()));
  return found;
}

ErrorCode bind(tcp::acceptor& acceptor, const tcp::endpoint& endpoint) {
  ErrorCode error;
  acceptor.close(error);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  return error;
}

Error listen_error(const std::string& host, uint16_t port, const ErrorCode& error) {
  const auto message = fmt::format("cannot listen on {}: {}", authority(host, port), error.message());
  return error == boost::system::errc::address_not_available ? bad_input(message) : io_error(message);
}

class BeastServer : public HttpServer {
 public:
  BeastServer(const HttpOptions& options, HttpHandler handler, HttpRefusal refusal)
      : hub_(options, std::move(handler), std::move(refusal)),
        strand_(asio::make_strand(hub_.io)),
        acceptor_(strand_),
        pause_(strand_),
        work_(hub_.io.get_executor()) {}
  ~BeastServer() override {
    if (threads_.empty()) return;
    begin_close();
    join();
  }

  Status listen() {
    const std::string& host = hub_.options.host;
    TRY_ASSIGN(const auto found, resolve(hub_.io, host, hub_.options.port));
    ErrorCode error;
    for (const auto& entry : found) {
      error = bind(acceptor_, entry.endpoint());
      if (!error) acceptor_.listen(tcp::socket::max_listen_connections, error);
      if (!error) break;
    }
    if (error) return listen_error(host, hub_.options.port, error);
    port_ = acceptor_.local_endpoint(error).port();
    asio::post(strand_, [this] { accept(); });
    running_ = std::max(1, hub_.options.threads);
    for (int i = running_; i > 0; --i)
      threads_.emplace_back([this] {
        hub_.io.run();
        std::lock_guard lock(hub_.mutex);
        if (--running_ == 0) hub_.idle.notify_all();
      });
    return {};
  }

  uint16_t port() const override { return port_; }

  void drain() override {
    if (hub_.draining.exchange(true)) return;
    asio::post(strand_, [this] {
      ErrorCode ignored;
      acceptor_.close(ignored);
      pause_.cancel();
      hub_.each([](Connection& connection) { connection.drain(); });
    });
  }

  bool wait_idle(int64_t timeout_ms) override {
    std::unique_lock lock(hub_.mutex);
    return hub_.idle.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                              [&] { return hub_.connections.empty(); });
  }

  bool close(int64_t timeout_ms) override {
    if (threads_.empty()) return true;
    begin_close();
    {
      std::unique_lock lock(hub_.mutex);
      if (!hub_.idle.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return running_ == 0; }))
        return false;
    }
    join();
    return true;
  }

 private:
  void begin_close() {
    drain();
    asio::post(strand_, [this] { hub_.each([](Connection& connection) { connection.close(); }); });
    work_.reset();
  }

  void join() {
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

  void accept() {
    if (hub_.draining) return;
    acceptor_.async_accept(asio::make_strand(hub_.io),
                           asio::bind_executor(strand_, [this](ErrorCode error, tcp::socket socket) {
                             if (hub_.draining) return;
                             if (error) {
                               LOG_WARN("http: accept: {}", error.message());
                               pause_.expires_after(std::chrono::milliseconds(kAcceptPauseMs));
                               pause_.async_wait([this](ErrorCode) { accept(); });
                               return;
                             }
                             take(std::move(socket));
                             accept();
                           }));
  }

  void take(tcp::socket socket) {
    size_t open = 0;
    {
      std::lock_guard lock(hub_.mutex);
      open = hub_.connections.size();
    }
    if (open >= static_cast<size_t>(hub_.options.limits.max_connections)) return turn_away(std::move(socket));
    std::make_shared<Connection>(hub_, std::move(socket))->start();
  }

  /// A best effort: the answer fits into an empty socket buffer.
  void turn_away(tcp::socket socket) {
    const auto answer = hub_.refusal(
        503, fmt::format("The server has its {} connections.", hub_.options.limits.max_connections));
    const auto text = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {}\r\nRetry-After: 1\r\nContent-Length: {}\r\n"
        "Connection: close\r\n\r\n{}",
        answer.content_type, answer.body.size(), answer.body);
    ErrorCode ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(text), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
  }

  Hub hub_;
  asio::strand<asio::io_context::executor_type> strand_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::vector<std::thread> threads_;
  int running_ = 0;  ///< threads that have not ended, guarded by hub_.mutex
  uint16_t port_ = 0;
};

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& header : headers)
    if (equal_ignoring_case(header.name, name)) return header.value;
  return {};
}

Result<std::unique_ptr<HttpServer>> start_http(const HttpOptions& options, HttpHandler handler,
                                               HttpRefusal refusal) {
  auto server = std::make_unique<BeastServer>(options, std::move(handler), std::move(refusal));
  TRY(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

Status check_address(const std::string& host, uint16_t port) {
  asio::io_context io;
  TRY_ASSIGN(const auto found, resolve(io, host, port));
  tcp::acceptor acceptor(io);
  ErrorCode error;
  for (const auto& entry : found) {
    error = bind(acceptor, entry.endpoint());
    if (!error) return {};
  }
  return listen_error(host, port, error);
}

HttpParse parse_http_request(std::string_view bytes, const ServerLimits& limits, size_t piece_bytes) {
  HttpParse parse;
  RequestReader reader(limits);
  size_t arrived = piece_bytes == 0 ? bytes.size() : std::min(piece_bytes, bytes.size());
  for (;;) {
    parse.used_bytes += reader.feed(bytes.data() + parse.used_bytes, arrived - parse.used_bytes);
    reader.take_expectation();
    if (reader.state() != RequestReader::State::more || arrived == bytes.size()) break;
    arrived = std::min(arrived + piece_bytes, bytes.size());
  }
  switch (reader.state()) {
    case RequestReader::State::more: parse.status = 100; break;
    case RequestReader::State::whole: parse.request = reader.take(); break;
    case RequestReader::State::refused:
      parse.status = reader.status();
      parse.message = reader.message();
      break;
  }
  return parse;
}

}  // namespace quintet
