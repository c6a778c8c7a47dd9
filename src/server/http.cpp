// The HTTP transport on Boost.Beast's parser and Asio: the one translation unit that knows either.
//
// Each connection lives on a strand. It always has one read outstanding, also while a request waits for its answer, so
// that a client that leaves is noticed at once. Requests of one connection are answered one after the other; those that
// were sent ahead wait in the input buffer, which is bounded.
#include "server/http.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>

#include "base/log.h"

namespace quintet {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr size_t kReadBytes = 16u << 10;       ///< most that one read takes
constexpr size_t kAheadBytes = 64u << 10;      ///< most that a client may send ahead of its running request
constexpr int kSendBufferBytes = 128 << 10;
constexpr int64_t kWatchMs = 250;              ///< how often a client that is too far ahead is asked whether it is there
constexpr int64_t kLingerMs = 2000;            ///< how long a refused client may go on sending before the socket closes
constexpr int64_t kAcceptPauseMs = 100;        ///< after a failed accept (out of descriptors)

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](unsigned char x, unsigned char y) {
           return (x >= 'A' && x <= 'Z' ? x + 32 : x) == (y >= 'A' && y <= 'Z' ? y + 32 : y);
         });
}

/// Most input that is held beside a body: what may have been sent ahead, and one whole header.
size_t ahead_bytes(const ServerLimits& limits) { return kAheadBytes + limits.max_header_bytes; }

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

/// A string that grows with the bytes that came, never with the length that a client announces.
struct GrowingBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool is_request, class Fields>
    reader(bhttp::header<is_request, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, ErrorCode& error) { error = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, ErrorCode& error) {
      size_t bytes = 0;
      for (auto it = asio::buffer_sequence_begin(buffers); it != asio::buffer_sequence_end(buffers); ++it) {
        const asio::const_buffer part(*it);
        body_.append(static_cast<const char*>(part.data()), part.size());
        bytes += part.size();
      }
      error = {};
      return bytes;
    }
    void finish(ErrorCode& error) { error = {}; }

   private:
    value_type& body_;
  };
};

/// Reads one request from bytes as they come.
class RequestReader {
 public:
  explicit RequestReader(const ServerLimits& limits) : limits_(limits) {
    parser_.header_limit(limits.max_header_bytes);
    parser_.body_limit(limits.max_body_bytes);
  }

  enum class State { more, whole, refused };
  State state() const { return state_; }
  bool started() const { return started_; }
  int status() const { return status_; }
  const std::string& message() const { return message_; }

  /// Takes what it can of `bytes`; returns how much that was. What is left must come again with more behind it.
  size_t feed(const char* bytes, size_t size) {
    size_t used = 0;
    while (state_ == State::more && used < size) {
      started_ = true;
      const bool in_header = !parser_.is_header_done();
      ErrorCode error;
      const size_t taken = parser_.put(asio::const_buffer(bytes + used, size - used), error);
      used += taken;
      if (in_header) header_bytes_ += taken;
      // Beast bounds what it has not parsed yet; the fields that it has taken are counted here.
      if (in_header && header_bytes_ + (error == bhttp::error::need_more ? size - used : 0) > limits_.max_header_bytes)
        error = bhttp::error::header_limit;
      if (error == bhttp::error::need_more) {
        if (size - used >= ahead_bytes(limits_)) refuse(400, "The request has a line (a chunk extension or trailer) that never ends.");
        break;
      }
      if (error) {
        refuse(error);
        break;
      }
      if (in_header && parser_.is_header_done()) check_header();
      if (state_ == State::more && parser_.is_done()) state_ = State::whole;
    }
    return used;
  }

  /// Whether the client waits for a go-ahead before it sends the body. True once.
  bool take_expectation() {
    const bool wanted = state_ == State::more && parser_.is_header_done() && expects_;
    if (wanted) expects_ = false;
    return wanted;
  }

  HttpRequest take() {
    auto& message = parser_.get();
    HttpRequest request;
    request.method = std::string(view(message.method_string()));
    std::string_view target = view(message.target());
    // RFC 9112 3.2.2: a server takes the absolute form too.
    if (const size_t scheme = target.find("://"); !target.starts_with('/') && scheme != std::string_view::npos) {
      const size_t slash = target.find('/', scheme + 3);
      target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
    }
    const size_t mark = target.find('?');
    request.path = std::string(target.substr(0, mark));
    if (mark != std::string_view::npos) request.query = std::string(target.substr(mark + 1));
    for (const auto& field : message)
      request.headers.push_back({std::string(view(field.name_string())), std::string(view(field.value()))});
    request.body = std::move(message.body());
    request.keep_alive = message.keep_alive();
    request.chunks_allowed = message.version() >= 11;
    return request;
  }

 private:
  void refuse(int status, std::string message) {
    state_ = State::refused;
    status_ = status;
    message_ = std::move(message);
  }

  void refuse(const ErrorCode& error) {
    if (error == bhttp::error::header_limit)
      refuse(431, fmt::format("The request line and headers are longer than the {} bytes allowed.", limits_.max_header_bytes));
    else if (error == bhttp::error::body_limit)
      refuse(413, fmt::format("The body is longer than the {} bytes allowed.", limits_.max_body_bytes));
    else if (error == bhttp::error::bad_version)
      refuse(505, "The request is not HTTP/1.1 or HTTP/1.0.");
    else
      refuse(400, fmt::format("The request is not valid HTTP: {}.", error.message()));
  }

  void check_header() {
    const auto& message = parser_.get();
    const auto version = message.version();
    if (version != 10 && version != 11) return refuse(505, "The request is not HTTP/1.1 or HTTP/1.0.");
    const size_t hosts = message.count(bhttp::field::host);
    if (hosts > 1 || (hosts == 0 && version == 11)) return refuse(400, fmt::format("Header 'Host': found {}, allowed is one.", hosts));
    // Anything but a plain "chunked" leaves the end of the body unclear, which is how requests are smuggled.
    if (message.count(bhttp::field::transfer_encoding) > 0 && !parser_.chunked())
      return refuse(501, "Header 'Transfer-Encoding': allowed is 'chunked' alone.");
    if (parser_.chunked() && !equal_ignoring_case(view(message[bhttp::field::transfer_encoding]), "chunked"))
      return refuse(501, "Header 'Transfer-Encoding': allowed is 'chunked' alone.");
    if (parser_.chunked() && version == 10) return refuse(400, "Header 'Transfer-Encoding' is not part of HTTP/1.0.");
    if (message.count(bhttp::field::expect) > 0) {
      if (!equal_ignoring_case(view(message[bhttp::field::expect]), "100-continue"))
        return refuse(417, "Header 'Expect': allowed is '100-continue'.");
      expects_ = version == 11;
    }
  }

  const ServerLimits& limits_;
  bhttp::request_parser<GrowingBody> parser_;
  State state_ = State::more;
  bool started_ = false, expects_ = false;
  uint64_t header_bytes_ = 0;
  int status_ = 0;
  std::string message_;
};

/// What an exchange and its connection share. The mutex guards `leave`, `gone` and `ended`.
struct Flow {
  std::mutex mutex;
  std::function<void()> leave;
  bool gone = false;   ///< the client has left
  bool ended = false;  ///< the answer is whole
  std::atomic<uint64_t> unsent_bytes{0};

  void set_ended() {
    std::function<void()> dropped;  // destroyed outside the lock: it may own things
    std::lock_guard lock(mutex);
    ended = true;
    std::swap(dropped, leave);
  }
  void set_gone() {
    std::function<void()> callback;
    {
      std::lock_guard lock(mutex);
      if (gone || ended) return;
      gone = true;
      std::swap(callback, leave);
    }
    if (callback) callback();
  }
  bool is_gone() {
    std::lock_guard lock(mutex);
    return gone;
  }
};

class Connection;

/// What all connections of a server share.
struct Hub {
  Hub(const HttpOptions& options, HttpHandler handler, HttpRefusal refusal)
      : options(options), handler(std::move(handler)), refusal(std::move(refusal)), io(options.threads) {}
  const HttpOptions options;
  const HttpHandler handler;
  const HttpRefusal refusal;
  std::atomic<bool> draining{false};

  std::mutex mutex;  ///< guards `connections`
  std::condition_variable idle;
  std::unordered_set<Connection*> connections;

  /// Runs `task` on the strand of every connection.
  template <class Task>
  void each(Task task);

  asio::io_context io;  ///< last: handlers that never ran are destroyed with it, and their connections use the above
};

std::string date_header() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[64];
  const size_t size = std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &utc);
  return std::string(text, size);
}

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Hub& hub, tcp::socket socket)
      : hub_(hub), limits_(hub.options.limits), socket_(std::move(socket)), read_timer_(socket_.get_executor()),
        write_timer_(socket_.get_executor()), read_bytes_(kReadBytes) {
    std::lock_guard lock(hub_.mutex);
    hub_.connections.insert(this);
  }
  ~Connection() {
    std::lock_guard lock(hub_.mutex);
    hub_.connections.erase(this);
    if (hub_.connections.empty()) hub_.idle.notify_all();
  }

  void start() {
    post([](Connection& self) {
      ErrorCode ignored;
      self.socket_.set_option(tcp::no_delay(true), ignored);
      // Answers are small: a short kernel queue shows a slow client early and bounds what it holds.
      self.socket_.set_option(tcp::socket::send_buffer_size(kSendBufferBytes), ignored);
      self.socket_.set_option(tcp::socket::keep_alive(true), ignored);
      self.next_request();
    });
  }

  /// Runs task(connection) on the strand.
  template <class Task>
  void post(Task task) {
    asio::post(socket_.get_executor(), [self = shared_from_this(), task = std::move(task)]() mutable { task(*self); });
  }

  /// The server stops: an idle connection ends here, a busy one after its answer.
  void drain() {
    if (!flow_) close();
  }

  void close() {
    if (closed_) return;
    closed_ = true;
    ErrorCode ignored;
    socket_.close(ignored);
    read_timer_.cancel();
    write_timer_.cancel();
    ++read_deadline_, ++write_deadline_;
    if (auto flow = std::exchange(flow_, nullptr)) flow->set_gone();
  }

  // ---- the answer, called by the exchange on the strand ----

  void respond(const std::shared_ptr<Flow>& flow, const HttpResponse& response) {
    if (flow != flow_) return;
    flow->set_ended();
    answer_whole_ = true;
    output_ += head_of(response, false);
    if (!head_only_) output_ += response.body;
    pump();
  }

  void respond_dropped(const std::shared_ptr<Flow>& flow) {
    respond(flow, hub_.refusal(500, "The server dropped the request without an answer."));
  }

  void begin_stream(const std::shared_ptr<Flow>& flow, const HttpResponse& head) {
    if (flow != flow_) return;
    if (!chunked_) keep_alive_ = false;  // HTTP/1.0: the end of the connection is the end of the answer
    output_ += head_of(head, true);
    if (!head.body.empty()) append_chunk(head.body);
    pump();
  }

  void write(const std::shared_ptr<Flow>& flow, std::string_view bytes) {
    if (flow != flow_ || bytes.empty()) return;
    append_chunk(bytes);
    output_payload_ += bytes.size();
    pump();
  }

  void end(const std::shared_ptr<Flow>& flow) {
    if (flow != flow_) return;
    flow->set_ended();
    answer_whole_ = true;
    if (chunked_) output_ += "0\r\n\r\n";
    pump();
  }

  const ServerLimits& limits() const { return limits_; }

 private:
  // ---- reading ----

  void next_request() {
    flow_ = nullptr;
    answer_whole_ = false;
    reader_.emplace(limits_);
    if (hub_.draining) return close();
    set_read_deadline(limits_.idle_timeout_ms);
    advance();
  }

  /// Parses what has arrived, unless a request is being answered, and sees that a read is outstanding.
  void advance() {
    if (closed_) return;
    if (!flow_ && !lingering_) {
      const bool fresh = !reader_->started();
      input_.erase(0, reader_->feed(input_.data(), input_.size()));
      if (reader_->state() == RequestReader::State::whole) return dispatch();
      if (reader_->state() == RequestReader::State::refused) return refuse(reader_->status(), reader_->message());
      if (peer_done_) return close();
      if (fresh && reader_->started()) set_read_deadline(limits_.read_timeout_ms);
      if (reader_->take_expectation()) {
        output_ += "HTTP/1.1 100 Continue\r\n\r\n";
        pump();
      }
    }
    read();
  }

  void read() {
    if (reading_ || peer_done_ || closed_) return;
    if (flow_ && input_.size() >= ahead_bytes(limits_)) return watch();
    reading_ = true;
    socket_.async_read_some(asio::buffer(read_bytes_), [self = shared_from_this()](ErrorCode error, size_t bytes) {
      self->reading_ = false;
      if (self->closed_) return;
      if (error) return self->on_read_error(error);
      if (!self->lingering_) self->input_.append(self->read_bytes_.data(), bytes);
      self->advance();
    });
  }

  void on_read_error(const ErrorCode& error) {
    peer_done_ = true;
    // An orderly end of the client's half while an answer is under way means that it has left; one that is only being
    // written out is still delivered, and so are answers to requests that were sent before.
    if (error == asio::error::eof && flow_ && answer_whole_) return;
    if (error == asio::error::eof && !flow_ && !lingering_) return advance();
    close();
  }

  /// The client has sent so much ahead that nothing more is read, so its leaving must be asked for.
  void watch() {
    const auto deadline = ++read_deadline_;
    read_timer_.expires_after(std::chrono::milliseconds(kWatchMs));
    read_timer_.async_wait([self = shared_from_this(), deadline](ErrorCode) {
      if (self->closed_ || self->read_deadline_ != deadline || !self->flow_) return;
      pollfd query{self->socket_.native_handle(), POLLRDHUP, 0};
      if (poll(&query, 1, 0) == 1 && (query.revents & (POLLRDHUP | POLLHUP | POLLERR)) && !self->answer_whole_)
        return self->close();
      self->watch();
    });
  }

  void set_read_deadline(int64_t ms) {
    const auto deadline = ++read_deadline_;
    read_timer_.expires_after(std::chrono::milliseconds(ms));
    read_timer_.async_wait([self = shared_from_this(), deadline](ErrorCode) {
      if (self->closed_ || self->read_deadline_ != deadline) return;
      if (self->lingering_ || !self->reader_->started()) return self->close();
      self->refuse(408, fmt::format("The request was not complete after {} ms.", self->limits_.read_timeout_ms));
    });
  }

  void clear_read_deadline() {
    ++read_deadline_;
    read_timer_.cancel();
  }

  void dispatch();

  void refuse(int status, const std::string& message) {
    clear_read_deadline();
    keep_alive_ = false;
    head_only_ = false;
    chunked_ = false;
    flow_ = std::make_shared<Flow>();
    LOG_DEBUG("http: {} {}", status, message);
    respond(flow_, hub_.refusal(status, message));
  }

  // ---- writing ----

  std::string head_of(const HttpResponse& response, bool stream) const {
    std::string head =
        fmt::format("HTTP/1.1 {} {}\r\nServer: quintet\r\nDate: {}\r\n", response.status,
                    view(bhttp::obsolete_reason(static_cast<bhttp::status>(response.status))), date_header());
    if (!response.content_type.empty()) head += fmt::format("Content-Type: {}\r\n", response.content_type);
    for (const auto& header : response.headers) head += fmt::format("{}: {}\r\n", header.name, header.value);
    if (!stream)
      head += fmt::format("Content-Length: {}\r\n", response.body.size());
    else if (chunked_)
      head += "Transfer-Encoding: chunked\r\n";
    head += keep_alive_ && !hub_.draining ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    return head;
  }

  void append_chunk(std::string_view bytes) {
    if (chunked_)
      fmt::format_to(std::back_inserter(output_), "{:x}\r\n{}\r\n", bytes.size(), bytes);
    else
      output_ += bytes;
  }

  void pump() {
    if (writing_ || closed_) return;
    if (output_.empty()) {
      if (flow_ && answer_whole_) finish_answer();
      return;
    }
    flying_.clear();
    std::swap(flying_, output_);
    flying_payload_ = std::exchange(output_payload_, 0);
    flying_offset_ = 0;
    write_some();
  }

  void write_some() {
    writing_ = true;
    const auto deadline = ++write_deadline_;
    write_timer_.expires_after(std::chrono::milliseconds(limits_.write_timeout_ms));
    write_timer_.async_wait([self = shared_from_this(), deadline](ErrorCode) {
      if (self->closed_ || self->write_deadline_ != deadline) return;
      LOG_WARN("http: a client took nothing for {} ms and is left", self->limits_.write_timeout_ms);
      self->close();
    });
    socket_.async_write_some(asio::buffer(flying_.data() + flying_offset_, flying_.size() - flying_offset_),
                             [self = shared_from_this()](ErrorCode error, size_t bytes) {
                               self->writing_ = false;
                               self->on_written(error, bytes);
                             });
  }

  void on_written(const ErrorCode& error, size_t bytes) {
    if (closed_) return;
    ++write_deadline_;
    write_timer_.cancel();
    if (error) return close();
    flying_offset_ += bytes;
    if (flying_offset_ < flying_.size()) return write_some();
    if (flow_) flow_->unsent_bytes -= flying_payload_;
    pump();
  }

  void finish_answer() {
    if (keep_alive_ && !hub_.draining) return next_request();
    flow_ = nullptr;
    ErrorCode ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    if (peer_done_) return close();
    // Closing with unread input would reset the connection, and the client could lose the answer that explains why.
    lingering_ = true;
    input_.clear();
    set_read_deadline(kLingerMs);
    read();
  }

  Hub& hub_;
  const ServerLimits& limits_;
  tcp::socket socket_;
  asio::steady_timer read_timer_, write_timer_;
  uint64_t read_deadline_ = 0, write_deadline_ = 0;  ///< number of the deadline that counts; older ones are void
  std::vector<char> read_bytes_;  ///< where the outstanding read puts what comes
  std::string input_;             ///< what came and is not parsed yet
  std::optional<RequestReader> reader_;
  std::shared_ptr<Flow> flow_;  ///< of the request that is being answered, or null

  std::string output_, flying_;  ///< to be written, being written
  uint64_t output_payload_ = 0, flying_payload_ = 0;  ///< bytes of both that count as unsent by the stream
  size_t flying_offset_ = 0;

  bool closed_ = false, reading_ = false, writing_ = false;
  bool peer_done_ = false;     ///< the client sends no more
  bool lingering_ = false;     ///< all is answered; input is thrown away until the client closes
  bool answer_whole_ = false;  ///< only writing is left
  bool keep_alive_ = true, chunked_ = true, head_only_ = false;  ///< of the present request
};

template <class Task>
void Hub::each(Task task) {
  std::lock_guard lock(mutex);
  for (Connection* connection : connections)
    // A connection that is being destroyed waits for the mutex and needs no task.
    if (auto alive = connection->weak_from_this().lock()) alive->post(task);
}

class Exchange : public HttpExchange {
 public:
  Exchange(std::shared_ptr<Connection> connection, std::shared_ptr<Flow> flow)
      : connection_(std::move(connection)), flow_(std::move(flow)) {}

  ~Exchange() override {
    if (ended_ || flow_->is_gone()) return;
    connection_->post([flow = flow_, begun = begun_.load()](Connection& self) {
      if (begun)
        self.end(flow);
      else
        self.respond_dropped(flow);
    });
  }

  void respond(HttpResponse response) override {
    begun_ = ended_ = true;
    if (flow_->is_gone()) return;
    connection_->post([flow = flow_, response = std::move(response)](Connection& self) { self.respond(flow, response); });
  }

  void begin_stream(HttpResponse head) override {
    begun_ = true;
    if (flow_->is_gone()) return;
    connection_->post([flow = flow_, head = std::move(head)](Connection& self) { self.begin_stream(flow, head); });
  }

  bool write(std::string_view bytes) override {
    if (flow_->is_gone()) return false;
    if ((flow_->unsent_bytes += bytes.size()) > connection_->limits().max_unsent_bytes) {
      LOG_WARN("http: a client is more than {} bytes behind its stream and is left", connection_->limits().max_unsent_bytes);
      connection_->post([flow = flow_](Connection& self) { self.close(); });
      return false;
    }
    connection_->post([flow = flow_, text = std::string(bytes)](Connection& self) { self.write(flow, text); });
    return true;
  }

  void end() override {
    ended_ = true;
    if (flow_->is_gone()) return;
    connection_->post([flow = flow_](Connection& self) { self.end(flow); });
  }

  void on_leave(std::function<void()> callback) override {
    {
      std::lock_guard lock(flow_->mutex);
      if (flow_->ended) return;
      if (!flow_->gone) {
        flow_->leave = std::move(callback);
        return;
      }
    }
    callback();
  }

 private:
  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<Flow> flow_;
  std::atomic<bool> begun_{false}, ended_{false};
};

void Connection::dispatch() {
  clear_read_deadline();
  HttpRequest request = reader_->take();
  keep_alive_ = request.keep_alive;
  chunked_ = request.chunks_allowed;
  head_only_ = request.method == "HEAD";
  flow_ = std::make_shared<Flow>();
  LOG_DEBUG("http: {} {} ({} bytes)", request.method, request.path, request.body.size());
  hub_.handler(std::move(request), std::make_shared<Exchange>(shared_from_this(), flow_));
  read();
}

class BeastServer : public HttpServer {
 public:
  BeastServer(const HttpOptions& options, HttpHandler handler, HttpRefusal refusal)
      : hub_(options, std::move(handler), std::move(refusal)), strand_(asio::make_strand(hub_.io)), acceptor_(strand_),
        pause_(strand_), work_(hub_.io.get_executor()) {}
  ~BeastServer() override { close(); }

  Status listen() {
    ErrorCode error;
    const auto where = fmt::format("{}:{}", hub_.options.host, hub_.options.port);
    tcp::resolver resolver(hub_.io);
    const auto found = resolver.resolve(hub_.options.host, std::to_string(hub_.options.port),
                                        tcp::resolver::passive | tcp::resolver::numeric_service, error);
    if (error) return bad_input(fmt::format("--host {}: {}", hub_.options.host, error.message()));
    for (const auto& entry : found) {
      error = open(entry.endpoint());
      if (!error) break;
    }
    if (error) return io_error(fmt::format("cannot listen on {}: {}", where, error.message()));
    port_ = acceptor_.local_endpoint(error).port();
    asio::post(strand_, [this] { accept(); });
    for (int i = 0; i < std::max(1, hub_.options.threads); ++i) threads_.emplace_back([this] { hub_.io.run(); });
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
    return hub_.idle.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return hub_.connections.empty(); });
  }

  void close() override {
    if (threads_.empty()) return;
    drain();
    asio::post(strand_, [this] { hub_.each([](Connection& connection) { connection.close(); }); });
    work_.reset();
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  ErrorCode open(const tcp::endpoint& endpoint) {
    ErrorCode error;
    acceptor_.close(error);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(tcp::socket::max_listen_connections, error);
    return error;
  }

  void accept() {
    if (hub_.draining) return;
    acceptor_.async_accept(asio::make_strand(hub_.io), asio::bind_executor(strand_, [this](ErrorCode error, tcp::socket socket) {
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
    const auto answer = hub_.refusal(503, fmt::format("The server has its {} connections.", hub_.options.limits.max_connections));
    const auto text = fmt::format("HTTP/1.1 503 Service Unavailable\r\nContent-Type: {}\r\nRetry-After: 1\r\nContent-Length: {}\r\n"
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
  uint16_t port_ = 0;
};

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& header : headers)
    if (equal_ignoring_case(header.name, name)) return header.value;
  return {};
}

Result<std::unique_ptr<HttpServer>> start_http(const HttpOptions& options, HttpHandler handler, HttpRefusal refusal) {
  auto server = std::make_unique<BeastServer>(options, std::move(handler), std::move(refusal));
  TRY(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
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
