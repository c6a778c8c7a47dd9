// Answers in the making: text across tokens, stop strings, logprobs, and the shapes of chunks.
#include "server/answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "server/fake_engine.h"
#include "server/sse.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

/// The data of every event, parsed; [DONE] as null.
std::vector<Json> events_of(const std::string& stream) {
  std::vector<Json> events;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string data = stream.substr(at + 6, end - at - 6);
    events.push_back(data == "[DONE]" ? Json(nullptr) : Json::parse(data));
    at = end + 2;
  }
  return events;
}

struct Played {
  std::vector<Json> events;
  std::string text;  ///< of the deltas
  std::string body;  ///< of a whole answer
  bool asked_to_cancel = false;
  std::string finish_reason;
};

/// Plays `text` byte by byte into an answer, then `finish`. A request to cancel is heard `late` tokens later.
Played play(AnswerOptions options, std::string_view text, FinishReason finish = FinishReason::stop,
            int late = 2) {
  const ByteTokenizer tokenizer;
  Answer answer(tokenizer, options);
  Played played;
  std::string stream;
  TokenEvent event;
  int extra = 0;
  for (const TokenId token : bytes_of(text)) {
    event.token = token;
    event.logprob = -static_cast<float>(event.index);
    event.alternatives.clear();
    for (int32_t i = 0; i < 3; ++i)
      event.alternatives.push_back({(token + i) % 256, event.logprob - static_cast<float>(i)});
    stream += answer.push(event);
    ++event.index;
    if (answer.stopped() && extra++ == late) break;
  }
  played.asked_to_cancel = answer.stopped();
  event.token = -1;
  event.finish = played.asked_to_cancel ? FinishReason::cancelled : finish;
  event.usage.prompt_tokens = 5;
  event.usage.completion_tokens = event.index;
  event.message = "boom";
  stream += answer.push(event);
  EXPECT_TRUE(answer.done());
  EXPECT_EQ(answer.push(event), "") << "nothing comes after the end";
  played.events = events_of(stream);
  for (const Json& chunk : played.events) {
    if (chunk.is_null() || !chunk.contains("choices") || chunk["choices"].empty()) continue;
    const Json& choice = chunk["choices"][0];
    if (choice.contains("text")) played.text += choice["text"].get<std::string>();
    if (choice.contains("delta")) played.text += choice["delta"].value("content", "");
    if (choice["finish_reason"].is_string()) played.finish_reason = choice["finish_reason"];
  }
  if (!options.stream && answer.failure() == FinishReason::none) {
    played.body = answer.body();
    const Json body = Json::parse(played.body);
    played.finish_reason = body["choices"][0]["finish_reason"];
    played.text = options.head.endpoint == Endpoint::chat
                      ? body["choices"][0]["message"]["content"].get<std::string>()
                      : body["choices"][0]["text"].get<std::string>();
  }
  return played;
}

AnswerOptions options_for(Endpoint endpoint, bool stream) {
  AnswerOptions options;
  options.head = {endpoint, "id-1", "m", "fp_1", 1234};
  options.stream = stream;
  options.stop_ids = {ByteTokenizer::kEos};
  return options;
}

TEST(Answer, StreamsAChatInOpenAisShape) {
  auto options = options_for(Endpoint::chat, true);
  options.include_usage = true;
  const auto played = play(options, "aé");
  // Role, "a", (nothing for half a character), "é", the end, the usage, [DONE].
  ASSERT_EQ(played.events.size(), 6u);
  EXPECT_EQ(
      played.events[0].dump(),
      R"({"id":"id-1","object":"chat.completion.chunk","created":1234,"model":"m","system_fingerprint":"fp_1",)"
      R"("choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null})");
  EXPECT_EQ(played.events[1]["choices"][0]["delta"].dump(), R"({"content":"a"})");
  EXPECT_EQ(played.events[2]["choices"][0]["delta"].dump(), R"({"content":"é"})");
  EXPECT_EQ(played.events[3]["choices"][0].dump(),
            R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"})");
  EXPECT_EQ(played.events[4]["choices"].dump(), "[]");
  EXPECT_EQ(
      played.events[4]["usage"].dump(),
      R"({"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":0}})");
  EXPECT_TRUE(played.events[5].is_null());
}

TEST(Answer, StreamsACompletionInOpenAisShape) {
  const auto played = play(options_for(Endpoint::completions, true), "hi", FinishReason::length);
  ASSERT_EQ(played.events.size(), 4u);
  EXPECT_EQ(
      played.events[0].dump(),
      R"({"id":"id-1","object":"text_completion","created":1234,"model":"m","system_fingerprint":"fp_1",)"
      R"("choices":[{"index":0,"text":"h","logprobs":null,"finish_reason":null}]})");
  EXPECT_EQ(played.events[2]["choices"][0].dump(),
            R"({"index":0,"text":"","logprobs":null,"finish_reason":"length"})");
}

TEST(Answer, GivesWholeAnswersInOpenAisShape) {
  EXPECT_EQ(
      play(options_for(Endpoint::chat, false), "hi").body,
      R"({"id":"id-1","object":"chat.completion","created":1234,"model":"m","system_fingerprint":"fp_1","choices":[{"index":0,)"
      R"("message":{"role":"assistant","content":"hi","refusal":null},"logprobs":null,"finish_reason":"stop"}],)"
      R"("usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":0}}})");
  EXPECT_EQ(play(options_for(Endpoint::completions, false), "hi", FinishReason::length).finish_reason,
            "length");
}

TEST(Answer, NeverLetsAStopStringOut) {
  struct Case {
    std::vector<std::string> stop;
    std::string text, want;
    bool stopped;
  };
  const Case cases[] = {
      {{"END"}, "abcENDxyz", "abc", true},
      {{"END"}, "abcEN", "abcEN", false},
      {{"END"}, "abcEND", "abc", true},
      {{"END"}, "ENENEND", "ENEN", true},
      {{"x", "bc"}, "abcx", "a", true},
      {{"é"}, "caféx", "caf", true},
      {{"\n\n"}, "one\ntwo\n\nthree", "one\ntwo", true},
  };
  for (const auto& item : cases) {
    for (const bool stream : {false, true}) {
      for (const auto endpoint : {Endpoint::chat, Endpoint::completions}) {
        auto options = options_for(endpoint, stream);
        options.stop = item.stop;
        options.include_usage = true;
        const auto played = play(options, item.text);
        EXPECT_EQ(played.text, item.want);
        EXPECT_EQ(played.asked_to_cancel, item.stopped) << item.text;
        EXPECT_EQ(played.finish_reason, "stop");
      }
    }
  }
}

TEST(Answer, CountsTokensUpToTheStopString) {
  auto options = options_for(Endpoint::completions, false);
  options.stop = {"END"};
  EXPECT_EQ(Json::parse(play(options, "abcENDmore").body)["usage"]["completion_tokens"], 6);
}

TEST(Answer, HoldsBackLogprobsWithTheirText) {
  auto options = options_for(Endpoint::chat, true);
  options.logprobs = true;
  options.top_logprobs = 2;
  options.stop = {"END"};
  std::string tokens;
  const auto played = play(options, "aEbEND");
  for (const Json& chunk : played.events) {
    if (chunk.is_null() || chunk["choices"][0]["logprobs"].is_null()) continue;
    for (const Json& token : chunk["choices"][0]["logprobs"]["content"]) {
      tokens += token["token"].get<std::string>();
      EXPECT_EQ(token["top_logprobs"].size(), 2u);
      EXPECT_EQ(token["top_logprobs"][0]["token"], token["token"]);
    }
  }
  EXPECT_EQ(tokens, "aEb") << "those of the stop string never go out";
  EXPECT_EQ(played.text, "aEb");
}

TEST(Answer, GivesLogprobsOfWholeAnswers) {
  auto options = options_for(Endpoint::completions, false);
  options.logprobs = true;
  options.top_logprobs = 1;
  const Json got = Json::parse(play(options, "aéb").body)["choices"][0]["logprobs"];
  EXPECT_EQ(got["tokens"].size(), 4u);
  EXPECT_EQ(got["tokens"][0], "a");
  EXPECT_EQ(got["tokens"][1], "\uFFFD") << "half a character";
  EXPECT_EQ(got["token_logprobs"].dump(), "[0.0,-1.0,-2.0,-3.0]");
  EXPECT_EQ(got["text_offset"].dump(), "[0,1,1,2]") << "in characters";
  EXPECT_EQ(got["top_logprobs"][0].dump(), R"({"a":0.0})");

  options.head.endpoint = Endpoint::chat;
  const Json chat = Json::parse(play(options, "é").body)["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(chat.size(), 2u);
  EXPECT_EQ(chat[0]["bytes"].dump(), "[195]");
  EXPECT_EQ(chat[1]["bytes"].dump(), "[169]");
}

TEST(Answer, TellsOfFailuresInsideAStream) {
  for (const auto finish : {FinishReason::error, FinishReason::cancelled}) {
    const auto played = play(options_for(Endpoint::chat, true), "ab", finish);
    EXPECT_EQ(played.text, "ab");
    const Json& error = played.events[played.events.size() - 2];
    ASSERT_TRUE(error.contains("error")) << error.dump();
    EXPECT_EQ(error["error"]["type"], "server_error");
    EXPECT_EQ(error["error"]["message"] == "boom", finish == FinishReason::error);
    EXPECT_TRUE(played.events.back().is_null());
    EXPECT_EQ(played.finish_reason, "");
  }
}

TEST(Answer, DropsRepeatedEventsAndEndTokens) {
  const ByteTokenizer tokenizer;
  Answer answer(tokenizer, options_for(Endpoint::completions, false));
  const auto event = [](int32_t index, TokenId token, FinishReason finish = FinishReason::none) {
    TokenEvent made;
    made.index = index;
    made.token = token;
    made.finish = finish;
    return made;
  };
  answer.push(event(0, 'a'));
  answer.push(event(1, 'b'));
  answer.push(event(0, 'a'));  // a worker that was started again repeats itself
  answer.push(event(1, 'b'));
  answer.push(event(2, 'c'));
  answer.push(event(3, ByteTokenizer::kEos, FinishReason::stop));
  EXPECT_EQ(Json::parse(answer.body())["choices"][0]["text"], "abc");
}

TEST(Answer, ContinuesInTheMiddleOfACharacter) {
  const ByteTokenizer tokenizer;
  auto options = options_for(Endpoint::completions, false);
  options.continues = bytes_of("x\xC3");
  Answer answer(tokenizer, options);
  TokenEvent event;
  event.token = 0xA9;
  answer.push(event);
  event.index = 1;
  event.token = 'z';
  event.finish = FinishReason::length;
  answer.push(event);
  EXPECT_EQ(Json::parse(answer.body())["choices"][0]["text"], "éz");
}

TEST(Answer, StreamAndWholeAnswerAgreeOnAnyBytes) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 200; ++round) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = "ab\xC3\xA9\xF0\x9F\x98\x80"[random() % 8];
    auto options = options_for(Endpoint::completions, false);
    options.stop = {"ab", "\xC3\xA9"};
    options.logprobs = round % 2;
    const auto whole = play(options, text);
    options.stream = true;
    const auto streamed = play(options, text, FinishReason::stop, static_cast<int>(random() % 4));
    EXPECT_EQ(whole.text, streamed.text) << testing::PrintToString(text);
    EXPECT_EQ(whole.text.find("ab"), std::string::npos);
  }
}

TEST(Sse, SplitsLines) {
  EXPECT_EQ(sse_event("a"), "data: a\n\n");
  EXPECT_EQ(sse_event(""), "data: \n\n");
  EXPECT_EQ(sse_event("a\nb\r\nc\rd"), "data: a\ndata: b\ndata: c\ndata: d\n\n");
}

}  // namespace
}  // namespace quintet
