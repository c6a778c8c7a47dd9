// Chooses the works that fit, times them and prints what they moved.
#include "cli/bench_steps.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/terminal.h"
#include "plan/memory_plan.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;
using Kind = StepWork::Kind;

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::decode: return "decode";
    case Kind::prompt: return "prompt";
    case Kind::attention: return "attention";
  }
  return "?";
}

std::vector<StepWork> works_of(const StepBenchRequest& request) {
  std::vector<StepWork> works;
  const auto add = [&](StepWork work) {
    works.push_back(work);
    work.unfused = true;
    if (request.unfused) works.push_back(work);
  };
  for (const int64_t rows : request.rows)
    for (const int64_t context : request.context) {
      add({Kind::decode, static_cast<int32_t>(rows), static_cast<int32_t>(context)});
      if (request.attention) works.push_back({Kind::attention, static_cast<int32_t>(rows), static_cast<int32_t>(context)});
    }
  for (const int64_t tokens : request.prompt) add({Kind::prompt, static_cast<int32_t>(tokens), 0});
  return works;
}

/// What a step moves and computes.
struct Cost {
  double bytes = 0, operations = 0;
};

Cost cost_of(const StepWork& work, int32_t steps, const Model& model, const PageClass& page) {
  const ModelConfig& config = model.config;
  const double token_bytes = static_cast<double>(page.bytes) / page.tokens;
  const double weights = static_cast<double>(model.weights.bytes - (model.weights.head.empty() ? 0 : model.weights.embedding.bytes));
  const double linear = static_cast<double>(config.hidden) * config.layers *
                        ((2.0 * config.heads + 2.0 * config.kv_heads) * config.head_dim + 3.0 * config.ffn);
  const double pairs = 4.0 * config.layers * config.heads * config.head_dim;  // operations of one query and one key
  const double mean_context = work.context + steps / 2.0, rows = work.rows;
  switch (work.kind) {
    case Kind::decode: return {weights + rows * mean_context * token_bytes, rows * (2 * linear + pairs * mean_context)};
    case Kind::attention: return {rows * work.context * token_bytes, rows * pairs * work.context};
    case Kind::prompt: return {weights + rows * token_bytes, rows * (2 * linear + pairs * rows / 2)};
  }
  return {};
}

/// The products of one layer, gate and up as the one that they are.
std::vector<ProductShape> layer_products(const ModelConfig& config) {
  const int64_t width = int64_t{config.heads} * config.head_dim;
  return {{.n = width + 2 * int64_t{config.kv_heads} * config.head_dim, .k = config.hidden},
          {.n = config.hidden, .k = width},
          {.n = 2 * int64_t{config.ffn}, .k = config.hidden},
          {.n = config.hidden, .k = config.ffn}};
}

/// For prompts: what the vendor's library makes of the same products in FP16, and how fast a whole prompt, everything
/// else included, gets through its products beside that.
Status add_vendor_products(const Session& session, const StepWork& work, double ms, Json& line) {
  const ModelConfig& config = session.model->config;
  const std::vector<ProductShape> products = layer_products(config);
  TRY_ASSIGN(const auto layer_ms, measure_vendor_products(session.backend->info().name, products, work.rows));
  if (!layer_ms) return {};
  line["vendor_ms"] = *layer_ms * config.layers;
  double operations = 0;
  for (const ProductShape& shape : products) operations += 2.0 * static_cast<double>(shape.n * shape.k) * work.rows;
  line["vendor_tflops"] = operations / *layer_ms * 1e-9;
  line["fraction_of_vendor"] = *layer_ms * config.layers / ms;
  return {};
}

Json describe(const StepWork& work, const ModelSource& source, const BackendInfo& info) {
  Json line = {{"work", kind_name(work.kind)},
               {"weights", source.shape.empty() ? source.path : source.weights},
               {"kv", dtype_name(info.kv)},
               {"rows", work.rows},
               {"context", work.kind == Kind::prompt ? work.rows : work.context}};
  if (work.unfused) line["unfused"] = true;
  return line;
}

/// The memory of these works: rows of the workspace, and the largest cache.
struct Room {
  EngineOptions options{.sequences = 1, .step_tokens = 1};
  int64_t kv_tokens = 0;

  void add(const StepWork& work, int32_t steps) {
    // Sequences begin on a page of their own.
    const int64_t sequences = work.kind == Kind::prompt ? 1 : work.rows;
    const int64_t each = cache_tokens(work, steps) / sequences + 1;
    kv_tokens = std::max(kv_tokens, sequences * ((each + kBenchBlock_tokens - 1) / kBenchBlock_tokens) * kBenchBlock_tokens);
    options.context = std::max(options.context, static_cast<int32_t>(each));
    options.sequences = std::max(options.sequences, static_cast<int32_t>(sequences));
    options.step_tokens = std::max(options.step_tokens, work.kind == Kind::prompt ? work.rows : 1);
    options.kv_tokens = std::max<int64_t>(kv_tokens, options.context);
    options.unfused |= work.unfused;
  }
};

/// Why a model of `most` tokens cannot do this work; empty: it can.
std::string beyond_model(const StepWork& work, int32_t steps, int32_t most) {
  const bool is_prompt = work.kind == Kind::prompt;
  const int64_t each = cache_tokens(work, steps) / (is_prompt ? 1 : work.rows) + 1;
  if (each <= most) return {};
  return fmt::format("{} come to {} tokens; the model was made for {}",
                     is_prompt ? fmt::format("a prompt of {} and a token after it", work.rows)
                               : fmt::format("a context of {} and {} steps, with those that warm up,", work.context, steps),
                     each, most);
}

Result<MemoryPlan> plan(const Session& session, const Room& room) {
  return plan_engine(*session.backend, {.config = session.model->config, .weights_bytes = session.model->weights.bytes},
                     /*weights_are_loaded=*/true, room.options);
}

PageClass page_of(const Session& session) {
  const ModelConfig& config = session.model->config;
  return session.backend->page_class(config.layers, config.kv_heads, config.head_dim, kBenchBlock_tokens);
}

Result<Json> measure_ceilings(const Session& session, int threads) {
  const BackendInfo info = session.backend->info();
  TRY_ASSIGN(const DeviceCeilings measured, measure_device_ceilings(info.name, threads));
  Json object = {{"device", info.name}, {"description", info.description}, {"read_bytes_per_s", measured.read_bytes_per_s}};
  if (measured.upload_bytes_per_s > 0) object["upload_bytes_per_s"] = measured.upload_bytes_per_s;
  if (const auto mhz = device_clock_mhz(info.name)) object["sm_mhz"] = *mhz;
  return object;
}

std::string table_row(const Json& line) {
  if (line.contains("ceilings")) {
    const Json& machine = line["ceilings"];
    return fmt::format("{} ({}): memory reads {:.1f} GB/s\n{:<10}{:>6}{:>9}{:>10}{:>11}{:>8}{:>9}{:>9}\n", machine["device"].get<std::string>(),
                       machine["description"].get<std::string>(), machine["read_bytes_per_s"].get<double>() * 1e-9, "work", "rows", "context",
                       "ms", "tokens/s", "GB/s", "of read", "TFLOP/s");
  }
  const std::string begin = fmt::format("{:<10}{:>6}{:>9}", line["work"].get<std::string>(), line["rows"].get<int64_t>(), line["context"].get<int64_t>());
  if (line.contains("skipped")) return fmt::format("{}  skipped: {}\n", begin, line["skipped"].get<std::string>());
  const auto number = [&](const char* key) { return line[key].get<double>(); };
  std::string note;
  if (line.contains("unfused")) note = fmt::format("  unfused, moves {}", format_bytes(static_cast<uint64_t>(number("bytes"))));
  if (line.contains("vendor_ms"))
    note = fmt::format("  {:.0f} % of the FP16 products of the vendor's library ({:.0f} TFLOP/s)", number("fraction_of_vendor") * 100, number("vendor_tflops"));
  return begin + fmt::format("{:>10.3f}{:>11.1f}{:>8.1f}{:>9}{:>9.1f}{}\n", number("ms"), number("tokens_per_s"), number("bytes_per_s") * 1e-9,
                             line.contains("fraction_of_read") ? fmt::format("{:.0f} %", number("fraction_of_read") * 100) : "-", number("tflops"), note);
}

}  // namespace

Result<std::unique_ptr<StepBench>> make_step_bench(Session& session, std::span<const StepWork> works, int32_t steps) {
  Room room;
  for (const StepWork& work : works) room.add(work, steps);
  TRY_ASSIGN(const MemoryPlan memory, plan(session, room));
  return StepBench::make(*session.backend, *session.model, {.limits = memory.workspace_limits, .page = page_of(session), .pages = memory.kv_blocks});
}

Status bench_steps(Session& session, const ModelSource& source, const StepBenchRequest& request) {
  Output output;
  const auto print = [&](const Json& line) { return output.print(request.json ? line.dump() + "\n" : table_row(line)); };
  const BackendInfo info = session.backend->info();
  Json machine;
  if (request.ceilings) {
    TRY_ASSIGN(machine, measure_ceilings(session, request.threads));
    TRY(print({{"ceilings", machine}}));
  }
  // What does not fit is known before anything is timed: the workspace serves all that does.
  Room room;
  std::vector<StepWork> fitting;
  for (const StepWork& work : works_of(request)) {
    std::string skipped = beyond_model(work, request.steps, session.model->config.context);
    if (skipped.empty()) {
      Room larger = room;
      larger.add(work, request.steps);
      const auto planned = plan(session, larger);
      if (planned) {
        room = larger;
        fitting.push_back(work);
        continue;
      }
      if (planned.error().kind != ErrorKind::no_room) return planned.error();
      skipped = planned.error().message;
    }
    Json line = describe(work, source, info);
    line["skipped"] = skipped;
    TRY(print(line));
  }
  if (fitting.empty()) return {};
  const PageClass page = page_of(session);
  TRY_ASSIGN(const auto bench, make_step_bench(session, fitting, request.steps));
  for (const StepWork& work : fitting) {
    TRY_ASSIGN(const StepTime time, bench->run(work, request.steps));
    const double ms = time.ms;
    Cost cost = cost_of(work, work.kind == Kind::decode ? request.steps : 0, *session.model, page);
    cost.bytes += time.extra_bytes;
    Json line = describe(work, source, info);
    line["ms"] = ms;
    line["tokens_per_s"] = work.rows / ms * 1e3;
    line["bytes"] = cost.bytes;
    line["bytes_per_s"] = cost.bytes / ms * 1e3;
    if (request.ceilings) line["fraction_of_read"] = cost.bytes / ms * 1e3 / machine["read_bytes_per_s"].get<double>();
    line["tflops"] = cost.operations / ms * 1e-9;
    if (const auto mhz = device_clock_mhz(info.name)) line["sm_mhz"] = *mhz;
    if (request.ceilings && work.kind == Kind::prompt && !work.unfused) TRY(add_vendor_products(session, work, ms, line));
    TRY(print(line));
  }
  return {};
}

}  // namespace quintet
