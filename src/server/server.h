// Serves one engine over HTTP in OpenAI's shape. See docs/http-api.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/engine_client.h"
#include "model/model.h"

namespace quintet {

/// What one client may cost. Each limit has an answer of its own: 408, 413, 431, 400, 503, or a closed
/// connection.
struct ServerLimits {
  uint64_t max_body_bytes = 8u << 20;     ///< of a request; beyond: 413
  uint32_t max_header_bytes = 16u << 10;  ///< request line and headers; beyond: 431
  int32_t json_depth = 32;                ///< nested lists and objects of a body; beyond: 400
  int64_t idle_timeout_ms = 75'000;       ///< a kept connection without a request is closed
  int64_t read_timeout_ms = 30'000;       ///< first byte of a request to its last; beyond: 408
  int64_t write_timeout_ms = 30'000;      ///< a client that takes nothing for so long is left
  uint64_t max_unsent_bytes =
      256u << 10;                  ///< of one stream; a client further behind is left, its request cancelled
  int32_t max_connections = 1024;  ///< beyond: 503
};

struct ServerOptions {
  std::string host = "127.0.0.1";  ///< an address, or a name that resolves to one
  uint16_t port = 8000;            ///< 0: any free one, see Server::port()
  std::string model_alias;         ///< the id that clients name; empty: the model file's or folder's name
  std::string api_key;             ///< empty: none; else all but /health want "Authorization: Bearer KEY"
  std::string cors_origin;         ///< empty: no CORS headers. "*" or one origin
  uint64_t numerics_id = 0;        ///< Backend::numerics().id(), told as system_fingerprint
  int32_t threads = 2;             ///< that parse, render, tokenize and write
  int64_t grace_ms = 10'000;       ///< at stop: how long running answers may go on before they are cancelled
  ServerLimits limits;
};

/// A running server. Thread-safe.
class Server {
 public:
  virtual ~Server() = default;  ///< stops it, however long that takes
  /// The port it listens on.
  virtual uint16_t port() const = 0;
  /// The id under which clients name the model.
  virtual const std::string& model_id() const = 0;
  /// Asks it to stop and returns at once. Async-signal-safe: a signal handler may call it. Asked a second
  /// time, running answers are cancelled without further grace.
  virtual void request_stop() = 0;
  /// Blocks until request_stop(), then takes no new connections, lets running answers end within the grace
  /// time, cancels the others and returns once every thread has ended. An error where a thread works on a
  /// request that does not end within some seconds: the process can do no better than to end without tidying
  /// up.
  virtual Status wait() = 0;
  /// request_stop() and wait().
  virtual Status stop() = 0;
};

/// Whether start_server() could listen there now, to be told before a model is loaded. bad_input where the
/// host is no address of this machine, io where the port is taken or not allowed.
Status check_address(const std::string& host, uint16_t port);

/// Binds, listens and answers on threads of its own. `engine` and `model` must outlive the server, and nobody
/// else may poll the engine. Errors name address and port.
Result<std::unique_ptr<Server>> start_server(EngineClient& engine, const Model& model,
                                             const ServerOptions& options);

}  // namespace quintet
