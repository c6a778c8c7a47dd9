// What each method loses on matrices of large shapes whose inputs have a realistic Hessian: tr(E H E^T) / tr(W H W^T) on
// inputs that no method has seen, since 70 billion weights are not to be had for a test.
//
//   quintet_proxy_loss [K [ROWS [TOKENS [DECAY]]]]     one Markdown row a method, at 3 and 4 bits
//
// Weights: heavy-tailed rows (one weight in 200 is six times as large; rows of different sizes). Inputs: x = D Q L^1/2 z with
// l_i = i^-DECAY, Q a product of random reflections, and D that makes 6 channels 10 to 30 times as large (100 to 1000 in the
// Hessian). Rows do not depend on each other, so that a few hundred stand for a matrix; outliers are a share of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "quant/products.h"
#include "quant/quantize.h"

namespace quintet {
namespace {

constexpr int kReflections = 16, kLargeChannels = 6;
constexpr int64_t kHeldOut_tokens = 1024, kChunk_tokens = 512;

/// Draws inputs of one distribution.
class Inputs {
 public:
  Inputs(int64_t k, double decay, uint64_t seed) : k_(k), random_(seed), sizes_(static_cast<size_t>(k)), channels_(sizes_.size(), 1.0f) {
    for (int64_t i = 0; i < k; ++i) sizes_[static_cast<size_t>(i)] = static_cast<float>(std::pow(static_cast<double>(i + 1), -decay / 2));
    for (int i = 0; i < kReflections; ++i) {
      std::vector<float>& v = reflections_.emplace_back(sizes_.size());
      double square = 0;
      for (float& x : v) x = normal_(random_), square += static_cast<double>(x) * x;
      for (float& x : v) x /= static_cast<float>(std::sqrt(square));
    }
    for (int i = 0; i < kLargeChannels; ++i)
      channels_[random_() % channels_.size()] = 10 * std::pow(3.0f, static_cast<float>(i) / (kLargeChannels - 1));
  }

  std::vector<float> draw(int64_t tokens) {
    std::vector<float> all(static_cast<size_t>(tokens * k_));
    for (int64_t t = 0; t < tokens; ++t) {
      float* x = all.data() + t * k_;
      for (int64_t i = 0; i < k_; ++i) x[i] = normal_(random_) * sizes_[static_cast<size_t>(i)];
      for (const std::vector<float>& v : reflections_) {
        float dot = 0;
        for (int64_t i = 0; i < k_; ++i) dot += v[static_cast<size_t>(i)] * x[i];
        for (int64_t i = 0; i < k_; ++i) x[i] -= 2 * dot * v[static_cast<size_t>(i)];
      }
      for (int64_t i = 0; i < k_; ++i) x[i] *= channels_[static_cast<size_t>(i)];
    }
    return all;
  }

 private:
  int64_t k_;
  std::mt19937_64 random_;
  std::normal_distribution<float> normal_;
  std::vector<float> sizes_, channels_;
  std::vector<std::vector<float>> reflections_;
};

struct Problem {
  int64_t n, k;
  std::vector<float> weights, moments, held_out;
  GptqInputs gptq;

  MatrixToQuantize matrix() const { return {.name = "w", .n = n, .k = k, .weights = weights.data(), .moments = moments}; }

  /// Of weights [n, k]: sum of squares of their products with the held-out inputs.
  double energy(std::vector<float>& of) const {
    // c = a^T b with both transposed: [k, tokens] and [k, n].
    const int64_t tokens = kHeldOut_tokens;
    std::vector<float> b(of.size()), c(static_cast<size_t>(tokens * n));
    for (int64_t r = 0; r < n; ++r)
      for (int64_t i = 0; i < k; ++i) b[static_cast<size_t>(i * n + r)] = of[static_cast<size_t>(r * k + i)];
    add_product({const_cast<float*>(held_out.data()), k, tokens, tokens}, {b.data(), k, n, n}, 1, false, 0, {c.data(), tokens, n, n});
    double sum = 0;
    for (const float value : c) sum += static_cast<double>(value) * value;
    return sum;
  }

  /// `scales` [k]: what the inputs are divided by (AWQ); empty: nothing.
  double loss(const QuantizedMatrix& made, const std::vector<float>& scales = {}) const {
    std::vector<float> error(weights.size()), whole = weights;
    const HostWeight view = made.view("w");
    for (int64_t r = 0; r < n; ++r) {
      float* row = error.data() + r * k;
      decode_row(view, r, row);
      for (int64_t i = 0; i < k; ++i)
        row[i] = whole[static_cast<size_t>(r * k + i)] - (scales.empty() ? row[i] : row[i] / scales[static_cast<size_t>(i)]);
    }
    return energy(error) / energy(whole);
  }
};

Problem make_problem(int64_t n, int64_t k, int64_t tokens, double decay) {
  Problem p{.n = n, .k = k};
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  for (int64_t r = 0; r < n; ++r) {
    const float size = 0.02f * std::exp(0.3f * normal(random));
    for (int64_t i = 0; i < k; ++i) p.weights.push_back(size * normal(random) * (random() % 200 == 0 ? 6.0f : 1.0f));
  }
  Inputs inputs(k, decay, 70);
  std::vector<float> hessian(static_cast<size_t>(k * k));
  for (int64_t begin = 0; begin < tokens; begin += kChunk_tokens) {
    const int64_t count = std::min(kChunk_tokens, tokens - begin);
    std::vector<float> x = inputs.draw(count);
    const FloatMatrix rows{x.data(), count, k, k};
    add_product(rows, rows, 1 / static_cast<float>(tokens), true, 0, {hessian.data(), k, k, k});
  }
  mirror({hessian.data(), k, k, k}, true, 0);
  for (int64_t i = 0; i < k; ++i) p.moments.push_back(hessian[static_cast<size_t>(i * k + i)]);
  const std::vector<float> rows = inputs.draw(kHeldOut_tokens);
  p.held_out.resize(rows.size());
  for (int64_t t = 0; t < kHeldOut_tokens; ++t)
    for (int64_t i = 0; i < k; ++i) p.held_out[static_cast<size_t>(i * kHeldOut_tokens + t)] = rows[static_cast<size_t>(t * k + i)];
  auto gptq = prepare_gptq("w", k, std::move(hessian), {}, 0);
  if (!gptq) {
    std::fprintf(stderr, "%s\n", gptq.error().message.c_str());
    std::exit(1);
  }
  p.gptq = std::move(gptq).value();
  return p;
}

void measure(const Problem& p, int bits) {
  const MatrixToQuantize m = p.matrix();
  const IntegerFormat g128{.bits = bits}, g64{.bits = bits, .group = 64}, g32{.bits = bits, .group = 32};
  double base = 0;
  const auto row = [&](const char* name, const QuantizedMatrix& made, const std::vector<float>& scales = {}) {
    const double loss = p.loss(made, scales);
    if (base == 0) base = loss;
    const double stored = 8.0 * static_cast<double>(made.view("w").stored_bytes()) / static_cast<double>(p.n * p.k);
    std::puts(fmt::format("| int{} {} | {:.3f} | {:.5f} | {:.2f} |", bits, name, stored, loss, loss / base).c_str());
    std::fflush(stdout);
  };
  row("rtn g128", quantize_rtn(m, g128, Granularity::group));
  row("rtn a scale a tensor", quantize_rtn(m, g128, Granularity::tensor));
  row("rtn a scale a row", quantize_rtn(m, g128, Granularity::channel));
  row("rtn g64", quantize_rtn(m, g64, Granularity::group));
  row("rtn g32", quantize_rtn(m, g32, Granularity::group));
  row("outlier 0.1 % by magnitude", quantize_outlier(m, g128, {.share = 0.001, .select = OutlierSelect::magnitude}));
  row("range search alone", quantize_outlier(m, g128, {.share = 0}));
  row("outlier 0.1 % by activation", quantize_outlier(m, g128, {.share = 0.001}));
  const std::vector<float> scales = search_input_scales(m, g128, p.moments);
  std::vector<float> scaled = p.weights, moments = p.moments;
  for (size_t i = 0; i < scaled.size(); ++i) scaled[i] *= scales[i % scales.size()];
  for (size_t i = 0; i < moments.size(); ++i) moments[i] /= scales[i] * scales[i];
  MatrixToQuantize awq = m;
  awq.weights = scaled.data();
  awq.moments = moments;
  row("awq", quantize_outlier(awq, g128, {.share = 0}), scales);
  row("gptq", quantize_gptq(m, g128, p.gptq, 0));
  row("gptq + outlier 0.1 %", quantize_gptq(m, g128, p.gptq, 0.001));
}

int64_t argument(int argc, char** argv, int index, int64_t otherwise) {
  return argc > index ? std::atoll(argv[index]) : otherwise;
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  const int64_t k = quintet::argument(argc, argv, 1, 8192), rows = quintet::argument(argc, argv, 2, 256),
                tokens = quintet::argument(argc, argv, 3, 16384);
  const double decay = argc > 4 ? std::atof(argv[4]) : 0.9;
  if (k < 128 || k % 128 != 0 || rows < 1 || tokens < 1 || !(decay >= 0)) {
    std::fprintf(stderr, "usage: quintet_proxy_loss [K [ROWS [TOKENS [DECAY]]]], K a multiple of 128\n");
    return 2;
  }
  const quintet::Problem problem = quintet::make_problem(rows, k, tokens, decay);
  std::puts(fmt::format("{} rows of {} weights, {} tokens, Hessian's spectrum i^-{:g}\n", rows, k, tokens, decay).c_str());
  std::puts("| method | bits | loss | of rtn |\n|---|---|---|---|");
  for (const int bits : {4, 3}) quintet::measure(problem, bits);
  return 0;
}
