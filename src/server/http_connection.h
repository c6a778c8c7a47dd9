// One connection and the exchanges of its requests, on Boost.Asio. Included by http.cpp alone.
//
// Each connection lives on a strand. It always has one read outstanding, also while a request waits for its
// answer, so that a client that leaves is noticed at once. Requests of one connection are answered one after
// the other; those that were sent ahead wait in the input buffer, which is bounded.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/status.hpp>
#include <condition_variable>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

#include "server/http_reader.h"

namespace quintet {

using tcp = asio::ip::tcp;

inline constexpr size_t kReadBytes = 16u << 10;  ///< most that one read takes
inline constexpr int kSendBufferBytes = 128 << 10;
inline constexpr int64_t kReadOnMs = 250;       ///< how long a client that sent a lot ahead is not read from
inline constexpr int64_t kLingerMs = 2000;      ///< how long a refused client may go on sending
inline constexpr int64_t kDrainLingerMs = 200;  ///< the same while the server stops

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

  /// Last: handlers that never ran are destroyed with it, and their connections use the above.
  asio::io_context io;
};

inline std::string date_header() {
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
      : hub_(hub),
        limits_(hub.options.limits),
        socket_(std::move(socket)),
        read_timer_(socket_.get_executor()),
        write_timer_(socket_.get_executor()),
        read_bytes_(kReadBytes) {
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
    asio::post(socket_.get_executor(),
               [self = shared_from_this(), task = std::move(task)]() mutable { task(*self); });
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
    answer_whole_ = reads_on_ = false;
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
      if (reader_->state() == RequestReader::State::refused)
        return refuse(reader_->status(), reader_->message());
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
    if (flow_ && input_.size() >= ahead_bytes(limits_)) {
      if (!reads_on_) return wait_before_reading_on();
      if (input_.size() >= ahead_bytes(limits_) + limits_.max_body_bytes) {
        LOG_WARN("http: a client that sent {} bytes ahead of its answer is left", input_.size());
        return close();
      }
    }
    reading_ = true;
    socket_.async_read_some(asio::buffer(read_bytes_),
                            [self = shared_from_this()](ErrorCode error, size_t bytes) {
                              self->reading_ = false;
                              if (self->closed_) return;
                              if (error) return self->on_read_error(error);
                              if (!self->lingering_) self->input_.append(self->read_bytes_.data(), bytes);
                              self->advance();
                            });
  }

  void on_read_error(const ErrorCode& error) {
    peer_done_ = true;
    // An orderly end of the client's half while an answer is under way means that it has left; one that is
    // only being written out is still delivered, and so are answers to requests that were sent before.
    if (error == asio::error::eof && flow_ && answer_whole_) return;
    if (error == asio::error::eof && !flow_ && !lingering_) return advance();
    close();
  }

  /// The client has sent a lot ahead. Where answers are quick it is enough to read no more for now; where one
  /// takes its time, the only way to see whether the client has left is to read on, up to a bound.
  void wait_before_reading_on() {
    const auto deadline = ++read_deadline_;
    read_timer_.expires_after(std::chrono::milliseconds(kReadOnMs));
    read_timer_.async_wait([self = shared_from_this(), deadline](ErrorCode) {
      if (self->closed_ || self->read_deadline_ != deadline || !self->flow_) return;
      self->reads_on_ = true;
      self->read();
    });
  }

  void set_read_deadline(int64_t ms) {
    const auto deadline = ++read_deadline_;
    read_timer_.expires_after(std::chrono::milliseconds(ms));
    read_timer_.async_wait([self = shared_from_this(), deadline](ErrorCode) {
      if (self->closed_ || self->read_deadline_ != deadline) return;
      if (self->lingering_ || !self->reader_->started()) return self->close();
      self->refuse(408,
                   fmt::format("The request was not complete after {} ms.", self->limits_.read_timeout_ms));
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
    // Closing with unread input would reset the connection, and the client could lose the answer that
    // explains why.
    lingering_ = true;
    input_.clear();
    set_read_deadline(hub_.draining ? kDrainLingerMs : kLingerMs);
    read();
  }

  Hub& hub_;
  const ServerLimits& limits_;
  tcp::socket socket_;
  asio::steady_timer read_timer_, write_timer_;
  uint64_t read_deadline_ = 0,
           write_deadline_ = 0;   ///< number of the deadline that counts; older ones are void
  std::vector<char> read_bytes_;  ///< where the outstanding read puts what comes
  std::string input_;             ///< what came and is not parsed yet
  std::optional<RequestReader> reader_;
  std::shared_ptr<Flow> flow_;  ///< of the request that is being answered, or null

  std::string output_, flying_;                       ///< to be written, being written
  uint64_t output_payload_ = 0, flying_payload_ = 0;  ///< bytes of both that count as unsent by the stream
  size_t flying_offset_ = 0;

  bool closed_ = false, reading_ = false, writing_ = false;
  bool peer_done_ = false;     ///< the client sends no more
  bool reads_on_ = false;      ///< see wait_before_reading_on()
  bool lingering_ = false;     ///< all is answered; input is thrown away until the client closes
  bool answer_whole_ = false;  ///< only writing is left
  bool keep_alive_ = true, chunked_ = true, head_only_ = false;  ///< of the present request
};

template <class Task>
void Hub::each(Task task) {
  // Destroying a connection takes the mutex, so the last reference to one must not end under it.
  std::vector<std::shared_ptr<Connection>> alive;
  {
    std::lock_guard lock(mutex);
    for (Connection* connection : connections)
      if (auto held = connection->weak_from_this().lock()) alive.push_back(std::move(held));
  }
  for (const auto& connection : alive) connection->post(task);
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
    connection_->post(
        [flow = flow_, response = std::move(response)](Connection& self) { self.respond(flow, response); });
  }

  void begin_stream(HttpResponse head) override {
    begun_ = true;
    if (flow_->is_gone()) return;
    connection_->post(
        [flow = flow_, head = std::move(head)](Connection& self) { self.begin_stream(flow, head); });
  }

  bool write(std::string_view bytes) override {
    if (too_slow_ || flow_->is_gone()) return false;
    if ((flow_->unsent_bytes += bytes.size()) > connection_->limits().max_unsent_bytes) {
      LOG_WARN("http: a client is more than {} bytes behind its stream and is left",
               connection_->limits().max_unsent_bytes);
      too_slow_ = true;
      connection_->post([](Connection& self) { self.close(); });
      return false;
    }
    connection_->post(
        [flow = flow_, text = std::string(bytes)](Connection& self) { self.write(flow, text); });
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
  std::atomic<bool> begun_{false}, ended_{false}, too_slow_{false};
};

inline void Connection::dispatch() {
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

}  // namespace quintet
