// `quintet bench`: speeds through the engine, as a user sees them, beside what this machine can do at all.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backend/cpu/ceilings.h"
#include "base/units.h"
#include "cli/bench_steps.h"
#include "cli/bench_tune.h"
#include "cli/flags.h"
#include "cli/generation.h"
#include "cli/session.h"
#include "cli/terminal.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kBlock_tokens = 16;
constexpr int32_t kWarmup_tokens = 32;
constexpr int64_t kMostRows = 1024;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Of this process since it started its program. Not getrusage's: that one starts with the parent's.
uint64_t peak_rss_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    uint64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib << 10;
  }
  return 0;
}

/// The same tokens on every machine and in every run; other ones for every repetition, so that no prefix is
/// reused.
std::vector<TokenId> random_prompt(const Tokenizer& tokenizer, int64_t count, uint64_t repetition) {
  uint64_t state = 0x9E3779B97F4A7C15u * (repetition + 1);
  std::vector<TokenId> ids;
  while (static_cast<int64_t>(ids.size()) < count) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;  // xorshift64, Marsaglia 2003
    const auto id = static_cast<TokenId>((state >> 33) % static_cast<uint64_t>(tokenizer.vocabulary()));
    if (!tokenizer.is_special(id)) ids.push_back(id);
  }
  return ids;
}

struct Speeds {
  std::vector<double> prompt_tokens_per_s, decode_tokens_per_s, first_token_s;
};

class BenchVerb : public Verb {
 public:
  std::string_view examples() const override {
    return "  quintet bench model.gguf\n"
           "  quintet bench model.gguf --prompt 512 --decode 128 --threads 2 --json\n"
           "  quintet bench model.gguf --prompt 32 --decode 2 --repetitions 9 --no-ceilings\n"
           "  quintet bench --shape llama3-70b --weights int4-g128 --rows 1,8,64 --context 128,8192 --prompt 2048\n"
           "  quintet bench --shape llama3-8b --weights int4-g128 --rows 1,16 --prompt 512 --unfused\n"
           "  quintet bench --shape llama3-70b --layers 8 --tune kernels.json\n";
  }

  void declare(FlagSet& flags) override {
    source_.declare(flags);
    prompt_flag_ = flags.integers("--prompt", {prompts_, 1, 1 << 24}, "Tokens of the prompt, random (default 512)");
    decode_flag_ = flags.integer("--decode", {decode_tokens_, 2, 1 << 24}, "Tokens of the answer (default 128)");
    repetitions_flag_ = flags.integer("--repetitions", {repetitions_, 1, 1000}, "How often; medians are told (default 3)");
    flags.toggle("--no-ceilings", no_ceilings_, "Do not measure what the machine can do at all");
    flags.toggle("--json", json_, "Print JSON: one object, or, by rows, one a line");
    const std::string group = "By rows: whole steps rather than requests (with --shape, --rows, --context or --unfused)";
    rows_flag_ = flags.integers("--rows", {rows_, 1, kMostRows}, "Sequences that decode at once (default 1)").group(group);
    context_flag_ = flags.integers("--context", {contexts_, 1, 1 << 24}, "Tokens of each in the cache (default 128)").group(group);
    attention_flag_ = flags.toggle("--attention", attention_, "Attention alone too, at each of rows and context").group(group);
    unfused_flag_ = flags.toggle("--unfused", unfused_, "Each a second time with dequantization, products and the rest apart: what fusing them buys").group(group);
    flags.text("--tune", tune_path_, "FILE", "Instead: measure choices among the GPU's kernels that change no bits, and write the best for --kernel-table")
        .group(group);
    flags.files().writes("--tune", tune_path_);
    steps_flag_ = flags.integer("--steps", {steps_, 1, 1 << 20}, "Consecutive steps of each (default 256)").group(group);
  }

  VerbOutcome run(const CommonOptions& common) override {
    TRY(source_.check());
    if (!tune_path_.empty()) {
      TRY(refuse({rows_flag_, context_flag_, prompt_flag_, attention_flag_, unfused_flag_, decode_flag_, repetitions_flag_}, "--tune, which chooses its own"));
      return bench_tune(source_, common, {.path = tune_path_, .steps = static_cast<int32_t>(steps_), .json = json_});
    }
    if (!source_.shape.empty() || rows_flag_.given() || context_flag_.given() || unfused_) {
      TRY(refuse({decode_flag_, repetitions_flag_}, "whole steps (--shape, --rows, --context, --unfused), which have --steps"));
      return by_rows(common);
    }
    TRY(refuse({attention_flag_, steps_flag_}, "requests; whole steps (--shape, --rows, --context, --unfused) have it"));
    if (prompts_.size() > 1)
      return bad_input(fmt::format("--prompt: found {} numbers, allowed is one (with --rows, more)", prompts_.size()));
    return by_requests(common);
  }

 private:
  /// What one way of measuring has no use for is refused, not passed over.
  static Status refuse(std::initializer_list<Flag> flags, std::string_view with) {
    for (const Flag& flag : flags)
      if (flag.given()) return bad_input(fmt::format("{}: found it with {}", flag.name(), with));
    return {};
  }

  VerbOutcome by_rows(const CommonOptions& common) {
    EngineOptions least{.context = 2, .sequences = 1, .step_tokens = 1};
    TRY_ASSIGN(Session session, open_session(source_, common, {}, least));
    return bench_steps(session, source_,
                       {.rows = rows_,
                        .context = contexts_,
                        .prompt = prompt_flag_.given() ? prompts_ : std::vector<int64_t>(),
                        .attention = attention_,
                        .unfused = unfused_,
                        .steps = static_cast<int32_t>(steps_),
                        .ceilings = !no_ceilings_,
                        .json = json_,
                        .threads = common.backend.threads});
  }

  VerbOutcome by_requests(const CommonOptions& common) {
    prompt_tokens_ = prompts_[0];
    const int64_t context = prompt_tokens_ + decode_tokens_;
    TRY_ASSIGN(Session session,
               open_session(source_, common, {}, {.context = static_cast<int32_t>(context), .sequences = 1}));
    const Model& model = *session.model;
    if (context > model.config.context)
      return bad_input(fmt::format(
          "--prompt, --decode: found {} + {} tokens, allowed are {} together (the model's context)",
          prompt_tokens_, decode_tokens_, model.config.context));
    TRY(session.start({.context = static_cast<int32_t>(context),
                       .sequences = 1,
                       .kv_tokens = context,
                       .block_tokens = kBlock_tokens}));
    TRY(measure(session, std::min<int64_t>(prompt_tokens_, kWarmup_tokens), 2, 0, nullptr));
    Speeds speeds;
    for (int64_t i = 0; i < repetitions_; ++i)
      TRY(measure(session, prompt_tokens_, decode_tokens_, static_cast<uint64_t>(i) + 1, &speeds));
    Json report = describe(session, speeds);
    if (!no_ceilings_) TRY(add_ceilings(common.backend.threads, session, report));
    Output output;
    return output.print(json_ ? report.dump(2) + "\n" : table(report));
  }

  Status measure(Session& session, int64_t prompt_tokens, int64_t decode_tokens, uint64_t repetition,
                 Speeds* speeds) const {
    Request request;
    request.id = repetition + 1;
    request.prompt = random_prompt(*session.model->tokenizer, prompt_tokens, repetition);
    request.max_new_tokens = static_cast<int32_t>(decode_tokens);
    request.ignore_eos = true;
    TRY_ASSIGN(const Generation done, generate({.engine = *session.engine,
                                                .tokenizer = *session.model->tokenizer,
                                                .request = std::move(request)}));
    const Usage& usage = done.usage;
    if (usage.completion_tokens != decode_tokens || usage.cached_tokens != 0)
      return internal_error(fmt::format("bench: asked for {} new tokens, got {} with {} of the prompt cached",
                                        decode_tokens, usage.completion_tokens, usage.cached_tokens));
    if (!speeds) return {};
    const auto rate = [](int64_t tokens, int64_t us) {
      return static_cast<double>(tokens) * 1e6 / static_cast<double>(std::max<int64_t>(us, 1));
    };
    speeds->prompt_tokens_per_s.push_back(rate(prompt_tokens, usage.prefill_us));
    // The first token comes with the prompt: the time between first and last made all others.
    speeds->decode_tokens_per_s.push_back(rate(decode_tokens - 1, usage.decode_us));
    speeds->first_token_s.push_back(static_cast<double>(usage.queue_us + usage.prefill_us) * 1e-6);
    return {};
  }

  Json describe(const Session& session, const Speeds& speeds) const {
    const Model& model = *session.model;
    const BackendInfo info = session.backend->info();
    const PageClass page = session.backend->page_class(model.config.layers, model.config.kv_heads,
                                                       model.config.head_dim, kBlock_tokens);
    const double decode = median(speeds.decode_tokens_per_s);
    return {{"model", source_.name()},
            {"device", info.name},
            {"device_description", info.description},
            {"numerics", session.backend->numerics().path},
            {"prompt_tokens", prompt_tokens_},
            {"decode_tokens", decode_tokens_},
            {"repetitions", repetitions_},
            {"prompt_tokens_per_s", median(speeds.prompt_tokens_per_s)},
            {"decode_tokens_per_s", decode},
            {"first_token_s", median(speeds.first_token_s)},
            {"prompt_tokens_per_s_each", speeds.prompt_tokens_per_s},
            {"decode_tokens_per_s_each", speeds.decode_tokens_per_s},
            {"load_s", session.load_s},
            {"weights_load_s", model.weights.load_s},
            {"load_bytes_per_s", static_cast<double>(model.weights.stored_bytes) / model.weights.load_s},
            {"file_bytes", model.file_bytes},
            {"weight_bytes", model.weights.bytes},
            {"kv_bytes", session.engine->stats().kv_blocks_total * page.bytes},
            {"peak_rss_bytes", peak_rss_bytes()},
            {"decode_read_bytes_per_s", decode * static_cast<double>(read_bytes_per_token(model))}};
  }

  /// Every decoded token reads every weight once; of an embedding that is not the head too, one row.
  static uint64_t read_bytes_per_token(const Model& model) {
    return model.weights.bytes - (model.weights.head.empty() ? 0 : model.weights.embedding.bytes);
  }

  /// After the peak memory was read, and without the engine: its buffers would count and its threads would
  /// disturb.
  static Status add_ceilings(int threads, Session& session, Json& report) {
    session.engine.reset();
    const std::string device = report["device"].get<std::string>();
    double read_bytes_per_s = 0;
    if (device == "cpu") {
      const CpuCeilings ceilings = measure_cpu_ceilings(threads);
      read_bytes_per_s = ceilings.read_bytes_per_s;
      report["dot_ops_per_s"] = Json::object();
      for (const auto& [kind, per_s] : ceilings.dot_ops_per_s) report["dot_ops_per_s"][kind] = per_s;
    } else {
      TRY_ASSIGN(const DeviceCeilings ceilings, measure_device_ceilings(device, threads));
      read_bytes_per_s = ceilings.read_bytes_per_s;
      if (ceilings.upload_bytes_per_s > 0) report["upload_bytes_per_s"] = ceilings.upload_bytes_per_s;
    }
    report["read_bytes_per_s"] = read_bytes_per_s;
    report["decode_read_share"] = report["decode_read_bytes_per_s"].get<double>() / read_bytes_per_s;
    return {};
  }

  static std::string table(const Json& report) {
    const auto number = [&](const char* key) { return report[key].get<double>(); };
    const auto bytes = [&](const char* key) { return format_bytes(report[key].get<uint64_t>()); };
    std::string text = fmt::format(
        "device       {} ({})\n"
        "prompt       {:.1f} tokens/s ({} tokens, first token after {:.3f} s)\n"
        "decode       {:.1f} tokens/s ({} tokens, reads {}/s)\n"
        "load         {:.3f} s ({}, weights at {}/s)\n"
        "peak memory  {} (weights {}, KV {})\n",
        report["device"].get<std::string>(), report["device_description"].get<std::string>(),
        number("prompt_tokens_per_s"), report["prompt_tokens"].get<int64_t>(), number("first_token_s"),
        number("decode_tokens_per_s"), report["decode_tokens"].get<int64_t>(),
        format_bytes(static_cast<uint64_t>(number("decode_read_bytes_per_s"))), number("load_s"),
        bytes("file_bytes"), format_bytes(static_cast<uint64_t>(number("load_bytes_per_s"))), bytes("peak_rss_bytes"), bytes("weight_bytes"), bytes("kv_bytes"));
    if (!report.contains("read_bytes_per_s")) return text;
    text += fmt::format("ceilings     memory reads {}/s (decode uses {:.0f} % of it)",
                        format_bytes(static_cast<uint64_t>(number("read_bytes_per_s"))),
                        number("decode_read_share") * 100);
    if (report.contains("upload_bytes_per_s"))
      text += fmt::format(", the bus {}/s (loading used {:.0f} % of it)", format_bytes(static_cast<uint64_t>(number("upload_bytes_per_s"))),
                          number("load_bytes_per_s") / number("upload_bytes_per_s") * 100);
    if (report.contains("dot_ops_per_s"))
      for (const auto& [kind, per_s] : report["dot_ops_per_s"].items())
        text += fmt::format(", {} {:.0f} G/s", kind, per_s.get<double>() * 1e-9);
    return text + "\n";
  }

  ModelSource source_;
  std::string tune_path_;
  Flag prompt_flag_, rows_flag_, context_flag_, decode_flag_, repetitions_flag_, attention_flag_, unfused_flag_, steps_flag_;
  std::vector<int64_t> prompts_ = {512}, rows_ = {1}, contexts_ = {128};
  int64_t prompt_tokens_ = 512, decode_tokens_ = 128, repetitions_ = 3, steps_ = 256;
  bool no_ceilings_ = false, json_ = false, attention_ = false, unfused_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_bench_verb() { return std::make_unique<BenchVerb>(); }

}  // namespace quintet
