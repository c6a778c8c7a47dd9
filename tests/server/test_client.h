// A client made of one socket, so that tests can be as rude as they like.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quintet {

struct ClientResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;                            ///< unchunked
  bool complete = false;

  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  /// A member of the error object, "" where it is null.
  std::string error(const char* name) const {
    const auto parsed = json();
    if (!parsed.is_object() || !parsed.contains("error") || !parsed["error"][name].is_string()) return "";
    return parsed["error"][name];
  }
  /// The data of a stream's events, [DONE] included.
  std::vector<std::string> events() const {
    std::vector<std::string> found;
    for (size_t at = 0; at < body.size();) {
      const size_t end = body.find("\n\n", at);
      const std::string_view event = std::string_view(body).substr(at, end - at);
      if (event.starts_with("data: ")) found.emplace_back(event.substr(6));
      at = end == std::string::npos ? body.size() : end + 2;
    }
    return found;
  }
};

class TestClient {
 public:
  explicit TestClient(uint16_t port, int receive_buffer_bytes = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer_bytes > 0)
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  TestClient(TestClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_), input_(std::move(other.input_)) {}
  ~TestClient() { close(); }

  bool connected() const { return connected_; }

  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  /// Closes with a reset instead of an orderly end.
  void reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void shut_down_sending() { ::shutdown(fd_, SHUT_WR); }

  /// False where the other side has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  static std::string post(std::string_view path, std::string_view body, std::string_view more_headers = "") {
    std::string text = "POST " + std::string(path) +
                       " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: " +
                       std::to_string(body.size()) + "\r\n" + std::string(more_headers) + "\r\n";
    return text + std::string(body);
  }
  static std::string get(std::string_view path, std::string_view more_headers = "") {
    return "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(more_headers) + "\r\n";
  }

  /// Waits for bytes; false at the end of the connection or of the time.
  bool receive(int timeout_ms = 10'000) {
    pollfd query{fd_, POLLIN, 0};
    if (::poll(&query, 1, timeout_ms) <= 0) return false;
    char bytes[16384];
    const ssize_t count = ::recv(fd_, bytes, sizeof bytes, 0);
    if (count <= 0) return false;
    input_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  /// Reads until `text` has come. What came stays for read().
  bool receive_until(std::string_view text, int timeout_ms = 10'000) {
    while (input_.find(text) == std::string::npos)
      if (!receive(timeout_ms)) return false;
    return true;
  }

  /// Whether the server ends the connection within the time. Throws away what still comes.
  bool closed_within(int timeout_ms) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now())
              .count();
      if (left < 0) return false;
      pollfd query{fd_, POLLIN, 0};
      if (::poll(&query, 1, static_cast<int>(left)) <= 0) continue;
      char bytes[16384];
      if (::recv(fd_, bytes, sizeof bytes, 0) <= 0) return true;
    }
  }

  /// Reads one answer.
  ClientResponse read(int timeout_ms = 10'000, bool head_only = false) {
    ClientResponse response;
    if (!receive_until("\r\n\r\n", timeout_ms)) return response;
    const size_t head_end = input_.find("\r\n\r\n");
    parse_head(input_.substr(0, head_end), response);
    input_.erase(0, head_end + 4);
    if (response.status == 100) return read(timeout_ms, head_only);
    if (head_only || response.status == 204) {
      response.complete = true;
    } else if (response.headers.count("transfer-encoding")) {
      read_chunks(response, timeout_ms);
    } else if (response.headers.count("content-length")) {
      const size_t size = std::stoul(response.headers["content-length"]);
      while (input_.size() < size && receive(timeout_ms)) {
      }
      response.complete = input_.size() >= size;
      response.body = input_.substr(0, size);
      input_.erase(0, size);
    } else {
      while (receive(timeout_ms)) {
      }
      response.body = std::exchange(input_, {});
      response.complete = true;
    }
    return response;
  }

  ClientResponse call(std::string_view request) {
    send(request);
    return read();
  }

 private:
  static void parse_head(const std::string& head, ClientResponse& response) {
    if (head.size() > 12) response.status = std::atoi(head.c_str() + 9);
    for (size_t at = head.find("\r\n"); at != std::string::npos;) {
      at += 2;
      const size_t end = head.find("\r\n", at), colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      response.headers[name] = head.substr(colon + 2, end == std::string::npos ? end : end - colon - 2);
      at = end;
    }
  }

  void read_chunks(ClientResponse& response, int timeout_ms) {
    for (;;) {
      if (!receive_until("\r\n", timeout_ms)) return;
      const size_t line = input_.find("\r\n");
      const size_t size = std::stoul(input_.substr(0, line), nullptr, 16);
      while (input_.size() < line + size + 4)
        if (!receive(timeout_ms)) return;
      EXPECT_EQ(input_.substr(line + 2 + size, 2), "\r\n");
      response.body += input_.substr(line + 2, size);
      input_.erase(0, line + size + 4);
      if (size == 0) {
        response.complete = true;
        return;
      }
    }
  }

  int fd_ = -1;
  bool connected_ = false;
  std::string input_;
};

}  // namespace quintet
