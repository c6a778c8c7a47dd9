// The transport under rude clients: slow ones, silent ones, ones that leave, flood, pipeline or send rubbish.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "server/http.h"
#include "server/options_check.h"
#include "server/test_server.h"

namespace quintet {
namespace {

using namespace std::chrono_literals;

class TransportTest : public ServerTest {
 protected:
  static std::string stream(std::string_view prompt, int tokens = 4000) {
    return TestClient::post("/v1/completions", R"({"prompt": ")" + std::string(prompt) +
                                                   R"(", "stream": true, "max_tokens": )" +
                                                   std::to_string(tokens) + "}");
  }
};

TEST_F(TransportTest, KeepsConnections) {
  start();
  auto visitor = client();
  for (int i = 0; i < 5; ++i) {
    const auto got = visitor.call(i % 2 ? TestClient::get("/health")
                                        : TestClient::post("/v1/completions", completion("abc")));
    EXPECT_EQ(got.status, 200);
    EXPECT_EQ(got.headers.at("connection"), "keep-alive");
    EXPECT_TRUE(got.headers.count("date"));
  }
  const auto last = visitor.call(TestClient::get("/health", "Connection: close\r\n"));
  EXPECT_EQ(last.headers.at("connection"), "close");
  EXPECT_TRUE(visitor.closed_within(2000));
}

TEST_F(TransportTest, AnswersPipelinedRequestsInOrder) {
  start();
  engine.step_us = 200;
  auto visitor = client();
  std::string all;
  for (const char* prompt : {"first", "second", "third"})
    all += TestClient::post("/v1/completions", completion(prompt));
  all += stream("fourth", 6);
  all += TestClient::get("/health");
  ASSERT_TRUE(visitor.send(all));
  for (const char* prompt : {"first", "second", "third"})
    EXPECT_EQ(visitor.read().json()["choices"][0]["text"], prompt);
  const auto streamed = visitor.read();
  EXPECT_TRUE(streamed.complete);
  EXPECT_EQ(streamed.events().back(), "[DONE]");
  EXPECT_EQ(visitor.read().json()["status"], "ok");
}

TEST_F(TransportTest, AnswersWhatWasSentBeforeTheClientEndedItsHalf) {
  start();
  auto visitor = client();
  visitor.send(TestClient::get("/health") + TestClient::get("/v1/models") + TestClient::get("/nowhere"));
  visitor.shut_down_sending();
  EXPECT_EQ(visitor.read().status, 200);
  EXPECT_EQ(visitor.read().status, 200);
  EXPECT_EQ(visitor.read().status, 404);
  EXPECT_TRUE(visitor.closed_within(2000));
}

TEST_F(TransportTest, TakesRequestsByteByByte) {
  start();
  auto visitor = client();
  for (const char byte : TestClient::post("/v1/completions", completion("ab")))
    ASSERT_TRUE(visitor.send({&byte, 1}));
  EXPECT_EQ(visitor.read().json()["choices"][0]["text"], "ab");
}

TEST_F(TransportTest, SpeaksTheOlderVersion) {
  start();
  auto visitor = client();
  visitor.send("GET /health HTTP/1.0\r\n\r\n");
  const auto got = visitor.read();
  EXPECT_EQ(got.status, 200);
  EXPECT_EQ(got.headers.at("connection"), "close");
  EXPECT_TRUE(visitor.closed_within(2000));
  // A stream without chunks ends with the connection.
  auto old = client();
  const std::string body = R"({"prompt": "abc", "stream": true})";
  old.send("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body);
  const auto streamed = old.read();
  EXPECT_EQ(streamed.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(streamed.events().back(), "[DONE]");
}

TEST_F(TransportTest, TellsAWaitingClientToGoOn) {
  start();
  auto visitor = client();
  const std::string body = completion("abc");
  visitor.send(
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nExpect: "
      "100-continue\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  ASSERT_TRUE(visitor.receive_until("HTTP/1.1 100 Continue\r\n\r\n"));
  visitor.send(body);
  EXPECT_EQ(visitor.read().json()["choices"][0]["text"], "abc");
  // Not where the body would be refused anyway.
  auto big = client();
  big.send(
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n");
  EXPECT_EQ(big.read().status, 413);
}

TEST_F(TransportTest, ExplainsARefusalToAClientThatIsStillSending) {
  options.limits.max_body_bytes = 1000;
  start();
  auto visitor = client();
  visitor.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000\r\n\r\n");
  const std::string piece(100'000, 'x');
  for (int i = 0; i < 10 && visitor.send(piece); ++i) std::this_thread::sleep_for(1ms);
  const auto got = visitor.read();
  EXPECT_EQ(got.status, 413);
  EXPECT_EQ(got.error("code"), "body_too_large");
  EXPECT_EQ(got.headers.at("connection"), "close");
}

TEST_F(TransportTest, RefusesFloodsOfHeaders) {
  start();
  auto visitor = client();
  visitor.send("GET / HTTP/1.1\r\nHost: h\r\n");
  for (int i = 0; i < 100'000 && visitor.send("X-Header-" + std::to_string(i) + ": value\r\n"); ++i) {
  }
  EXPECT_EQ(visitor.read().status, 431);
  auto line = client();
  line.send("GET /" + std::string(100'000, 'x'));
  EXPECT_EQ(line.read().error("code"), "headers_too_large");
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(TransportTest, SurvivesRubbish) {
  start();
  std::mt19937 random(std::random_device{}());
  const std::string seed = TestClient::post("/v1/completions", completion("x"));
  for (int round = 0; round < 200; ++round) {
    std::string bytes;
    if (round % 2) {
      bytes = seed;
      for (int i = 0; i < 3; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    } else {
      bytes.resize(random() % 300);
      for (char& byte : bytes) byte = static_cast<char>(random());
      bytes += "\r\n\r\n";
    }
    auto visitor = client();
    visitor.send(bytes);
    if (round % 3 == 0) visitor.reset();
  }
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(TransportTest, EndsSlowRequestsAndIdleConnections) {
  options.limits.read_timeout_ms = 300;
  options.limits.idle_timeout_ms = 600;
  start();
  const auto before = std::chrono::steady_clock::now();
  // A byte of a header now and then is no progress, nor is one of a body.
  for (const std::string& start_of :
       {std::string("GET /health HTTP/1.1\r\nHost: h\r\n"),
        std::string("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n")}) {
    auto slow = client();
    slow.send(start_of);
    for (int i = 0; i < 200 && slow.send("x"); ++i) {
      std::this_thread::sleep_for(10ms);
      if (slow.receive(0)) break;
    }
    const auto got = slow.read();
    EXPECT_EQ(got.status, 408) << start_of;
    EXPECT_EQ(got.error("code"), "request_timeout");
  }
  auto silent = client();
  EXPECT_TRUE(silent.closed_within(5000));
  auto kept = client();
  EXPECT_EQ(kept.call(TestClient::get("/health")).status, 200);
  EXPECT_TRUE(kept.closed_within(5000));
  EXPECT_LT(std::chrono::steady_clock::now() - before, 15s);
  EXPECT_EQ(get("/health").status, 200);
}

TEST_F(TransportTest, WaitsForSlowAnswersAsLongAsTheyTake) {
  options.limits.read_timeout_ms = 100;
  options.limits.idle_timeout_ms = 100;
  options.limits.write_timeout_ms = 100;
  start();
  engine.hold(true);
  auto visitor = client();
  visitor.send(TestClient::post("/v1/completions", completion("abc")));
  std::this_thread::sleep_for(400ms);
  engine.hold(false);
  EXPECT_EQ(visitor.read().json()["choices"][0]["text"], "abc");
}

TEST_F(TransportTest, FreesThePlaceOfAClientThatLeaves) {
  start();
  engine.endless = true;
  engine.step_us = 500;
  for (const bool streams : {false, true}) {
    for (const bool waits : {false, true}) {
      for (const bool resets : {false, true}) {
        engine.hold(waits);
        auto visitor = client();
        visitor.send(streams ? stream("x")
                             : TestClient::post("/v1/completions", R"({"prompt": "x", "max_tokens": 4000})"));
        ASSERT_TRUE(engine.wait_running(1));
        if (streams && !waits) {
          ASSERT_TRUE(visitor.receive_until("data: "));
        }
        const int before = engine.cancels();
        if (resets)
          visitor.reset();
        else
          visitor.close();
        EXPECT_TRUE(engine.wait_running(0));
        EXPECT_EQ(engine.cancels(), before + 1) << streams << waits << resets;
      }
    }
  }
}

TEST_F(TransportTest, NoticesThatAClientLeftBehindALotOfPipelining) {
  start();
  engine.hold(true);
  auto visitor = client();
  visitor.send(TestClient::post("/v1/completions", completion("x")));
  ASSERT_TRUE(engine.wait_running(1));
  std::string more;
  while (more.size() < 200'000) more += TestClient::get("/health");
  visitor.send(more);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(engine.running(), 1u);
  visitor.close();
  EXPECT_TRUE(engine.wait_running(0));
}

TEST_F(TransportTest, AnswersALotOfPipelining) {
  start();
  auto visitor = client();
  std::string all;
  constexpr int kRequests = 3000;
  for (int i = 0; i < kRequests; ++i) all += TestClient::get("/health");
  std::thread sender([&] { EXPECT_TRUE(visitor.send(all)); });
  int answered = 0;
  while (answered < kRequests && visitor.read().status == 200) ++answered;
  sender.join();
  EXPECT_EQ(answered, kRequests);
}

TEST_F(TransportTest, LeavesAClientThatDoesNotRead) {
  engine.engine_limits.context = 1 << 30;
  options.limits.max_unsent_bytes = 64 << 10;
  start();
  engine.endless = true;
  auto slow = client(4096);
  slow.send(stream("x", 1 << 29));
  auto other = client();
  EXPECT_EQ(other.call(TestClient::post("/v1/completions", R"({"prompt": "abc", "max_tokens": 20})")).status,
            200)
      << "others go on";
  EXPECT_TRUE(engine.wait_cancels(1)) << "a full buffer ends the request";
  EXPECT_EQ(engine.running(), 0u);
}

TEST_F(TransportTest, LeavesAClientThatTakesNothingForLong) {
  engine.engine_limits.context = 1 << 30;
  options.limits.write_timeout_ms = 300;
  options.limits.max_unsent_bytes = 1u << 30;
  start();
  engine.endless = true;
  auto slow = client(4096);
  slow.send(stream("x", 1 << 29));
  EXPECT_TRUE(engine.wait_cancels(1));
}

TEST_F(TransportTest, TurnsAwayWhatIsTooMany) {
  options.limits.max_connections = 4;
  start();
  std::vector<TestClient> kept;
  for (int i = 0; i < 4; ++i) {
    kept.push_back(client());
    EXPECT_EQ(kept.back().call(TestClient::get("/health")).status, 200);
  }
  auto fifth = client();
  const auto got = fifth.read();
  EXPECT_EQ(got.status, 503);
  EXPECT_EQ(got.error("code"), "too_many_connections");
  kept.pop_back();
  for (int i = 0; i < 100; ++i) {
    if (client().call(TestClient::get("/health")).status == 200) return;
    std::this_thread::sleep_for(10ms);
  }
  FAIL() << "a place that became free was not given again";
}

TEST_F(TransportTest, InterleavesStreams) {
  start();
  engine.endless = true;
  engine.step_us = 300;
  auto first = client(), second = client();
  first.send(stream("a", 300));
  ASSERT_TRUE(first.receive_until("data: "));
  second.send(stream("b", 300));
  ASSERT_TRUE(second.receive_until("\"text\":\"b\""));
  EXPECT_EQ(engine.running(), 2u) << "the second stream's first token comes before the first stream's last";
  EXPECT_EQ(first.read().events().back(), "[DONE]");
  EXPECT_EQ(second.read().events().back(), "[DONE]");
}

TEST_F(TransportTest, ServesAHundredStreamsAtOnce) {
  start();
  constexpr int kStreams = 100;
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] {
      auto visitor = client();
      for (int round = 0; round < 2; ++round) {
        const std::string prompt = "stream " + std::to_string(i) + " round " + std::to_string(round);
        const auto got = visitor.call(stream(prompt, 200));
        std::string text;
        for (const auto& event : got.events())
          if (event != "[DONE]")
            text += nlohmann::json::parse(event)["choices"][0]["text"].get<std::string>();
        if (got.complete && text == prompt) ++good;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, 2 * kStreams);
  EXPECT_TRUE(engine.wait_running(0));
}

TEST_F(TransportTest, SurvivesAHundredClientsThatLeaveAtAnyMoment) {
  start();
  engine.endless = true;
  std::vector<std::thread> threads;
  for (int i = 0; i < 100; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      auto visitor = client();
      visitor.send(i % 2 ? stream("x")
                         : TestClient::post("/v1/completions", R"({"prompt": "x", "max_tokens": 4000})"));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
      if (i % 3) visitor.reset();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(engine.wait_running(0));
  EXPECT_EQ(get("/health").status, 200);
}

// ---- the end of the server ----

TEST_F(TransportTest, LetsAnswersEndBeforeItStops) {
  start();
  engine.hold(true);
  auto visitor = client(), idle = client();
  EXPECT_EQ(idle.call(TestClient::get("/health")).status, 200);
  visitor.send(stream("abc", 50));
  ASSERT_TRUE(engine.wait_running(1));
  std::thread stopper([&] { EXPECT_TRUE(server->stop()); });
  EXPECT_TRUE(idle.closed_within(5000));
  EXPECT_FALSE(client().call(TestClient::get("/health")).status == 200) << "nobody is let in any more";
  engine.hold(false);
  const auto got = visitor.read();
  EXPECT_TRUE(got.complete);
  EXPECT_EQ(got.events().back(), "[DONE]");
  stopper.join();
}

TEST_F(TransportTest, CancelsWhatTakesTooLongToEnd) {
  options.grace_ms = 100;
  start();
  engine.endless = true;
  engine.hold(true);
  auto streamed = client(), whole = client();
  streamed.send(stream("x"));
  whole.send(TestClient::post("/v1/completions", completion("x")));
  ASSERT_TRUE(engine.wait_running(2));
  const auto before = std::chrono::steady_clock::now();
  EXPECT_TRUE(server->stop());
  EXPECT_LT(std::chrono::steady_clock::now() - before, 5s);
  EXPECT_EQ(whole.read().status, 503);
  const auto events = streamed.read().events();
  ASSERT_GE(events.size(), 2u);
  EXPECT_NE(events[events.size() - 2].find("\"cancelled\""), std::string::npos);
  EXPECT_EQ(engine.running(), 0u);
}

TEST_F(TransportTest, StopsAtOnceWhenAskedTwice) {
  options.grace_ms = 60'000;
  start();
  engine.endless = true;
  engine.hold(true);
  auto visitor = client();
  visitor.send(stream("x"));
  ASSERT_TRUE(engine.wait_running(1));
  const auto before = std::chrono::steady_clock::now();
  server->request_stop();
  std::thread second([&] {
    std::this_thread::sleep_for(200ms);
    server->request_stop();
  });
  EXPECT_TRUE(server->wait());
  second.join();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 10s);
}

TEST_F(TransportTest, CanBeDestroyedWhileBusy) {
  options.grace_ms = 0;
  start();
  engine.endless = true;
  std::vector<TestClient> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(client());
    clients.back().send(stream("x"));
  }
  ASSERT_TRUE(clients.back().receive_until("data: "));
  server.reset();
  EXPECT_EQ(engine.running(), 0u);
}

TEST(HttpServer, DoesNotWaitForABusyHandlerWithoutBound) {
  std::promise<void> begun, let_go;
  const auto handler = [&](HttpRequest, const std::shared_ptr<HttpExchange>& exchange) {
    begun.set_value();
    let_go.get_future().wait();
    exchange->respond({});
  };
  auto server = start_http({.host = "127.0.0.1", .port = 0, .threads = 2, .limits = {}}, handler,
                           [](int status, const std::string&) { return HttpResponse{.status = status}; });
  ASSERT_TRUE(server) << server.error().message;
  TestClient visitor((*server)->port());
  visitor.send(TestClient::get("/"));
  begun.get_future().wait();
  EXPECT_FALSE((*server)->close(100));
  let_go.set_value();
  EXPECT_TRUE((*server)->close(10'000));
}

TEST_F(TransportTest, RefusesOptionsThatWouldReachHeadersAndLogs) {
  model.tokenizer = std::make_shared<ByteTokenizer>();
  options.port = 0;
  for (const char* origin : {"http://a\r\nX-Evil: 1", "http://a b", "example.org", "http://\x1b"}) {
    options.cors_origin = origin;
    const auto refused = start_server(engine, model, options);
    ASSERT_FALSE(refused) << origin;
    EXPECT_NE(refused.error().message.find("--cors-origin"), std::string::npos);
    EXPECT_EQ(refused.error().message.find('\r'), std::string::npos);
  }
  options.cors_origin = "*";
  for (const std::string& name : {std::string("m\r\nX: y"), std::string("\xFF"), std::string(300, 'm')}) {
    options.model_alias = name;
    const auto refused = start_server(engine, model, options);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("--model-name"), std::string::npos);
  }
}

TEST(Authority, WritesIpv6InBrackets) {
  EXPECT_EQ(authority("::1", 80), "[::1]:80");
  EXPECT_EQ(authority("[::1]", 80), "[::1]:80");
  EXPECT_EQ(authority("localhost", 8000), "localhost:8000");
}

TEST_F(TransportTest, SaysWhyItCannotListen) {
  start();
  auto again = options;
  again.port = server->port();
  const auto taken = start_server(engine, model, again);
  ASSERT_FALSE(taken);
  EXPECT_NE(taken.error().message.find(std::to_string(server->port())), std::string::npos)
      << taken.error().message;
  again.host = "no.such.host.invalid";
  const auto unknown = start_server(engine, model, again);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().kind, ErrorKind::bad_input);
}

}  // namespace
}  // namespace quintet
