// Reads one HTTP request from bytes as they come, on Boost.Beast's parser. Included by http.cpp alone.
#pragma once

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <string>
#include <string_view>

#include "base/log.h"
#include "server/http.h"

namespace quintet {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using ErrorCode = boost::system::error_code;

inline constexpr size_t kAheadBytes = 64u << 10;  ///< what a client may send ahead of its running request

inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](unsigned char x, unsigned char y) {
           return (x >= 'A' && x <= 'Z' ? x + 32 : x) == (y >= 'A' && y <= 'Z' ? y + 32 : y);
         });
}

/// Most input that is held beside a body: what may have been sent ahead, and one whole header.
inline size_t ahead_bytes(const ServerLimits& limits) { return kAheadBytes + limits.max_header_bytes; }

inline std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

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

  /// Takes what it can of `bytes`; returns how much that was. What is left must come again with more behind
  /// it.
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
      if (in_header &&
          header_bytes_ + (error == bhttp::error::need_more ? size - used : 0) > limits_.max_header_bytes)
        error = bhttp::error::header_limit;
      if (error == bhttp::error::need_more) {
        if (size - used >= ahead_bytes(limits_))
          refuse(400, "The request has a line (a chunk extension or trailer) that never ends.");
        break;
      }
      if (error) {
        // Beast reads the end of the line as part of the version.
        const std::string_view rest(bytes + used, size - used);
        if (error == bhttp::error::bad_version && rest.find(" HTTP/1.") != rest.npos &&
            rest.find('\n') < rest.find("\r\n"))
          error = bhttp::error::bad_line_ending;
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
    if (const size_t scheme = target.find("://");
        !target.starts_with('/') && scheme != std::string_view::npos) {
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
      refuse(431, fmt::format("The request line and headers are longer than the {} bytes allowed.",
                              limits_.max_header_bytes));
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
    if (hosts > 1 || (hosts == 0 && version == 11))
      return refuse(400, fmt::format("Header 'Host': found {}, allowed is one.", hosts));
    // Anything but a plain "chunked" leaves the end of the body unclear, which is how requests are smuggled.
    if (message.count(bhttp::field::transfer_encoding) > 0 && !parser_.chunked())
      return refuse(501, "Header 'Transfer-Encoding': allowed is 'chunked' alone.");
    if (parser_.chunked() && !equal_ignoring_case(view(message[bhttp::field::transfer_encoding]), "chunked"))
      return refuse(501, "Header 'Transfer-Encoding': allowed is 'chunked' alone.");
    if (parser_.chunked() && version == 10)
      return refuse(400, "Header 'Transfer-Encoding' is not part of HTTP/1.0.");
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

}  // namespace quintet
