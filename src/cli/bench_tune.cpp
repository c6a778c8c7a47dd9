// One choice after another, each with the best of those before it.
#include "cli/bench_tune.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/output_file.h"
#include "cli/bench_steps.h"
#include "cli/kernel_table_file.h"
#include "cli/terminal.h"
#include "quant/format.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

/// What a candidate has to be faster by than what is chosen so far: runs differ by half a percent.
constexpr double kLeastGain = 0.01;
/// More steps would carry the shorter contexts below into the next bucket of graphs.
constexpr int32_t kMostSteps = 100;

/// Values of a choice, and the decode steps that they are compared by: rows at a context each.
struct Trial {
  std::string_view choice;
  std::vector<int32_t> values;
  std::vector<std::pair<int32_t, int32_t>> works;
  int32_t tile_rows = 0;  ///< of the tile that serves these rows where the value is 0
};
const std::vector<Trial>& trials() {
  static const std::vector<Trial> kTrials = {
      {.choice = "rows_of_8", .values = {8, 0}, .works = {{2, 120}, {8, 120}}, .tile_rows = 16},
      {.choice = "rows_of_16", .values = {16, 0}, .works = {{16, 120}}, .tile_rows = 32},
      {.choice = "rows_of_32", .values = {32, 0}, .works = {{32, 120}}, .tile_rows = 64},
      {.choice = "rows_of_64", .values = {64, 0}, .works = {{64, 120}}, .tile_rows = 128},
      {.choice = "fresh_splits", .values = {4, 2, 1, 0}, .works = {{8, 120}, {8, 380}, {8, 900}}},
      {.choice = "attend_blocks", .values = {4, 2, 8, 16}, .works = {{1, 8000}, {8, 8000}}},
  };
  return kTrials;
}

class Tuner {
 public:
  Tuner(const ModelSource& source, const CommonOptions& common, const TuneRequest& request)
      : source_(source), common_(common), steps_(std::min(request.steps, kMostSteps)), json_(request.json) {}

  Result<KernelTable> run() {
    {
      TRY_ASSIGN(const auto backend, make_backend(common_.backend));
      common_.backend.device = backend->info().name;
    }
    TRY_ASSIGN(table_, kernel_table_of(common_.backend, common_.backend.device));
    TRY(find_variants());
    for (const Trial& trial : trials()) TRY(choose(trial));
    return table_;
  }

 private:
  Result<Session> open() const { return open_session(source_, common_, {}, {.context = 2, .sequences = 1, .step_tokens = 1}); }
  Status print(const Json& line, const std::string& text) { return output_.print(json_ ? line.dump() + "\n" : text); }

  /// Of a shape's format; a file has several.
  Status find_variants() {
    if (source_.shape.empty()) return {};
    TRY_ASSIGN(const auto weights, source_.shape_weights());
    TRY_ASSIGN(variants_, kernel_variants(common_.backend, common_.backend.device, weights.format));
    for (const KernelVariant& one : variants_)
      TRY(print({{"variant", one.tile_rows}, {"result", one.result}, {"threads", one.threads}, {"registers", one.registers},
                 {"local_bytes", one.local_bytes}, {"shared_bytes", one.shared_bytes}, {"blocks_per_multiprocessor", one.blocks}},
                fmt::format("product, tiles of {:>3} rows, {:<6}: {} registers, {} B of them in memory, {} B shared, {} blocks a multiprocessor\n",
                            one.tile_rows, one.result, one.registers, one.local_bytes, one.shared_bytes, one.blocks)));
    return {};
  }

  bool fits(int32_t tile_rows) const {
    return std::ranges::none_of(variants_, [&](const KernelVariant& one) { return one.tile_rows == tile_rows && one.blocks == 0; });
  }

  Status choose(const Trial& trial) {
    const KernelChoice& choice = *std::ranges::find(kernel_choices(), trial.choice, [](const KernelChoice& one) { return one.name; });
    std::vector<int32_t> values = trial.values;
    const int32_t given = table_.*choice.value;
    std::erase(values, given);
    values.insert(values.begin(), given);  // what others have to beat
    double best = 0;
    int32_t chosen = given;
    for (const int32_t value : values) {
      if (value == 0 && !fits(trial.tile_rows)) continue;
      KernelTable candidate = table_;
      candidate.*choice.value = value;
      TRY_ASSIGN(const double ms, measure(candidate, trial.works));
      TRY(print({{"choice", choice.name}, {"value", value}, {"ms", ms}}, fmt::format("{:<14}{:>4}{:>10.3f} ms\n", choice.name, value, ms)));
      if (value != given && ms > best * (1 - kLeastGain)) continue;
      best = ms;
      chosen = value;
    }
    table_.*choice.value = chosen;
    return {};
  }

  /// Milliseconds of a step, summed over the works.
  Result<double> measure(const KernelTable& table, const std::vector<std::pair<int32_t, int32_t>>& rows_at_context) {
    common_.backend.table = table;
    TRY_ASSIGN(Session session, open());
    std::vector<StepWork> works;
    const int32_t longest = std::max(1, session.model->config.context - 2 * kMostSteps);
    for (const auto& [rows, context] : rows_at_context) works.push_back({StepWork::Kind::decode, rows, std::min(context, longest)});
    TRY_ASSIGN(const auto bench, make_step_bench(session, works, steps_));
    double total = 0;
    for (const StepWork& work : works) {
      double best = 0;
      for (int run = 0; run < 3; ++run) {
        TRY_ASSIGN(const StepTime time, bench->run(work, steps_));
        best = run == 0 ? time.ms : std::min(best, time.ms);
      }
      total += best;
    }
    return total;
  }

  const ModelSource& source_;
  CommonOptions common_;
  int32_t steps_;
  bool json_;
  KernelTable table_;
  std::vector<KernelVariant> variants_;
  Output output_;
};

}  // namespace

Status bench_tune(const ModelSource& source, const CommonOptions& common, const TuneRequest& request) {
  TRY(OutputFile::check(request.path));
  auto table = Tuner(source, common, request).run();
  if (!table) return table.error();
  TRY_ASSIGN(OutputFile file, OutputFile::create(request.path));
  const std::string text = kernel_table_json(*table);
  if (std::fwrite(text.data(), 1, text.size(), file.stream()) != text.size()) return file.write_error();
  return file.finish();
}

}  // namespace quintet
