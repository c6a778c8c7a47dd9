// HTTP/1.1 over TCP, without a word of what is served: requests come out, answers and streams go in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/server.h"

namespace quintet {

struct HttpHeader {
  std::string name, value;
};

/// A whole request; the body is complete and unchunked.
struct HttpRequest {
  std::string method;  ///< "GET"; upper case as the client wrote it
  std::string path;    ///< without the query, not percent-decoded
  std::string query;   ///< behind '?', or empty
  std::vector<HttpHeader> headers;
  std::string body;
  bool keep_alive = true;
  bool chunks_allowed = true;  ///< HTTP/1.1: the answer may be chunked

  /// The first value of a header (names ignore case), empty where absent.
  std::string_view header(std::string_view name) const;
};

/// A whole answer, or the head of a stream (then `body` is its first piece).
struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers;
  std::string body;
};

/// One request that waits for its answer. Thread-safe; calls never block. Dropped without an answer, it
/// answers 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  /// The whole answer. Exactly one of respond() or begin_stream() ... end().
  virtual void respond(HttpResponse response) = 0;
  virtual void begin_stream(HttpResponse head) = 0;
  /// False where the client has gone, or is further behind than ServerLimits::max_unsent_bytes: it is left
  /// then.
  virtual bool write(std::string_view bytes) = 0;
  virtual void end() = 0;
  /// `callback` runs once if the client goes away before the answer is whole; at once if it already has.
  virtual void on_leave(std::function<void()> callback) = 0;
};

/// Called on one of the server's threads; answers at once or later. What it throws is a broken invariant.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpExchange> exchange)>;
/// The body of an answer to a request that never became one: 400, 408, 413, 431, 501, 503, 505.
using HttpRefusal = std::function<HttpResponse(int status, const std::string& message)>;

struct HttpOptions {
  std::string host;
  uint16_t port = 0;
  int32_t threads = 2;
  ServerLimits limits;
};

/// Listens and answers on threads of its own. Exchanges must be gone before it is destroyed.
class HttpServer {
 public:
  virtual ~HttpServer() = default;  ///< close(), however long a handler takes
  virtual uint16_t port() const = 0;
  /// Takes no more connections, closes those that wait for nothing; running answers go on and are their last.
  virtual void drain() = 0;
  /// Waits until every connection has ended; false where some are left after the time.
  virtual bool wait_idle(int64_t timeout_ms) = 0;
  /// Closes what is left and joins the threads; false where one of them is still in a handler after the time.
  virtual bool close(int64_t timeout_ms) = 0;
};

Result<std::unique_ptr<HttpServer>> start_http(const HttpOptions& options, HttpHandler handler,
                                               HttpRefusal refusal);

/// What reading the bytes of one request gave.
struct HttpParse {
  int status = 0;       ///< 0: `request` is whole; 100: more bytes are needed; else the status of the refusal
  std::string message;  ///< why it was refused
  HttpRequest request;
  size_t used_bytes = 0;  ///< of the input, where it is whole
};

/// Reads one request from `bytes`, given in pieces of `piece_bytes` (0: at once), as a connection does. For
/// tests and the fuzzer.
HttpParse parse_http_request(std::string_view bytes, const ServerLimits& limits, size_t piece_bytes = 0);

}  // namespace quintet
