// Sampling on the GPU against the one definition, backend/sampler.h: the same ids for the same logits.
#include <algorithm>
#include <limits>

#include "backend/sampler.h"
#include "cuda_fixture.h"

namespace quintet {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Rows of logits with their parameters, sampled by the host and by the device.
class CudaSample : public CudaTest {
 protected:
  struct Row {
    std::vector<float> logits;
    SampleParams params;
    std::vector<TokenId> history;
    std::vector<std::pair<TokenId, float>> bias;
    std::vector<bool> allowed;  // empty: all
  };
  struct Outcome {
    std::vector<Sampled> sampled;
    std::vector<Alternative> alternatives;
  };

  /// All inputs in one piece of staging memory, as the batch builder's are.
  StepInputs lay_out(std::vector<Row>& rows) {
    const auto vocabulary = static_cast<int32_t>(rows[0].logits.size());
    const size_t mask_words = static_cast<size_t>((vocabulary + 31) / 32);
    std::vector<TokenId> history, bias_token;
    std::vector<float> bias_value;
    std::vector<uint32_t> mask;
    std::vector<SampleParams> params;
    for (Row& row : rows) {
      row.params.history_begin = static_cast<int32_t>(history.size());
      history.insert(history.end(), row.history.begin(), row.history.end());
      row.params.history_end = static_cast<int32_t>(history.size());
      row.params.bias_begin = static_cast<int32_t>(bias_token.size());
      for (const auto& [token, value] : row.bias) bias_token.push_back(token), bias_value.push_back(value);
      row.params.bias_end = static_cast<int32_t>(bias_token.size());
      row.params.mask_row = -1;
      if (!row.allowed.empty()) {
        row.params.mask_row = static_cast<int32_t>(mask.size() / mask_words);
        mask.resize(mask.size() + mask_words);
        for (size_t t = 0; t < row.allowed.size(); ++t)
          if (row.allowed[t]) mask[mask.size() - mask_words + t / 32] |= 1u << t % 32;
      }
      params.push_back(row.params);
    }
    staging_ = backend_->allocate(1 << 22, BufferUse::staging).value();
    size_t used = 0;
    const auto put = [&]<class T>(const std::vector<T>& values) {
      auto* to = reinterpret_cast<T*>(staging_.as<uint8_t>() + used);
      std::copy(values.begin(), values.end(), to);
      used += (values.size() * sizeof(T) + 15) / 16 * 16;
      EXPECT_LE(used, staging_.bytes());
      return static_cast<const T*>(to);
    };
    StepView view{.logit_rows = static_cast<int32_t>(rows.size())};
    view.sample = put(params);
    view.history = put(history);
    view.bias_token = put(bias_token);
    view.bias_value = put(bias_value);
    view.mask = put(mask);
    return {.view = view, .bytes = {staging_.as<uint8_t>(), used}};
  }

  Outcome on_host(const std::vector<Row>& rows, const StepView& view) {
    RowSampler sampler(static_cast<int32_t>(rows[0].logits.size()));
    Outcome out{.alternatives = std::vector<Alternative>(rows.size() * kAlternatives)};
    for (size_t i = 0; i < rows.size(); ++i) {
      std::vector<float> logits = rows[i].logits;
      out.sampled.push_back(sampler.sample(view, static_cast<int32_t>(i), logits, &out.alternatives[i * kAlternatives]));
    }
    return out;
  }

  Outcome on_device(const std::vector<Row>& rows, const StepInputs& inputs) {
    const auto count = static_cast<int64_t>(rows.size()), vocabulary = static_cast<int64_t>(rows[0].logits.size());
    EXPECT_TRUE(backend_->reserve({.rows = static_cast<int32_t>(count), .seqs = static_cast<int32_t>(count), .logit_rows = static_cast<int32_t>(count),
                                   .context = 16, .hidden = 64, .max_k = 64, .max_n = 64, .vocabulary = static_cast<int32_t>(vocabulary),
                                   .max_heads = 1, .max_head_dim = 64}));
    std::vector<float> all;
    for (const Row& row : rows) all.insert(all.end(), row.logits.begin(), row.logits.end());
    const Matrix logits = upload(all, count, vocabulary);
    const Buffer sampled = backend_->allocate(rows.size() * sizeof(Sampled), BufferUse::kv).value();
    const Buffer alternatives = backend_->allocate(rows.size() * kAlternatives * sizeof(Alternative), BufferUse::kv).value();
    const StepView view = backend_->stage(inputs).value();
    backend_->ops().sample(view, {.logits = logits.view, .out = sampled.as<Sampled>(), .alternatives = alternatives.as<Alternative>()});
    Outcome out{.sampled = std::vector<Sampled>(rows.size()), .alternatives = std::vector<Alternative>(rows.size() * kAlternatives)};
    const Status status = backend_->finish(sampled.as<Sampled>(), out.sampled);
    EXPECT_TRUE(status) << (status ? "" : status.error().message);
    EXPECT_TRUE(backend_->read(alternatives.data(), {reinterpret_cast<uint8_t*>(out.alternatives.data()), out.alternatives.size() * sizeof(Alternative)}));
    return out;
  }

  void expect_same(std::vector<Row> rows) {
    const StepInputs inputs = lay_out(rows);
    const Outcome want = on_host(rows, inputs.view), got = on_device(rows, inputs), again = on_device(rows, inputs);
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE(fmt::format("row {} of {}: temperature {} top_k {} top_p {} min_p {}", i, rows[0].logits.size(), rows[i].params.temperature,
                               rows[i].params.top_k, rows[i].params.top_p, rows[i].params.min_p));
      EXPECT_EQ(got.sampled[i].status, want.sampled[i].status);
      EXPECT_EQ(got.sampled[i].token, want.sampled[i].token);
      EXPECT_EQ(std::memcmp(&got.sampled[i], &again.sampled[i], sizeof(Sampled)), 0) << "not the same twice";
      // Up to 2^18 terms of at most 2 ulp each in FP32 sums of about 2^18 / 1024 steps; logits up to 100.
      if (want.sampled[i].status == 0) {
        EXPECT_NEAR(got.sampled[i].logprob, want.sampled[i].logprob, 1e-4);
      }
      for (size_t j = i * kAlternatives; j < (i + 1) * kAlternatives; ++j) {
        EXPECT_EQ(got.alternatives[j].token, want.alternatives[j].token) << "alternative " << j % kAlternatives;
        if (want.alternatives[j].token >= 0 && got.alternatives[j].token >= 0) {
          EXPECT_NEAR(got.alternatives[j].logprob, want.alternatives[j].logprob, 1e-4);
        }
      }
    }
  }

  Row row(int32_t vocabulary, SampleParams params, float deviation = 3) {
    params.seed = random_();
    params.position = static_cast<int64_t>(random_() % 100000);
    return {.logits = random_values(static_cast<size_t>(vocabulary), deviation), .params = params};
  }
  TokenId token_below(int32_t vocabulary) { return static_cast<TokenId>(random_() % static_cast<uint32_t>(vocabulary)); }

  Buffer staging_;
};

const std::vector<SampleParams>& cuts() {
  static const std::vector<SampleParams> kCuts = {
      {.temperature = 0},
      {.temperature = 0, .logprobs = 20},
      {.temperature = 1},
      {.temperature = 0.01f},
      {.temperature = 30},
      {.temperature = 1, .top_k = 1},
      {.temperature = 1, .top_k = 40, .logprobs = 5},
      {.temperature = 2, .top_k = 5000},
      {.temperature = 1, .top_k = INT32_MAX},
      {.temperature = 1, .top_p = 0},
      {.temperature = 1, .top_p = 0.5f},
      {.temperature = 1, .top_p = 0.95f},
      {.temperature = 20, .top_p = 0.999f},
      {.temperature = 0.7f, .min_p = 0.05f},
      {.temperature = 5, .min_p = 1},
      {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f},
      {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f, .min_p = 0.02f, .logprobs = 1},
      {.temperature = 1.5f, .top_p = 0.99f, .min_p = 0.001f},
  };
  return kCuts;
}

TEST_F(CudaSample, CutsAndDrawsGiveTheHostsIds) {
  for (const int32_t vocabulary : {1, 17, 1000, 32000, 49152, 128256, 152064, 262144}) {
    std::vector<Row> rows;
    for (const SampleParams& params : cuts()) rows.push_back(row(vocabulary, params));
    expect_same(std::move(rows));
  }
}

TEST_F(CudaSample, EqualLogitsAreTakenByRisingId) {
  for (const int32_t vocabulary : {1000, 49152, 152064}) {
    std::vector<Row> rows;
    for (const SampleParams& params : cuts()) {
      Row coarse = row(vocabulary, params);
      for (float& l : coarse.logits) l = std::round(l * 0.7f);  // thousands of ties, zeros of both signs among them
      rows.push_back(coarse);
      for (float& l : coarse.logits) l = -0.25f;
      rows.push_back(coarse);
    }
    expect_same(std::move(rows));
  }
}

TEST_F(CudaSample, PenaltiesBiasAndMasksAreTheHosts) {
  constexpr int32_t kVocabulary = 49152;
  std::vector<Row> rows;
  for (SampleParams params : cuts()) {
    params.repeat_penalty = 1.3f, params.presence_penalty = 0.4f, params.frequency_penalty = 0.2f;
    Row changed = row(kVocabulary, params);
    for (int i = 0; i < 3000; ++i) changed.history.push_back(token_below(i % 2 ? 50 : kVocabulary));
    changed.history.push_back(-1), changed.history.push_back(kVocabulary);  // ids that are none are left out
    for (int i = 0; i < 50; ++i) changed.bias.emplace_back(token_below(kVocabulary), i % 3 ? 4.f : -kInfinity);
    changed.bias.push_back(changed.bias.front());
    changed.bias.emplace_back(-5, 1.f);
    if (rows.size() % 2) {
      changed.allowed.resize(kVocabulary);
      for (size_t t = 0; t < kVocabulary; ++t) changed.allowed[t] = random_() % 3 == 0;
    }
    rows.push_back(std::move(changed));
  }
  expect_same(std::move(rows));
}

TEST_F(CudaSample, ARowThatIsNotFiniteFailsAlone) {
  constexpr int32_t kVocabulary = 32003;
  const SampleParams params = {.temperature = 1, .top_k = 40, .top_p = 0.9f, .logprobs = 3};
  std::vector<Row> rows;
  for (int i = 0; i < 8; ++i) rows.push_back(row(kVocabulary, params));
  rows[1].logits[token_below(kVocabulary)] = NAN;
  rows[3].logits[token_below(kVocabulary)] = kInfinity;
  rows[5].logits.assign(kVocabulary, -kInfinity);
  rows[6].allowed.resize(kVocabulary);  // nothing is allowed
  rows[7].logits[11] = NAN;             // a mask does not hide it
  rows[7].allowed.assign(kVocabulary, true), rows[7].allowed[11] = false;
  rows[2].logits.assign(kVocabulary, -kInfinity), rows[2].logits[777] = -3;  // one token is left
  const StepInputs inputs = lay_out(rows);
  const Outcome got = on_device(rows, inputs);
  for (const size_t bad : {1, 3, 5, 6, 7}) EXPECT_EQ(got.sampled[bad].status, kSampleNotFinite) << bad;
  for (const size_t good : {0, 2, 4}) EXPECT_EQ(got.sampled[good].status, 0u) << good;
  EXPECT_EQ(got.sampled[2].token, 777);
  expect_same(std::move(rows));
}

}  // namespace
}  // namespace quintet
