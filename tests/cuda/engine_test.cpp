// The engine on a GPU: replayed steps give the bits of issued ones, alone or among others; a real model says what the
// field's reference says; devices that are not there are refused.
#include <filesystem>
#include <map>

#include "cuda_fixture.h"
#include "engine/engine_client.h"
#include "flat_inputs.h"
#include "golden/golden_data.h"
#include "model/synthetic.h"

namespace quintet {
namespace {

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::vector<TokenId> alternatives;
  FinishReason finish = FinishReason::none;
  std::string message;
  bool operator==(const Answer&) const = default;
};

class CudaEngine : public CudaTest {
 protected:
  /// Runs requests at once and gives their answers by id.
  std::map<RequestId, Answer> run(Backend& backend, const Model& model, const std::vector<Request>& requests, const EngineOptions& options) {
    auto engine = start_engine(backend, model, options);
    EXPECT_TRUE(engine) << (engine ? "" : engine.error().message);
    std::map<RequestId, Answer> answers;
    if (!engine) return answers;
    for (const Request& request : requests) EXPECT_TRUE((*engine)->submit(request));
    for (size_t ended = 0; ended < requests.size();)
      for (const TokenEvent& event : (*engine)->poll(1'000'000)) {
        Answer& answer = answers[event.id];
        if (event.token >= 0) answer.tokens.push_back(event.token), answer.logprobs.push_back(event.logprob);
        for (const Alternative& alternative : event.alternatives) answer.alternatives.push_back(alternative.token);
        if (event.finish == FinishReason::none) continue;
        answer.finish = event.finish, answer.message = event.message;
        ++ended;
      }
    return answers;
  }

  Request request(RequestId id, int32_t prompt_tokens, int32_t new_tokens, int32_t vocabulary) {
    Request request{.id = id, .seed = random_(), .max_new_tokens = new_tokens, .ignore_eos = true};
    for (int32_t i = 0; i < prompt_tokens; ++i) request.prompt.push_back(static_cast<TokenId>(random_() % static_cast<uint32_t>(vocabulary)));
    return request;
  }
};

TEST_F(CudaEngine, ReplayedStepsGiveTheBitsOfIssuedOnes) {
  for (const std::string_view shape : {"tiny", "tiny-wide"}) {
    SCOPED_TRACE(shape);
    const bool outliers = shape == "tiny-wide";
    const SyntheticOptions weights{.shape = shape, .format = outliers ? WeightFormat::int4_g128 : WeightFormat::q8_0, .outliers = outliers ? 0.005 : 0, .seed = random_()};
    backend_ = make_cuda_backend({.path = tested_path()}).value();
    const auto eager = make_cuda_backend({.eager = true, .path = tested_path()}).value();
    const auto model = make_synthetic_model(weights, *backend_).value();
    const auto same_model = make_synthetic_model(weights, *eager).value();
    const int32_t vocabulary = model->config.vocabulary;
    // Contexts that cross buckets, all kinds of sampling, more penalised tokens than a graph takes.
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 21; ++id) {
      Request one = request(id, 10 + static_cast<int32_t>(id) * 40, 60, vocabulary);
      SampleParams& sampling = one.sampling;
      if (id % 4 == 1) sampling.temperature = 1;
      if (id % 4 == 2) sampling.temperature = 0.8f, sampling.top_k = 40, sampling.top_p = 0.9f, sampling.min_p = 0.01f, sampling.logprobs = 5;
      if (id % 4 == 3) sampling.repeat_penalty = 1.2f, sampling.presence_penalty = 0.1f, sampling.frequency_penalty = 0.1f, one.penalty_window = id == 3 ? 64 : -1;
      if (id % 5 == 0) one.bias = {{7, 2.f}, {9, -3.f}};
      requests.push_back(std::move(one));
    }
    const EngineOptions options{.context = 1100, .sequences = 21, .kv_tokens = 21 * 1100, .step_tokens = 64};
    const auto replayed = run(*backend_, *model, requests, options), issued = run(*eager, *same_model, requests, options);
    for (const Request& one : requests) {
      EXPECT_EQ(replayed.at(one.id).tokens.size(), 60u);
      EXPECT_EQ(replayed.at(one.id), issued.at(one.id)) << "request " << one.id;
    }
    // Alone, and three at a time, on an engine of another size: the same again.
    for (const size_t first : {0, 5, 18}) {
      backend_ = make_cuda_backend({.path = tested_path()}).value();
      const auto again = make_synthetic_model(weights, *backend_).value();
      const std::vector<Request> few(requests.begin() + static_cast<std::ptrdiff_t>(first), requests.begin() + static_cast<std::ptrdiff_t>(first + (first ? 3 : 1)));
      const auto answers = run(*backend_, *again, few, {.context = 2000, .sequences = 3, .kv_tokens = 6000});
      for (const Request& one : few) EXPECT_EQ(answers.at(one.id), issued.at(one.id)) << "request " << one.id;
    }
  }
}

// Attention by splits numbers the splits of all sequences through, 32 sequences at a time.
TEST_F(CudaEngine, ManyLongSequencesGiveTheBitsOfEachAlone) {
  const SyntheticOptions weights{.shape = "tiny-wide", .format = WeightFormat::int4_g128, .seed = random_()};
  backend_ = make_cuda_backend({.path = tested_path()}).value();
  const auto model = make_synthetic_model(weights, *backend_).value();
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 40; ++id) requests.push_back(request(id, 1030 + static_cast<int32_t>(id * 97 % 400), 8, model->config.vocabulary));
  const auto together = run(*backend_, *model, requests, {.context = 1500, .sequences = 40, .kv_tokens = 40 * 1500});
  for (const size_t at : {0, 31, 32, 39}) {
    const auto alone = make_cuda_backend({.path = tested_path()}).value();
    const auto same_model = make_synthetic_model(weights, *alone).value();
    const auto answer = run(*alone, *same_model, {requests[at]}, {.context = 1500, .sequences = 1, .kv_tokens = 1500});
    EXPECT_EQ(answer.at(requests[at].id).tokens.size(), 8u);
    EXPECT_EQ(answer.at(requests[at].id), together.at(requests[at].id)) << "request " << requests[at].id;
  }
}

/// Counts the steps that are issued operation by operation rather than replayed.
class CountsIssued : public testing::FlatInputs {
 public:
  explicit CountsIssued(Backend& inner) : FlatInputs(inner), inner_(inner) {}
  Result<uint64_t> scratch_bytes(const StepLimits& limits) const override { return inner_.scratch_bytes(limits); }
  Status prepare_steps(const IssueStep& issue, int32_t block_tokens) override { return inner_.prepare_steps(issue, block_tokens); }
  Status run(const StepInputs& inputs, const IssueStep& issue) override {
    return inner_.run(inputs, [&](const StepView& step) {
      ++issued;
      issue(step);
    });
  }
  Status post(const Sampled* sampled, std::span<Sampled> out, int turn) override { return inner_.post(sampled, out, turn); }
  Status await(int turn) override { return inner_.await(turn); }
  Result<StepView> stage(const StepInputs& inputs) override { return inner_.stage(inputs); }

  int issued = 0;

 private:
  Backend& inner_;
};

// Alone, so that each prompt is a step of its own; those that go on where another one ends have a prefix in the cache.
TEST_F(CudaEngine, ReplayedPromptsGiveTheBitsOfIssuedOnes) {
  for (const std::string_view shape : {"tiny", "tiny-wide", "tiny-96"}) {
    SCOPED_TRACE(shape);
    const WeightFormat format = shape == "tiny" ? WeightFormat::int4_g128 : WeightFormat::q8_0;
    const SyntheticOptions weights{.shape = shape, .format = format, .outliers = shape == "tiny-wide" ? 0.005 : 0, .seed = random_()};
    std::vector<Request> requests;
    for (const int32_t tokens : {2, 3, 8, 9, 16, 17, 31, 32, 33, 64, 65, 100, 128, 129, 255, 256, 257, 300}) {
      Request one = request(requests.size() + 1, tokens, 4, 512);
      if (tokens % 3 == 0) one.sampling.temperature = 1, one.sampling.top_p = 0.9f;
      if (tokens % 3 == 1) one.sampling.repeat_penalty = 1.2f;
      if (tokens == 64) one.bias = {{7, 2.f}};
      requests.push_back(std::move(one));
    }
    for (const int32_t more : {5, 30, 60, 90, 200, 240, 100, 40}) {  // contexts from 305 to 1065: all buckets
      Request one = request(requests.size() + 1, more, 4, 512);
      one.prompt.insert(one.prompt.begin(), requests.back().prompt.begin(), requests.back().prompt.end());
      requests.push_back(std::move(one));
    }
    std::vector<Answer> answers[2];
    int issued[2] = {};
    for (const bool eager : {false, true}) {
      const auto backend = make_cuda_backend({.eager = eager, .path = tested_path()}).value();
      CountsIssued counted(*backend);
      const auto model = make_synthetic_model(weights, counted).value();
      const auto engine = start_engine(counted, *model, {.context = 1300, .sequences = 1, .kv_tokens = 2600}).value();
      for (const Request& one : requests) {
        ASSERT_TRUE(engine->submit(one));
        Answer& answer = answers[eager].emplace_back();
        while (answer.finish == FinishReason::none)
          for (const TokenEvent& event : engine->poll(1'000'000)) {
            if (event.token >= 0) answer.tokens.push_back(event.token), answer.logprobs.push_back(event.logprob);
            answer.finish = event.finish, answer.message = event.message;
          }
      }
      issued[eager] = counted.issued;
    }
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(answers[0][i], answers[1][i]) << requests[i].prompt.size() << " tokens";
    // Those of 257 and 300 tokens, and what is cut before the engine knows its speed.
    EXPECT_LE(issued[0], 6) << "everything else is replayed";
    EXPECT_GT(issued[1], 20 * 4);
  }
}

// A stream that asks for alternatives keeps all of them from being chained: the others must not notice.
TEST_F(CudaEngine, PenaltiesCountTokensOfChainedSteps) {
  const uint64_t seed = random_();
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 4; ++id) {
    Request one = request(id, 5 + static_cast<int32_t>(id) * 90, 100, 1000);
    one.sampling.temperature = id % 2 ? 0.f : 1.f;
    one.sampling.repeat_penalty = 1.3f, one.sampling.frequency_penalty = 0.4f;
    one.penalty_window = id == 1 ? -1 : id == 2 ? 64 : id == 3 ? 1 : 7;
    requests.push_back(std::move(one));
  }
  std::map<RequestId, Answer> answers[2];
  for (const bool chained : {true, false}) {
    backend_ = make_cuda_backend({.path = tested_path()}).value();
    const auto model = make_synthetic_model({.shape = "tiny", .format = WeightFormat::q8_0, .seed = seed}, *backend_).value();
    std::vector<Request> all = requests;
    if (!chained) {
      all.push_back(request(9, 3, 200, 1000));
      all.back().sampling.logprobs = 2;
    }
    answers[chained] = run(*backend_, *model, all, {.context = 600, .sequences = 5, .kv_tokens = 3000});
  }
  for (const Request& one : requests) {
    EXPECT_EQ(answers[1].at(one.id).tokens.size(), 100u);
    EXPECT_EQ(answers[1].at(one.id), answers[0].at(one.id)) << "request " << one.id;
  }
}

TEST_F(CudaEngine, WhatDoesNotFitIsRefusedWithTheSumBeforeAnythingIsTaken) {
  const uint64_t free_bytes = backend_->info().free_bytes;
  bool asked = false;
  const auto model = make_synthetic_model(
      {.shape = "qwen2-72b", .format = WeightFormat::f32, .admit = [&](const ModelNeeds& needs) -> Status {
         asked = true;
         EXPECT_GT(needs.weights_bytes, uint64_t{100} << 30);
         TRY(plan_engine(*backend_, needs, false, {.context = 4096}));
         return {};
       }}, *backend_);
  ASSERT_FALSE(model);
  if (!asked) {
    EXPECT_NE(model.error().message.find("f32"), std::string::npos) << model.error().message;
  }
  const auto fits_not = make_synthetic_model(
      {.shape = "llama3-70b", .format = WeightFormat::f16, .admit = [&](const ModelNeeds& needs) -> Status {
         TRY(plan_engine(*backend_, needs, false, {.context = 131072, .sequences = 4, .kv_tokens = 524288}));
         return {};
       }}, *backend_);
  ASSERT_FALSE(fits_not);
  EXPECT_EQ(fits_not.error().kind, ErrorKind::no_room);
  for (const char* part : {"weights", "workspace", "KV cache", "free"})
    EXPECT_NE(fits_not.error().message.find(part), std::string::npos) << fits_not.error().message;
  EXPECT_EQ(backend_->info().free_bytes, free_bytes);
}

TEST_F(CudaEngine, ADeviceThatIsNotThereIsNamed) {
  const auto made = make_cuda_backend({.ordinal = 99});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().kind, ErrorKind::not_found);
  EXPECT_NE(made.error().message.find("cuda:99"), std::string::npos) << made.error().message;
  EXPECT_NE(made.error().message.find("cuda:0"), std::string::npos) << made.error().message;
}

/// Greedy continuations of 20 prompts against Transformers in FP32, token by token; the fixture's token is fed, so that
/// every step is compared. Where its two best logits are nearer than both sides' errors, either is right.
TEST_F(CudaEngine, SmolLM2ContinuesGreedily) {
  const std::string path = source_folder() + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  const std::string data = source_folder() + "/tests/golden/data/real/smollm2.";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is missing: run make models";
  const testing::Fixture wanted(data + "greedy.safetensors");
  const double noise = testing::Fixture(data + "logits.safetensors").values<float>("noise")[0];
  const auto model = testing::load_network(path, *backend_);
  // As tests/golden allows for an FP16 cache; FP16 activations are rounded as coarsely before each of seven products more:
  // about sqrt(8) times.
  const double tie = 2 * std::sqrt(8.0) * noise * (0x1p-11 / 0x1p-24) / 8;
  const auto prompts = wanted.values<int32_t>("prompts"), lengths = wanted.values<int32_t>("lengths");
  const auto tokens = wanted.values<int32_t>("tokens");
  const auto gaps = wanted.values<float>("gaps");
  const size_t steps = tokens.size() / lengths.size();
  ASSERT_EQ(lengths.size(), 20u);
  testing::FlatInputs flat(*backend_);
  size_t prompt_begin = 0;
  int ties = 0;
  for (size_t p = 0; p < lengths.size(); ++p) {
    testing::SingleSequence sequence(flat, *model, lengths[p] + static_cast<int32_t>(steps), lengths[p]);
    std::vector<float> logits = sequence.feed(std::span(prompts).subspan(prompt_begin, static_cast<size_t>(lengths[p])), 1);
    prompt_begin += static_cast<size_t>(lengths[p]);
    for (size_t s = 0; s < steps; ++s) {
      const size_t at = p * steps + s;
      const auto best = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      if (best != tokens[at]) {
        ++ties;
        EXPECT_LE(gaps[at], tie) << "prompt " << p << ", step " << s << ": " << best << " instead of " << tokens[at];
      }
      if (s + 1 < steps) logits = sequence.feed(std::span(tokens).subspan(at, 1), 1);
    }
  }
  RecordProperty("near_ties", ties);
  EXPECT_LE(ties, 13);  // of 1280: one in a hundred
}

}  // namespace
}  // namespace quintet
