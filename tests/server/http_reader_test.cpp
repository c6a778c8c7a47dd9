// Reading requests: what is one, what is refused and with which status, however the bytes are cut.
#include <gtest/gtest.h>

#include <random>

#include "server/http.h"

namespace quintet {
namespace {

HttpParse parse(std::string_view text, ServerLimits limits = {}) { return parse_http_request(text, limits); }

TEST(HttpReader, TakesARequestApart) {
  const auto got = parse(
      "POST /v1/x?a=b&c HTTP/1.1\r\nHost: h\r\nX-Thing:  some value \r\nContent-Length: 5\r\n\r\nhelloGET /");
  ASSERT_EQ(got.status, 0) << got.message;
  EXPECT_EQ(got.request.method, "POST");
  EXPECT_EQ(got.request.path, "/v1/x");
  EXPECT_EQ(got.request.query, "a=b&c");
  EXPECT_EQ(got.request.header("x-THING"), "some value");
  EXPECT_EQ(got.request.header("absent"), "");
  EXPECT_EQ(got.request.body, "hello");
  EXPECT_TRUE(got.request.keep_alive);
  EXPECT_EQ(
      std::string_view(
          "POST /v1/x?a=b&c HTTP/1.1\r\nHost: h\r\nX-Thing:  some value \r\nContent-Length: 5\r\n\r\nhello")
          .size(),
      got.used_bytes);
}

TEST(HttpReader, TakesChunksAndTheAbsoluteForm) {
  const auto got = parse(
      "POST http://host:1/path?q HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;ext=1\r\nabc\r\n4\r\ndefg\r\n0\r\nTrailer: x\r\n\r\n");
  ASSERT_EQ(got.status, 0) << got.message;
  EXPECT_EQ(got.request.body, "abcdefg");
  EXPECT_EQ(got.request.path, "/path");
  EXPECT_EQ(got.request.query, "q");
  EXPECT_EQ(parse("GET http://host HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/");
}

TEST(HttpReader, KeepsConnectionsAsTheVersionSays) {
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\n\r\n").request.keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.0\r\n\r\n").request.chunks_allowed);
  EXPECT_TRUE(parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").request.keep_alive);
  EXPECT_FALSE(parse("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").request.keep_alive);
}

struct Refusal {
  const char* name;
  std::string text;
  int status;
};

std::string post(std::string_view headers) {
  return "POST / HTTP/1.1\r\nHost: h\r\n" + std::string(headers) + "\r\n";
}

TEST(HttpReader, RefusesWhatIsNotHttp) {
  const Refusal cases[] = {
      {"lines that end in LF alone", "GET / HTTP/1.1\nHost: h\n\n", 400},
      {"binary", std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8) + "\r\n\r\n", 400},
      {"no version", "GET /\r\n\r\n", 400},
      {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"HTTP/3.7", "GET / HTTP/3.7\r\nHost: h\r\n\r\n", 505},
      {"HTTP/1.2", "GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505},
      {"byte that no method has", "G{T / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"control byte in target", "GET /\x01 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
      {"no host", "GET / HTTP/1.1\r\n\r\n", 400},
      {"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"space before colon", "GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400},
      {"NUL in a value", std::string("GET / HTTP/1.1\r\nHost: h\r\nX: a") + '\0' + "b\r\n\r\n", 400},
      {"negative length", post("Content-Length: -1\r\n"), 400},
      {"length not a number", post("Content-Length: 1e3\r\n"), 400},
      {"length beyond 64 bits", post("Content-Length: 99999999999999999999\r\n"), 400},
      {"two lengths", post("Content-Length: 1\r\nContent-Length: 2\r\n"), 400},
      {"length and chunks", post("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400},
      {"chunks and length", post("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), 400},
      {"chunked twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
      {"gzip, chunked", post("Transfer-Encoding: gzip, chunked\r\n"), 501},
      {"chunked, gzip", post("Transfer-Encoding: chunked, gzip\r\n"), 501},
      {"identity", post("Transfer-Encoding: identity\r\n"), 501},
      {"chunks in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"chunk size not hexadecimal", post("Transfer-Encoding: chunked\r\n") + "xyz\r\n", 400},
      {"chunk size beyond 64 bits", post("Transfer-Encoding: chunked\r\n") + "fffffffffffffffff\r\n", 400},
      {"chunk without its end", post("Transfer-Encoding: chunked\r\n") + "1\r\nabc\r\n", 400},
      {"odd expectation", post("Expect: the unexpected\r\nContent-Length: 1\r\n") + "x", 417},
  };
  for (const auto& [name, text, status] : cases) {
    const auto got = parse(text);
    EXPECT_EQ(got.status, status) << name << ": " << got.message;
    EXPECT_FALSE(got.message.empty()) << name;
  }
}

TEST(HttpReader, BoundsHeadersAndBodies) {
  ServerLimits limits;
  limits.max_header_bytes = 1000;
  limits.max_body_bytes = 100;
  EXPECT_EQ(parse("GET /" + std::string(2000, 'x') + " HTTP/1.1\r\nHost: h\r\n\r\n", limits).status, 431);
  EXPECT_EQ(parse("GET /" + std::string(2000, 'x'), limits).status, 431) << "refused before it ends";
  EXPECT_EQ(parse(post("X: " + std::string(1000, 'x') + "\r\n"), limits).status, 431);
  std::string many;
  for (int i = 0; i < 200; ++i) many += "A: b\r\n";
  EXPECT_EQ(parse(post(many), limits).status, 431) << "many short fields";
  for (size_t piece : {1, 7, 64})
    EXPECT_EQ(parse_http_request(post(many), limits, piece).status, 431) << "fields that come one by one";
  // One byte to either side of each limit.
  const std::string frame = post("X: \r\n");
  EXPECT_EQ(parse(post("X: " + std::string(1000 - frame.size(), 'x') + "\r\n"), limits).status, 0);
  EXPECT_EQ(parse(post("X: " + std::string(1001 - frame.size(), 'x') + "\r\n"), limits).status, 431);
  EXPECT_EQ(parse(post("Content-Length: 100\r\n") + std::string(100, 'x'), limits).status, 0);
  EXPECT_EQ(parse(post("Content-Length: 101\r\n"), limits).status, 413) << "refused before it comes";
  const std::string chunked = post("Transfer-Encoding: chunked\r\n");
  EXPECT_EQ(parse(chunked + "64\r\n" + std::string(100, 'x') + "\r\n0\r\n\r\n", limits).status, 0);
  EXPECT_EQ(
      parse(chunked + "32\r\n" + std::string(50, 'x') + "\r\n33\r\n" + std::string(51, 'x') + "\r\n0\r\n\r\n",
            limits)
          .status,
      413);
  EXPECT_EQ(parse(chunked + "1;" + std::string(200'000, 'e'), limits).status, 400)
      << "an endless chunk extension";
}

TEST(HttpReader, WaitsForMore) {
  const std::string whole = post("Content-Length: 3\r\n") + "abc";
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(parse(whole.substr(0, size)).status, 100) << size;
}

TEST(HttpReader, CuttingTheBytesChangesNothing) {
  std::mt19937 random(std::random_device{}());
  const std::vector<std::string> texts = {
      post("Content-Length: 10\r\n") + "0123456789",
      post("Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n") +
          "a\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n",
      "GET /a?b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
      post("Transfer-Encoding: chunked\r\n") + "g\r\n",
  };
  for (const auto& original : texts) {
    for (int round = 0; round < 50; ++round) {
      std::string text = original;
      // Half of the rounds damage a byte: whatever the verdict, it must not depend on how the bytes arrive.
      if (round % 2) text[random() % text.size()] = static_cast<char>(random());
      const size_t piece = 1 + random() % text.size();
      // Headers that come in pieces are judged when their end has come: sooner or later the same verdict.
      if (parse_http_request(text, {}, piece).status == 100) text += "\r\n\r\n";
      const auto whole = parse(text);
      const auto cut = parse_http_request(text, {}, piece);
      EXPECT_EQ(cut.status, whole.status) << piece << " of " << testing::PrintToString(text);
      EXPECT_EQ(cut.request.body, whole.request.body);
      EXPECT_EQ(cut.request.path, whole.request.path);
      if (whole.status == 0) {
        EXPECT_EQ(cut.used_bytes, whole.used_bytes);
      }
    }
  }
}

}  // namespace
}  // namespace quintet
