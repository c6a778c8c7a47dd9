// Whole steps of a large model on a GPU, embedding to sampled id, with random weights: decode at several rows and contexts,
// and prompts. One JSON object a line, beside one with the machine's ceilings.
//
// usage: cuda_steps [--shape llama3-70b] [--weights int4_g128] [--layers N] [--rows 1,8] [--context 128] [--prompt 512] [--steps N]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "backend/cuda/ceilings.h"
#include "backend/cuda/cuda.h"
#include "model/decoder.h"
#include "model/synthetic.h"

namespace quintet {
namespace {

struct Options {
  std::string shape = "llama3-70b", weights = "int4_g128";
  int layers = 0, steps = 64;
  std::vector<int> rows = {1}, context = {128}, prompt = {};
};

std::vector<int> numbers(const std::string& text) {
  std::vector<int> list;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) list.push_back(std::stoi(item));
  return list;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--shape") options.shape = value;
    else if (flag == "--weights") options.weights = value;
    else if (flag == "--layers") options.layers = std::stoi(value);
    else if (flag == "--steps") options.steps = std::stoi(value);
    else if (flag == "--rows") options.rows = numbers(value);
    else if (flag == "--context") options.context = numbers(value);
    else if (flag == "--prompt") options.prompt = numbers(value);
    else std::fprintf(stderr, "unknown flag %s\n", flag.c_str()), std::exit(2);
  }
  return options;
}

/// The inputs of one step in staging memory.
class StepWriter {
 public:
  StepWriter(Backend& backend, size_t bytes) : buffer_(backend.allocate(bytes, BufferUse::staging).value()) {}

  /// `seqs` sequences, each with `tokens` new rows that bring it to `context` tokens. chained: ids of the step before.
  StepInputs write(int seqs, int tokens, int context, int page_tokens, int most_blocks, bool chained) {
    used_ = 0;
    const int rows = seqs * tokens;
    StepView view = {.rows = rows, .seqs = seqs, .logit_rows = seqs, .max_blocks = most_blocks};
    auto* token = take<TokenId>(rows);
    auto* prev = take<int32_t>(rows);
    auto* pos = take<int32_t>(rows);
    auto* seq = take<int32_t>(rows);
    auto* slot = take<int64_t>(rows);
    auto* row_begin = take<int32_t>(seqs + 1);
    auto* length = take<int32_t>(seqs);
    auto* blocks = take<BlockRef>(seqs * most_blocks);
    auto* logit_row = take<int32_t>(seqs);
    auto* sample = take<SampleParams>(seqs);
    for (int s = 0; s < seqs; ++s) {
      row_begin[s] = s * tokens;
      length[s] = context;
      logit_row[s] = s * tokens + tokens - 1;
      sample[s] = {};
      for (int b = 0; b < most_blocks; ++b) blocks[s * most_blocks + b] = {.page = static_cast<uint32_t>(s * most_blocks + b)};
      for (int t = 0; t < tokens; ++t) {
        const int row = s * tokens + t, position = context - tokens + t;
        token[row] = chained ? -1 : 1000 + row % 1000;
        prev[row] = s;
        pos[row] = position;
        seq[row] = s;
        slot[row] = int64_t{s * most_blocks + position / page_tokens} * page_tokens + position % page_tokens;
      }
    }
    row_begin[seqs] = rows;
    view.token = token, view.prev = prev, view.pos = pos, view.seq = seq, view.kv_slot = slot, view.row_begin = row_begin;
    view.context = length, view.block_refs = blocks, view.logit_row = logit_row, view.sample = sample;
    return {.view = view, .bytes = {buffer_.as<uint8_t>(), used_}};
  }

 private:
  template <class T>
  T* take(int count) {
    auto* memory = reinterpret_cast<T*>(buffer_.as<uint8_t>() + used_);
    used_ += (static_cast<size_t>(count) * sizeof(T) + 15) / 16 * 16;
    QUINTET_CHECK(used_ <= buffer_.bytes(), "step inputs of {} bytes", used_);
    return memory;
  }
  Buffer buffer_;
  size_t used_ = 0;
};

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Status run(const Options& options) {
  TRY_ASSIGN(auto backend, make_cuda_backend({}));
  TRY_ASSIGN(const CudaCeilings ceilings, measure_cuda_ceilings());
  fmt::print("{{\"ceilings\": {{\"read_bytes_per_s\": {:.4g}, \"sm_mhz\": {}, \"device\": \"{}\"}}}}\n", ceilings.read_bytes_per_s, ceilings.sm_mhz,
             backend->info().description);
  const auto format = format_from_name(options.weights);
  if (!format) return bad_input(fmt::format("--weights: found '{}', which is no format", options.weights));
  const double load_begin = seconds();
  TRY_ASSIGN(const auto model, make_synthetic_model({.shape = options.shape, .format = *format, .layers = options.layers}, *backend));
  fmt::print("{{\"load_s\": {:.2f}, \"weight_bytes\": {}}}\n", seconds() - load_begin, model->weights.bytes);
  const ModelConfig& config = model->config;
  // A step reads every weight but the embedding, of which it reads a few rows.
  const double step_bytes = static_cast<double>(model->weights.bytes - model->weights.embedding.bytes);

  struct Work { bool prompt; int seqs, tokens, context; };
  std::vector<Work> works;
  for (const int rows : options.rows)
    for (const int context : options.context) works.push_back({false, rows, 1, context});
  for (const int tokens : options.prompt) works.push_back({true, 1, tokens, tokens});
  for (const Work& work : works) {
    const int steps = work.prompt ? 4 : options.steps, rows = work.seqs * work.tokens;
    constexpr int kPageTokens = 16;
    const int longest = work.context + (work.prompt ? 0 : steps + 8), most_blocks = (longest + kPageTokens - 1) / kPageTokens;
    KvView kv = {.pages = int64_t{work.seqs} * most_blocks, .layers = config.layers,
                 .page = backend->page_class(config.layers, config.kv_heads, config.head_dim, kPageTokens)};
    auto pages = backend->allocate(static_cast<size_t>(kv.pages * kv.page.bytes), BufferUse::workspace);
    auto workspace = pages ? Workspace::make(*backend, config, {.rows = rows, .seqs = work.seqs, .logit_rows = work.seqs, .context = longest})
                           : Result<Workspace>(pages.error());
    if (!workspace) {
      fmt::print("{{\"work\": \"{}\", \"rows\": {}, \"context\": {}, \"skipped\": \"{}\"}}\n", work.prompt ? "prompt" : "decode", rows, work.context, workspace.error().message);
      continue;
    }
    kv.base = pages->data();
    const size_t input_bytes = static_cast<size_t>(rows) * 64 + static_cast<size_t>(work.seqs) * (static_cast<size_t>(most_blocks) * 8 + 256) + 4096;
    std::vector<StepWriter> writers;
    for (int i = 0; i < steps + 4; ++i) writers.emplace_back(*backend, input_bytes);
    std::vector<Sampled> sampled(static_cast<size_t>(work.seqs));
    const auto step = [&](int index) -> Status {
      const StepInputs inputs = writers[static_cast<size_t>(index)].write(work.seqs, work.tokens, work.prompt ? work.context : work.context + index + 1, kPageTokens,
                                                                          most_blocks, !work.prompt && index > 0);
      TRY_ASSIGN(const StepView view, backend->stage(inputs));
      const ForwardArgs args = {.model = model.get(), .step = &view, .kv = kv, .workspace = &*workspace};
      forward(backend->ops(), args);
      sample(backend->ops(), args, false);
      return {};
    };
    for (int i = 0; i < 4; ++i) TRY(step(i));
    TRY(backend->finish(workspace->sampled(), sampled));
    const double begin = seconds();
    for (int i = 4; i < steps + 4; ++i) TRY(step(i));
    const double issued = seconds();
    TRY(backend->finish(workspace->sampled(), sampled));
    const double ms = (seconds() - begin) * 1e3 / steps;
    const double kv_bytes = work.prompt ? 0 : 2.0 * config.layers * config.kv_heads * config.head_dim * 2 * work.seqs * (work.context + steps / 2);
    const double linear = static_cast<double>(config.hidden) * ((config.heads + 2.0 * config.kv_heads) * config.head_dim + config.heads * config.head_dim + 3.0 * config.ffn) * config.layers;
    fmt::print("{{\"work\": \"{}\", \"weights\": \"{}\", \"kv\": \"f16\", \"rows\": {}, \"context\": {}, \"ms\": {:.3f}, \"tokens_per_s\": {:.1f}, \"bytes\": {:.4g}, "
               "\"bytes_per_s\": {:.4g}, \"fraction_of_read\": {:.3f}, \"tflops\": {:.1f}, \"issue_ms\": {:.3f}, \"status\": {}}}\n",
               work.prompt ? "prompt" : "decode", options.weights, rows, work.context, ms, rows / ms * 1e3, step_bytes + kv_bytes, (step_bytes + kv_bytes) / ms * 1e3,
               (step_bytes + kv_bytes) / ms * 1e3 / ceilings.read_bytes_per_s, 2 * linear * rows / ms * 1e-9, (issued - begin) * 1e3 / steps, sampled[0].status);
    std::fflush(stdout);
  }
  return {};
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  const quintet::Status status = quintet::run(quintet::parse(argc, argv));
  if (!status) return std::fprintf(stderr, "%s\n", status.error().message.c_str()), 1;
  return 0;
}
