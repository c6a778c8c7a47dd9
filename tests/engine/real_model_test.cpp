// A real model on the CPU backend: its tokens do not depend on company, chunks, prefix hits or preemption.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "backend/cpu/cpu.h"
#include "base/units.h"
#include "engine/engine_client.h"
#include "engine/loop.h"
#include "engine/model_executor.h"
#include "sanitized.h"

namespace quintet {
namespace {

constexpr bool kSanitized = kPart > 1;  // a token takes a second there
// New tokens of a long and of a short request: a short one begins in one page and ends in three.
constexpr int32_t kLongTokens = kSanitized ? 6 : 16, kShortTokens = 36;
// Short requests that crowd a pool of so many pages; the other short ones are cut to few tokens.
constexpr size_t kCrowd = kSanitized ? 2 : 5;
constexpr int32_t kCrowdedPages = kSanitized ? 4 : 7, kFewTokens = 8;

std::string path_of(const std::string& file) { return QUINTET_SOURCE_DIR "/models/" + file; }

/// How an engine is set up for a test; everything else is as a user gets it.
struct Room {
  int32_t sequences = 8;
  int32_t step_tokens = 512;
  int32_t pages = 256;
  bool chain_steps = false;
};

struct Outcome {
  std::map<RequestId, std::vector<TokenId>> tokens;
  std::map<RequestId, Usage> usage;
  uint64_t preemptions = 0;
};

class RealModelTest : public ::testing::Test {
 protected:
  /// Skips the test where the file is absent.
  void load(const std::string& file, const char* command) {
    if (!std::filesystem::exists(path_of(file)))
      GTEST_SKIP() << path_of(file) << " is absent: run `" << command << "`";
    backend = make_cpu_backend({});
    auto loaded = load_model(path_of(file), *backend, {});
    ASSERT_TRUE(loaded) << loaded.error().message;
    model = std::move(loaded).value();
  }
  void SetUp() override { load("SmolLM2-135M-Instruct.Q4_1.gguf", "make models"); }

  Request request(RequestId id, const std::string& text, float temperature, int32_t max_new_tokens) {
    Request request{.id = id,
                    .prompt = model->tokenizer->encode(text, {}),
                    .seed = 1234 + id,
                    .max_new_tokens = max_new_tokens,
                    .stop_ids = model->stop_ids};
    request.sampling.temperature = temperature;
    request.sampling.top_p = temperature > 0 ? 0.95f : 1;
    request.sampling.repeat_penalty = 1.05f;
    return request;
  }

  /// Runs `requests` to their ends in one loop, each submitted at the step that stands beside it.
  Outcome run(const Room& room, const std::vector<std::pair<int, Request>>& requests) {
    const ModelConfig& config = model->config;
    const PageClass page = backend->page_class(config.layers, config.kv_heads, config.head_dim, 16);
    const int32_t context = std::min(room.pages * page.tokens, 1024);
    const WorkspaceLimits limits{.rows = room.step_tokens + room.sequences,
                                 .seqs = room.sequences,
                                 .logit_rows = room.sequences,
                                 .context = context};
    auto executor =
        ModelExecutor::make(*backend, *model, {.limits = limits, .page = page, .pages = room.pages});
    EXPECT_TRUE(executor);
    auto loop = Loop::make(*executor, {.limits = {.context = context,
                                                  .sequences = room.sequences,
                                                  .waiting = 16,
                                                  .kv_tokens = int64_t{room.pages} * page.tokens},
                                       .step_tokens = room.step_tokens,
                                       .chain_steps = room.chain_steps,
                                       .kv = {.page = page, .pages = room.pages},
                                       .numerics_id = backend->numerics().id(),
                                       .clock_us = now_us})
                    .value();
    Outcome outcome;
    std::vector<TokenEvent> events;
    size_t ended = 0;
    for (int step = 0; ended < requests.size(); ++step) {
      for (const auto& [at, request] : requests)
        if (at == step) {
          outcome.tokens[request.id] = {};
          loop->submit(request, events);
        }
      EXPECT_TRUE(loop->step(events));
      for (const TokenEvent& event : events) {
        if (event.token >= 0) outcome.tokens[event.id].push_back(event.token);
        if (event.finish == FinishReason::none) continue;
        EXPECT_NE(event.finish, FinishReason::error) << event.message;
        outcome.usage[event.id] = event.usage;
        ++ended;
      }
      events.clear();
    }
    outcome.preemptions = loop->preemptions();
    return outcome;
  }

  std::vector<TokenId> alone(const Request& request, int32_t step_tokens = 512) {
    return run({.step_tokens = step_tokens}, {{0, request}}).tokens[request.id];
  }

  /// A prompt longer than several blocks, a short one, and company for them.
  std::vector<Request> requests(float temperature) {
    std::string story = "The old lighthouse keeper wrote in his log every night.";
    for (int i = 0; i < 3; ++i)
      story += " The wind came from the north, the sea was high, and no ship was seen.";
    const std::vector<std::string> texts = {story + " On the last night he wrote:",
                                            "The capital of France is",
                                            "def fibonacci(n):\n",
                                            "Once upon a time",
                                            "1, 2, 3, 5, 8, 13,",
                                            "Water boils at",
                                            story};
    std::vector<Request> all;
    for (size_t i = 0; i < texts.size(); ++i)
      all.push_back(request(i + 1, texts[i], temperature,
                            texts[i].size() > 100 ? kLongTokens : i <= kCrowd ? kShortTokens : kFewTokens));
    return all;
  }

  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};

class RealModelAt : public RealModelTest, public ::testing::WithParamInterface<float> {};

TEST_P(RealModelAt, TokensAreThoseOfTheRequestAlone) {
  const std::vector<Request> all = requests(GetParam());
  std::map<RequestId, std::vector<TokenId>> expected;
  for (const Request& request : all) expected[request.id] = alone(request);
  EXPECT_EQ(expected[1].size(), static_cast<size_t>(kLongTokens));

  // Prompts in chunks of any size.
  for (int32_t step_tokens : kSanitized ? std::vector{7} : std::vector{1, 7, 64})
    EXPECT_EQ(alone(all[0], step_tokens), expected[1]) << "in chunks of " << step_tokens;

  // In a batch of seven, arriving together and one after the other.
  for (int gap : kSanitized ? std::vector{3} : std::vector{0, 3}) {
    std::vector<std::pair<int, Request>> arrivals;
    for (size_t i = 0; i < all.size(); ++i) arrivals.emplace_back(static_cast<int>(i) * gap, all[i]);
    EXPECT_EQ(run({.step_tokens = 40}, arrivals).tokens, expected) << "a gap of " << gap << " steps";
  }

  // With every step launched before the one that samples its tokens is waited for.
  std::vector<std::pair<int, Request>> streams;
  for (size_t i = 0; i < all.size(); ++i) streams.emplace_back(static_cast<int>(i) * 2, all[i]);
  EXPECT_EQ(run({.step_tokens = 40, .chain_steps = true}, streams).tokens, expected);

  // After the same beginning was computed for somebody else.
  Request again = all[0];
  again.id = 99;
  const Outcome hit = run({}, {{0, all[6]}, {20, all[0]}, {40, again}});
  EXPECT_EQ(hit.tokens.at(1), expected[1]);
  EXPECT_EQ(hit.tokens.at(99), expected[1]);
  EXPECT_GE(hit.usage.at(1).cached_tokens, 48);
  EXPECT_GE(hit.usage.at(99).cached_tokens, hit.usage.at(1).cached_tokens);

  // In a pool that is too small for the short ones.
  std::vector<std::pair<int, Request>> together;
  for (size_t i = 1; i <= kCrowd; ++i) together.emplace_back(0, all[i]);
  const Outcome crowded = run({.pages = kCrowdedPages}, together);
  EXPECT_GT(crowded.preemptions, 0u);
  for (const auto& [id, tokens] : crowded.tokens) EXPECT_EQ(tokens, expected[id]) << "request " << id;

  // Resumed in the middle, as after a crash.
  Request resumed = all[0];
  const auto cut = expected[1].begin() + kLongTokens * 2 / 3;
  resumed.generated.assign(expected[1].begin(), cut);
  const std::vector<TokenId> rest = alone(resumed);
  EXPECT_EQ(rest, std::vector<TokenId>(cut, expected[1].end()));
}

INSTANTIATE_TEST_SUITE_P(Temperature, RealModelAt,
                         ::testing::ValuesIn(kSanitized ? std::vector{1.0f} : std::vector{0.0f, 1.0f}));

TEST_F(RealModelTest, TheEngineAsAUserStartsIt) {
  auto started = start_engine(*backend, *model, {});
  ASSERT_TRUE(started) << started.error().message;
  auto engine = std::move(started).value();
  EXPECT_EQ(engine->limits().context, model->config.context);
  const Request asked = request(1, "The capital of France is", 0, 24 / kPart);
  ASSERT_TRUE(engine->submit(asked));
  std::vector<TokenId> tokens;
  for (bool ended = false; !ended;)
    for (const TokenEvent& event : engine->poll(10'000'000)) {
      if (event.token >= 0) tokens.push_back(event.token);
      ended |= event.finish != FinishReason::none;
    }
  EXPECT_EQ(tokens, alone(asked));
  EXPECT_NE(model->tokenizer->decode(tokens).find("Paris"), std::string::npos);

  EngineOptions wide;
  wide.context = model->config.context + 1;
  EXPECT_EQ(start_engine(*backend, *model, wide).error().kind, ErrorKind::bad_input);
  EngineOptions huge;
  huge.kv_tokens = int64_t{1} << 31;
  const auto refused = start_engine(*backend, *model, huge);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::no_room);
  EXPECT_NE(refused.error().message.find("KV cache"), std::string::npos) << refused.error().message;
}

struct OtherModel {
  const char* file;
  const char* command;
  int32_t prompt_tokens;
};

class OtherModels : public RealModelTest, public ::testing::WithParamInterface<OtherModel> {
 protected:
  void SetUp() override { load(GetParam().file, GetParam().command); }
};

TEST_P(OtherModels, TokensDoNotDependOnChunksCompanyOrHits) {
  std::string text = "Notes of a walk.";
  const int32_t prompt_tokens = kSanitized ? 40 : GetParam().prompt_tokens;
  while (static_cast<int32_t>(model->tokenizer->encode(text, {}).size()) < prompt_tokens)
    text += " We passed house number " + std::to_string(text.size()) + " and went on.";
  const Request walk = request(1, text, 0.7f, 8), other = request(2, "The sea", 0.7f, 30 / kPart);
  const std::vector<TokenId> expected = alone(walk);
  EXPECT_EQ(expected.size(), 8u);
  Request again = walk;
  again.id = 3;
  const Outcome outcome = run({.step_tokens = 300}, {{0, other}, {2, walk}, {25, again}});
  EXPECT_EQ(outcome.tokens.at(1), expected);
  EXPECT_EQ(outcome.tokens.at(3), expected);
  EXPECT_GT(outcome.usage.at(3).cached_tokens, prompt_tokens - 20);
}

// Gemma looks back 512 tokens in most of its layers: the prompt is longer than that.
INSTANTIATE_TEST_SUITE_P(RealModel, OtherModels,
                         ::testing::Values(OtherModel{"gemma-3-270m.Q4_K_M.gguf", "make models", 560},
                                           OtherModel{"qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf",
                                                      "make models-all", 60}));

TEST_F(RealModelTest, PromptLogitsAreThoseOfTheEngineHoweverTheyAreCut) {
  const std::vector<TokenId> tokens = model->tokenizer->encode("The capital of France is the city of", {});
  std::vector<std::vector<float>> by_chunk;
  for (int32_t chunk : {1, 3, 512}) {
    std::vector<float>& all = by_chunk.emplace_back();
    int32_t next = 0;
    ASSERT_TRUE(
        prompt_logits(*backend, *model, tokens, chunk, [&](int32_t first, int32_t rows, const float* logits) {
          EXPECT_EQ(first, next);
          next += rows;
          all.insert(all.end(), logits, logits + int64_t{rows} * model->config.vocabulary);
          return Status();
        }));
    EXPECT_EQ(next, static_cast<int32_t>(tokens.size()));
  }
  EXPECT_EQ(by_chunk[0], by_chunk[2]);
  EXPECT_EQ(by_chunk[1], by_chunk[2]);
  Request greedy{.id = 1, .prompt = tokens, .max_new_tokens = 1};
  const auto last = by_chunk[2].end() - model->config.vocabulary;
  EXPECT_EQ(alone(greedy)[0], std::max_element(last, by_chunk[2].end()) - last);
  // An error of the sink ends the work there.
  int calls = 0;
  const Status stopped = prompt_logits(*backend, *model, tokens, 1, [&](int32_t, int32_t, const float*) {
    return ++calls < 2 ? Status() : Status(Error{ErrorKind::cancelled, "enough"});
  });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().kind, ErrorKind::cancelled);
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(prompt_logits(*backend, *model, {}, 8, nullptr));
  EXPECT_FALSE(prompt_logits(*backend, *model, {-1}, 8, nullptr));
}

}  // namespace
}  // namespace quintet
