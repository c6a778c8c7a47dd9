// Times GPTQ of one layer on the GPU: synthetic weights and activations, made there, of a large model's shapes; four bits in
// groups of 128, act-order, every input's Hessian from all tokens.
//
//   quintet_gptq_layer [--shape llama3-70b|llama3-8b|tiny] [--tokens N] [--rounds N] [--no-host]
//
// A round prints a line an input: seconds of the Hessian, of its factor, of the ranges and of rounding the matrices behind it,
// and what the output loses of what plain rounding into the same ranges loses, on inputs that the Hessian has not seen. Making
// inputs and weights is not timed. "host" is WeightSolver::quantize of the last matrix as quantize calls it: weights from host
// memory, blocks back into it.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "backend/cuda/gptq.h"
#include "backend/cuda/path.h"
#include "backend/cuda/weight_solver.h"
#include "base/units.h"
#include "gptq_synthetic.h"

namespace quintet {
namespace {

using namespace cuda;

constexpr int kChunk_tokens = 8192, kHeldOut_tokens = 1024;
constexpr IntegerFormat kFormat = {.bits = 4, .group = 128};

struct Input {
  const char* name;
  int64_t k;
  std::vector<int64_t> outputs;  ///< of each matrix behind it
};
struct Shape {
  const char* name;
  std::vector<Input> inputs;
};
const Shape kShapes[] = {
    {"llama3-70b", {{"q k v", 8192, {8192, 1024, 1024}}, {"o", 8192, {8192}}, {"gate up", 8192, {28672, 28672}}, {"down", 28672, {8192}}}},
    {"llama3-8b", {{"q k v", 4096, {4096, 1024, 1024}}, {"o", 4096, {4096}}, {"gate up", 4096, {14336, 14336}}, {"down", 14336, {4096}}}},
    {"tiny", {{"q k v", 384, {384, 128, 128}}, {"o", 384, {384}}, {"gate up", 384, {1152, 1152}}, {"down", 1152, {384}}}},
};

struct Options {
  const Shape* shape = &kShapes[0];
  int64_t tokens = 128 * 2048;
  int rounds = 2;
  bool host = true;
};

struct Seconds {
  double hessian = 0, factor = 0, ranges = 0, rounding = 0;
  double sum() const { return hessian + factor + ranges + rounding; }
  void add(const Seconds& other) { hessian += other.hessian, factor += other.factor, ranges += other.ranges, rounding += other.rounding; }
};

class LayerBench {
 public:
  LayerBench(const GptqKernels& kernels, const LaunchSite& site, Cublas library, Cublas own, const Options& options)
      : kernels_(kernels), site_(site), gptq_(kernels, site, std::move(library)), library_(std::move(own)), options_(options) {}

  Status run() {
    for (Event* event : {&begin_, &end_}) QUINTET_CUDA(cudaEventCreate(event->out()));
    for (int round = 0; round < options_.rounds; ++round) {
      fmt::print("{}, {} tokens, round {}\n{:<8} {:>6} {:>9} {:>8} {:>9} {:>8} {:>8} {:>9} {:>9} {:>6}\n", options_.shape->name,
                 options_.tokens, round + 1, "input", "k", "hessian s", "TFLOP/s", "factor s", "TFLOP/s", "ranges s", "rounding s",
                 "TFLOP/s", "loss");
      Seconds layer;
      for (const Input& input : options_.shape->inputs) TRY(measure(input, layer));
      size_t free = 0, total = 0;
      QUINTET_CUDA(cudaMemGetInfo(&free, &total));
      fmt::print("layer    hessian {:.3f} + factor {:.3f} + ranges {:.3f} + rounding {:.3f} = {:.3f} s; GPTQ holds {}, the process {}\n",
                 layer.hessian, layer.factor, layer.ranges, layer.rounding, layer.sum(),
                 format_bytes(gptq_.bytes() + weights_.bytes() + codes_.bytes() + ranges_.bytes()), format_bytes(total - free));
      std::fflush(stdout);
    }
    return options_.host ? through_host() : Status();
  }

 private:
  template <class Work>
  Status time(double& seconds, const Work& work) {
    QUINTET_CUDA(cudaEventRecord(begin_.get(), site_.stream));
    TRY(work());
    QUINTET_CUDA(cudaEventRecord(end_.get(), site_.stream));
    QUINTET_CUDA(cudaEventSynchronize(end_.get()));
    float ms = 0;
    QUINTET_CUDA(cudaEventElapsedTime(&ms, begin_.get(), end_.get()));
    seconds += ms * 1e-3;
    return {};
  }

  /// The inputs' seed is one of the width alone; so are the directions.
  Status make_inputs(int64_t first, int tokens, int64_t k) {
    TRY(inputs_.reserve(static_cast<size_t>(std::max(kChunk_tokens, tokens) * k) * sizeof(__half)));
    QUINTET_CUDA(bench::make_inputs(inputs_.as<__half>(), first, tokens, k, static_cast<uint64_t>(k), site_.stream));
    return {};
  }

  Status measure(const Input& input, Seconds& layer) {
    const int64_t k = input.k;
    Seconds spent;
    TRY(gptq_.begin(k));
    for (int64_t first = 0; first < options_.tokens; first += kChunk_tokens) {
      const auto tokens = static_cast<int>(std::min<int64_t>(kChunk_tokens, options_.tokens - first));
      TRY(make_inputs(first, tokens, k));
      TRY(time(spent.hessian, [&] { return gptq_.add(inputs_.as<void>(), tokens, k); }));
    }
    TRY(time(spent.hessian, [&]() -> Status {
      TRY(gptq_.moments());
      return {};
    }));
    TRY(time(spent.factor, [&]() -> Status {
      TRY_ASSIGN(const std::string note, gptq_.factor(input.name, {}));
      if (!note.empty()) fmt::print("{}: {}\n", input.name, note);
      return {};
    }));
    double lost = 0, plain = 0, all = 0;
    TRY(make_held_out(k));
    for (const int64_t n : input.outputs) TRY(round(n, k, spent, lost, plain));
    for (const int64_t n : input.outputs) all += static_cast<double>(n);
    const auto width = static_cast<double>(k);
    fmt::print("{:<8} {:>6} {:>9.3f} {:>8.1f} {:>9.3f} {:>8.1f} {:>8.3f} {:>9.3f} {:>9.1f} {:>6.3f}\n", input.name, k, spent.hessian,
               static_cast<double>(options_.tokens) * width * width / spent.hessian * 1e-12, spent.factor,
               width * width * width / 3 / spent.factor * 1e-12, spent.ranges, spent.rounding, all * width * width / spent.rounding * 1e-12,
               lost / plain);
    layer.add(spent);
    return {};
  }

  Status make_held_out(int64_t k) {
    TRY(make_inputs(options_.tokens, kHeldOut_tokens, k));
    TRY(held_out_.reserve(static_cast<size_t>(kHeldOut_tokens * k) * sizeof(float)));
    QUINTET_CUDA(bench::widen(inputs_.as<__half>(), held_out_.as<float>(), kHeldOut_tokens * k, site_.stream));
    return {};
  }

  Status round(int64_t n, int64_t k, Seconds& spent, double& lost, double& plain) {
    const auto weights = static_cast<size_t>(n * k);
    TRY(weights_.reserve(weights * sizeof(float)));
    TRY(errors_.reserve(weights * sizeof(float)));
    TRY(codes_.reserve(weights));
    TRY(ranges_.reserve(weights / kFormat.group * sizeof(float2)));
    QUINTET_CUDA(bench::make_weights(weights_.as<float>(), n, k, static_cast<uint64_t>(n * 7 + k), site_.stream));
    QUINTET_CUDA(cudaMemsetAsync(codes_.as<void>(), 0xff, weights, site_.stream));
    const Gptq::Matrix matrix{
        .weights = weights_.as<float>(), .n = n, .rules = rules_of(kFormat), .ranges = ranges_.as<float2>(), .codes = codes_.as<uint8_t>()};
    TRY(time(spent.ranges, [&] { return gptq_.find_ranges(matrix); }));
    TRY(time(spent.rounding, [&] { return gptq_.round(matrix); }));
    TRY(output_loss(matrix, matrix.codes, lost));
    return output_loss(matrix, nullptr, plain);
  }

  /// Adds the sum of squares of errors times held-out inputs.
  Status output_loss(const Gptq::Matrix& matrix, const uint8_t* codes, double& loss) {
    const int64_t n = matrix.n, k = gptq_.k();
    QUINTET_CUDA(bench::rounding_errors({.weights = matrix.weights,
                                         .codes = codes,
                                         .ranges = matrix.ranges,
                                         .n = n,
                                         .k = k,
                                         .group = kFormat.group,
                                         .offset = kFormat.code_offset(),
                                         .most = kFormat.max_code()},
                                        errors_.as<float>(), site_.stream));
    TRY(outputs_.reserve(static_cast<size_t>(n * kHeldOut_tokens) * sizeof(float)));
    TRY(library_.multiply({.m = n,
                           .n = kHeldOut_tokens,
                           .k = k,
                           .a = errors_.as<float>(),
                           .a_stride = k,
                           .b = held_out_.as<float>(),
                           .b_stride = k,
                           .b_transposed = true,
                           .c = outputs_.as<float>(),
                           .c_stride = kHeldOut_tokens}));
    std::vector<float> outputs(static_cast<size_t>(n * kHeldOut_tokens));
    QUINTET_CUDA(
        cudaMemcpyAsync(outputs.data(), outputs_.as<void>(), outputs.size() * sizeof(float), cudaMemcpyDeviceToHost, site_.stream));
    QUINTET_CUDA(cudaStreamSynchronize(site_.stream));
    for (const float output : outputs) loss += static_cast<double>(output) * output;
    return {};
  }

  Status through_host() {
    const Input& input = options_.shape->inputs.back();
    const int64_t n = input.outputs.back(), k = input.k;
    int device = 0;
    QUINTET_CUDA(cudaGetDevice(&device));
    TRY_ASSIGN(const auto solver, make_weight_solver(kernels_, site_, device, [] { return Status(); }));
    TRY(solver->begin(k));
    TRY(make_inputs(0, kChunk_tokens, k));
    TRY(solver->add(MatrixView{.data = inputs_.as<void>(), .type = DType::f16, .rows = kChunk_tokens, .cols = k, .stride = k}));
    TRY(solver->moments());
    TRY(solver->factor(input.name, {}));
    std::vector<float> weights(static_cast<size_t>(n * k));
    QUINTET_CUDA(bench::make_weights(weights_.as<float>(), n, k, static_cast<uint64_t>(n * 7 + k), site_.stream));
    QUINTET_CUDA(
        cudaMemcpyAsync(weights.data(), weights_.as<void>(), weights.size() * sizeof(float), cudaMemcpyDeviceToHost, site_.stream));
    QUINTET_CUDA(cudaStreamSynchronize(site_.stream));
    for (int round = 0; round < options_.rounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      TRY(solver->quantize({.name = input.name, .n = n, .k = k, .weights = weights.data()}, kFormat, 0));
      fmt::print("host     {} [{}, {}], ranges and rounding from and to host memory: {:.3f} s\n", input.name, n, k,
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return {};
  }

  const GptqKernels& kernels_;
  LaunchSite site_;
  Gptq gptq_;
  Cublas library_;
  Options options_;
  Event begin_, end_;
  GrowingBuffer inputs_, held_out_, weights_, errors_, codes_, ranges_, outputs_;
};

Status run(const Options& options) {
  cudaDeviceProp properties;
  QUINTET_CUDA(cudaGetDeviceProperties(&properties, 0));
  TRY_ASSIGN(const DeviceKernels kernels, device_kernels(CudaPath::automatic, properties));
  Stream stream;
  QUINTET_CUDA(cudaStreamCreateWithFlags(stream.out(), cudaStreamNonBlocking));
  const LaunchSite site = launch_site(properties, {}, stream.get());
  std::optional<Cublas> library = Cublas::open(stream.get()), own = Cublas::open(stream.get());
  if (!library || !own) return not_found("found no cuBLAS that starts, allowed is libcublas.so.13 or .12 on the library path");
  return LayerBench(*kernels.gptq, site, std::move(*library), std::move(*own), options).run();
}

bool read_options(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--no-host") {
      options.host = false;
      continue;
    }
    if (++i == argc) return false;
    if (flag == "--shape") {
      options.shape = nullptr;
      for (const Shape& shape : kShapes)
        if (std::string_view(argv[i]) == shape.name) options.shape = &shape;
      if (!options.shape) return false;
    } else if (flag == "--tokens") {
      options.tokens = std::atoll(argv[i]);
    } else if (flag == "--rounds") {
      options.rounds = std::atoi(argv[i]);
    } else {
      return false;
    }
  }
  return options.tokens > 0 && options.rounds > 0;
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  quintet::Options options;
  if (!quintet::read_options(argc, argv, options)) {
    std::fprintf(stderr, "usage: quintet_gptq_layer [--shape llama3-70b|llama3-8b|tiny] [--tokens N] [--rounds N] [--no-host]\n");
    return 2;
  }
  const quintet::Status status = quintet::run(options);
  if (status) return 0;
  std::fprintf(stderr, "quintet_gptq_layer: %s\n", status.error().message.c_str());
  return 1;
}
