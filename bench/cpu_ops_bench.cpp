// Speed of the CPU backend's operations by format and rows, at SmolLM2-135M's shapes: multiply-adds and
// weight bytes a second. Compare with the ceilings that `quintet bench` prints on the same machine.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu.h"
#include "quant/format.h"
#include "tensor/half.h"

namespace quintet {
namespace {

std::mt19937& rng() {
  static std::mt19937 engine{1};
  return engine;
}

/// Random blocks whose decoded weights are finite; the bytes must outlive the backend's use of them.
struct Source {
  std::vector<uint8_t> bytes;
  HostWeight host;
  Source(WeightFormat format, int64_t n, int64_t k) {
    const FormatInfo& info = format_info(format);
    bytes.resize(static_cast<size_t>(n) * format_bytes_of(format, static_cast<uint64_t>(k)));
    // Bytes below 0x3C keep every half and bfloat16 finite and small, wherever the format has them.
    for (auto& byte : bytes) byte = static_cast<uint8_t>(rng()() % 0x3C);
    host = {.name = info.name, .format = format, .n = n, .k = k, .bytes = bytes};
  }
};

struct Buffer2d {
  std::vector<float> data;
  MatrixView view;
  Buffer2d(int64_t rows, int64_t cols) : data(static_cast<size_t>(rows * cols)) {
    std::normal_distribution<float> normal;
    for (float& x : data) x = normal(rng());
    view = {data.data(), DType::f32, rows, cols, cols};
  }
};

int threads_of(const benchmark::State& state) { return static_cast<int>(state.range(1)); }

/// One product of several copies of a weight, so that few rows read memory and not a cache.
void linear(benchmark::State& state, WeightFormat format, int64_t n, int64_t k) {
  const int64_t rows = state.range(0);
  const auto backend = make_cpu_backend({.threads = threads_of(state)});
  const Source source(format, n, k);
  std::vector<Weight> copies;
  uint64_t bytes = 0;
  constexpr uint64_t kBeyondCaches = uint64_t{128} << 20;
  while (copies.empty() || (rows < 8 && bytes < kBeyondCaches)) {
    auto weight = backend->prepare(WeightRole::linear, {&source.host, 1});
    if (!weight) return state.SkipWithError(weight.error().message.c_str());
    bytes += weight->bytes;
    copies.push_back(std::move(weight).value());
  }
  Buffer2d x(rows, k), out(rows, n);
  size_t i = 0;
  for (auto _ : state) {
    const Weight& w = copies[i++ % copies.size()];
    backend->ops().linear({.x = x.view, .w = &w, .out = out.view});
  }
  const auto rate = [&](double work) {
    return benchmark::Counter(work * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  };
  state.counters["macs/s"] = rate(static_cast<double>(rows * n * k));
  state.counters["weight_B/s"] = rate(static_cast<double>(copies[0].bytes));
}

/// `rows` new rows at the end of a context, one sequence.
void attend(benchmark::State& state, int heads, int kv_heads, int head_dim) {
  const auto rows = static_cast<int32_t>(state.range(0));
  const auto context = static_cast<int32_t>(state.range(2));
  const auto backend = make_cpu_backend({.threads = threads_of(state)});
  const PageClass page = backend->page_class(1, kv_heads, head_dim, 16);
  const int32_t blocks = (context + 15) / 16;
  auto kv = backend->allocate(static_cast<size_t>(blocks * page.bytes), BufferUse::kv);
  if (!kv) return state.SkipWithError(kv.error().message.c_str());
  std::memset(kv->data(), 0, kv->bytes());
  std::vector<BlockRef> refs(static_cast<size_t>(blocks));
  for (size_t i = 0; i < refs.size(); ++i) refs[i].page = static_cast<uint32_t>(i);
  std::vector<int32_t> pos(static_cast<size_t>(rows)), seq(static_cast<size_t>(rows));
  std::iota(pos.begin(), pos.end(), context - rows);
  const std::vector<int64_t> slot(pos.begin(), pos.end());
  std::vector<float> inv_freq(static_cast<size_t>(head_dim / 2), 0.01f);
  Buffer2d qkv(rows, int64_t{heads + 2 * kv_heads} * head_dim), out(rows, int64_t{heads} * head_dim);
  const StepView step{.rows = rows,
                      .seqs = 1,
                      .max_blocks = blocks,
                      .pos = pos.data(),
                      .seq = seq.data(),
                      .kv_slot = slot.data(),
                      .block_refs = refs.data()};
  const AttentionSpec spec{.heads = heads,
                           .kv_heads = kv_heads,
                           .head_dim = head_dim,
                           .scale = 0.125f,
                           .rope = {.dims = head_dim, .inv_freq = inv_freq.data()}};
  for (auto _ : state)
    backend->ops().rope_store_attend(step,
                                     {.qkv = qkv.view,
                                      .attention = spec,
                                      .kv = {.base = kv->data(), .pages = blocks, .layers = 1, .page = page},
                                      .out = out.view});
  double pairs = 0;
  for (int32_t p : pos) pairs += p + 1;
  state.counters["macs/s"] = benchmark::Counter(
      pairs * 2 * heads * head_dim * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void prepare(benchmark::State& state, WeightFormat format) {
  const auto backend = make_cpu_backend({.threads = threads_of(state)});
  const Source source(format, 4096, 4096);
  for (auto _ : state) benchmark::DoNotOptimize(backend->prepare(WeightRole::linear, {&source.host, 1}));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(source.bytes.size()));
}

void sample(benchmark::State& state, SampleParams params) {
  const auto backend = make_cpu_backend({.threads = 1});
  Buffer2d logits(1, 49152);
  for (float& l : logits.data) l *= 3;
  Sampled sampled;
  const StepView step{.logit_rows = 1, .sample = &params};
  for (auto _ : state) {
    ++params.position;
    backend->ops().sample(step, {.logits = logits.view, .out = &sampled});
  }
}

void register_all() {
  for (const FormatInfo& info : format_table()) {
    const WeightFormat format = info.format;
    const auto name = [&](const char* op) { return std::string(op) + "/" + std::string(info.name); };
    benchmark::RegisterBenchmark(name("linear_1536x1536").c_str(),
                                 [format](benchmark::State& s) { linear(s, format, 1536, 1536); })
        ->ArgNames({"rows", "threads"})
        ->ArgsProduct({{1, 4, 16, 512}, {1, 2}})
        ->UseRealTime();
    benchmark::RegisterBenchmark(name("prepare").c_str(),
                                 [format](benchmark::State& s) { prepare(s, format); })
        ->ArgNames({"", "threads"})
        ->ArgsProduct({{0}, {2}})
        ->UseRealTime();
  }
  benchmark::RegisterBenchmark("attend_9x3x64", [](benchmark::State& s) { attend(s, 9, 3, 64); })
      ->ArgNames({"rows", "threads", "context"})
      ->ArgsProduct({{1, 8, 512}, {1, 2}, {512, 4096}})
      ->UseRealTime();
  benchmark::RegisterBenchmark("attend_32x8x128", [](benchmark::State& s) { attend(s, 32, 8, 128); })
      ->ArgNames({"rows", "threads", "context"})
      ->ArgsProduct({{1, 512}, {2}, {4096}})
      ->UseRealTime();
  benchmark::RegisterBenchmark("sample/greedy", [](benchmark::State& s) { sample(s, {}); });
  benchmark::RegisterBenchmark("sample/temperature",
                               [](benchmark::State& s) { sample(s, {.temperature = 1}); });
  benchmark::RegisterBenchmark("sample/top_k_top_p_min_p", [](benchmark::State& s) {
    sample(s, {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f});
  });
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  quintet::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
