// Measures sensitivities and spends bytes where they save most.
#include "compress/choose_formats.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/parallel.h"
#include "base/units.h"
#include "compress/layer_calibration.h"
#include "compress/tensor_plan.h"
#include "engine/engine_client.h"
#include "model/config_reader.h"
#include "model/decoder.h"
#include "model/loader.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

constexpr IntegerFormat kProbe{.bits = 3, .group = 128};
constexpr int32_t kChunk_tokens = 256;
constexpr uint64_t kDriverBytes = uint64_t{768} << 20;  // context, kernels, graphs
constexpr int32_t kStepRows = 512;

/// The formats that are tried, smallest first; groups shrink where a row is no whole number of them.
constexpr std::array kCandidates = {
    IntegerFormat{3, 128, false}, IntegerFormat{3, 64, false},  IntegerFormat{3, 32, false},
    IntegerFormat{4, 128, false}, IntegerFormat{4, 64, false},  IntegerFormat{4, 64, true},
    IntegerFormat{4, 32, true},   IntegerFormat{8, 128, false}, IntegerFormat{8, 32, false}};

/// A format of a group of tensors, and what it costs.
struct Option {
  WeightFormat format = WeightFormat::f16;
  bool changed = false;
  uint64_t bytes = 0;
  double error = 0;  ///< of the output: sum of e H e^T
  double kl = 0;
};

struct Group {
  FormatChoice choice;
  std::vector<const TensorTask*> tasks;
  std::vector<Option> options;  ///< by bytes; each costs more and loses less than the one before
  double probe_error = 0;
  size_t at = 0;
};

std::optional<IntegerFormat> fitted(IntegerFormat format, int64_t k) {
  while (format.group >= 32 && k % format.group != 0) format.group /= 2;
  if (format.group < 32) return std::nullopt;
  return format;
}

double output_error(const MatrixToQuantize& matrix, const QuantizedMatrix& made) {
  const HostWeight view = made.view(matrix.name);
  std::vector<double> of_row(static_cast<size_t>(matrix.n));
  parallel_for(matrix.n, matrix.threads, [&](int64_t row) {
    std::vector<float> decoded(static_cast<size_t>(matrix.k));
    decode_row(view, row, decoded.data());
    for (int64_t i = 0; i < matrix.k; ++i) {
      const double error = static_cast<double>(matrix.weights[row * matrix.k + i]) - decoded[static_cast<size_t>(i)];
      of_row[static_cast<size_t>(row)] +=
          error * error * (matrix.moments.empty() ? 1.0 : matrix.moments[static_cast<size_t>(i)]);
    }
  });
  double sum = 0;
  for (const double error : of_row) sum += error;
  return sum;
}

/// Of one row of logits: log of the sum of exponentials.
double log_sum(const float* logits, int32_t vocabulary) {
  float most = logits[0];
  for (int32_t i = 1; i < vocabulary; ++i) most = std::max(most, logits[i]);
  double sum = 0;
  for (int32_t i = 0; i < vocabulary; ++i) sum += std::exp(static_cast<double>(logits[i]) - most);
  return most + std::log(sum);
}

class Chooser {
 public:
  Chooser(const std::string& source, const ModelFiles& files, const ModelConfig& config, Backend& backend,
          const QuantizeOptions& options, const ChooseRequest& request)
      : source_(source), files_(files), config_(config), backend_(backend), options_(options), request_(request) {}

  Result<ChosenFormats> run() {
    TRY_ASSIGN(tasks_, plan_tensors(files_, config_, options_));
    make_groups();
    all_steps_ = static_cast<uint64_t>(config_.layers) + 2 * groups_.size();
    TRY_ASSIGN(model_, load_model(source_, backend_, {}));
    TRY_ASSIGN(tokens_, calibration_sequences(*model_->tokenizer,
                                              {.text = options_.calibration_text, .special = options_.calibration_special},
                                              options_.samples, options_.length));
    TRY(find_moments());
    TRY(keep_base_logits());
    const Architecture* architecture = find_architecture(config_.architecture);
    TRY_ASSIGN(plan_, plan_weights(files_, *architecture, config_, planned_for_));
    for (Group& group : groups_) TRY(measure(group));
    return choose();
  }

 private:
  Status step() {
    if (!request_.progress || request_.progress(++done_steps_, all_steps_)) return {};
    return Error{ErrorKind::cancelled, "stopped by a signal"};
  }

  void make_groups() {
    static constexpr std::string_view kNames[] = {"q, k, v", "attention output", "gate, up", "down"};
    std::map<std::pair<int32_t, int>, size_t> of;
    for (const TensorTask& task : tasks_) {
      const int input = task.place.input();
      if (input < 0 && task.place.part != TensorPart::table) {
        fixed_bytes_ += task.tensor->weight.stored_bytes();
        continue;
      }
      const auto key = std::pair(input < 0 ? -1 - static_cast<int32_t>(groups_.size()) : task.place.layer, input);
      const auto [at, is_new] = of.emplace(key, groups_.size());
      if (is_new) {
        Group group;
        group.choice.name = input < 0 ? std::string(task.tensor->weight.name)
                                      : fmt::format("layer {}: {}", task.place.layer, kNames[input]);
        groups_.push_back(std::move(group));
      }
      groups_[at->second].tasks.push_back(&task);
      groups_[at->second].choice.tensors.emplace_back(task.tensor->weight.name);
    }
  }

  /// Second moments of every layer's inputs, one layer at a time.
  Status find_moments() {
    const fs::path folder = fs::temp_directory_path() / fmt::format("quintet-choose-{}", ::getpid());
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) return io_error(fmt::format("{}: {}", folder.string(), error.message()));
    const Status status = find_moments_in(folder.string());
    fs::remove_all(folder, error);
    return status;
  }

  Status find_moments_in(const std::string& folder) {
    int64_t tokens = 0;
    for (const auto& sequence : tokens_) tokens += static_cast<int64_t>(sequence.size());
    TRY_ASSIGN(HiddenStates states, HiddenStates::open(folder, {.tokens = tokens, .hidden = config_.hidden}));
    TRY_ASSIGN(const auto calibration, LayerCalibration::make({.files = files_,
                                                               .config = config_,
                                                               .backend = backend_,
                                                               .tokens = tokens_,
                                                               .threads = options_.threads},
                                                              std::move(states), 0));
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      TRY(calibration->load(layer));
      TRY_ASSIGN(LayerStatistics seen, calibration->pass({.inputs = {true, true, true, true}, .advance = true}));
      statistics_.push_back(std::move(seen));
      TRY(step());
    }
    return {};
  }

  /// Runs the probe's tokens; `sink` gets each row's logits.
  Status run_probe(const std::function<void(const float* logits)>& sink) {
    int64_t left = request_.probe_tokens;
    for (const auto& sequence : tokens_) {
      if (left <= 0) break;
      const auto count = static_cast<size_t>(std::min<int64_t>(left, static_cast<int64_t>(sequence.size())));
      left -= static_cast<int64_t>(count);
      const std::vector<TokenId> part(sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(count));
      TRY(prompt_logits(backend_, *model_, part, kChunk_tokens, [&](int32_t, int32_t rows, const float* logits) {
        for (int32_t r = 0; r < rows; ++r) sink(logits + int64_t{r} * config_.vocabulary);
        return Status();
      }));
    }
    return {};
  }

  Status keep_base_logits() {
    return run_probe([&](const float* logits) {
      base_.insert(base_.end(), logits, logits + config_.vocabulary);
      base_log_sum_.push_back(log_sum(logits, config_.vocabulary));
    });
  }

  Result<double> measured_kl() {
    double sum = 0;
    size_t row = 0;
    TRY(run_probe([&](const float* logits) {
      const float* base = base_.data() + row * static_cast<size_t>(config_.vocabulary);
      const double total = log_sum(logits, config_.vocabulary), base_total = base_log_sum_[row++];
      for (int32_t i = 0; i < config_.vocabulary; ++i) {
        const double log_p = base[i] - base_total;
        sum += std::exp(log_p) * (log_p - (logits[i] - total));
      }
    }));
    return sum / static_cast<double>(std::max<size_t>(row, 1));
  }

  /// Where the group's weight is in the loaded model, and what it is made of.
  const PlannedWeight* planned_of(const TensorTask& task) const {
    for (const PlannedWeight& planned : plan_) {
      if (planned.role == WeightRole::vector) continue;
      for (const HostWeight& part : planned.parts)
        if (part.name == task.tensor->weight.name) return &planned;
    }
    return nullptr;
  }

  Weight* target_in_model(const PlannedWeight& planned) {
    if (planned.target == &planned_for_.embedding) return &model_->weights.embedding;
    if (planned.target == &planned_for_.head) return &model_->weights.head;
    for (size_t i = 0; i < planned_for_.layer.size(); ++i) {
      const auto from = input_weights(planned_for_.layer[i]), to = input_weights(model_->weights.layer[i]);
      for (size_t j = 0; j < from.size(); ++j)
        if (from[j] == planned.target) return to[j];
    }
    return nullptr;
  }

  Status measure(Group& group) {
    std::map<std::string, QuantizedMatrix, std::less<>> probes;
    for (const IntegerFormat& candidate : kCandidates) group.options.push_back(Option{.format = *weight_format_of(candidate), .changed = true});
    group.options.push_back({});
    for (const TensorTask* task : group.tasks) {
      QuantizedMatrix source;
      TRY_ASSIGN(const HostWeight weight, made_of(task->tensor->weight, source));
      TRY(check_side_data(weight));
      std::vector<float> values(static_cast<size_t>(weight.n * weight.k));
      parallel_for(weight.n, options_.threads,
                   [&](int64_t row) { decode_row(weight, row, values.data() + row * weight.k); });
      MatrixToQuantize matrix{.name = weight.name, .n = weight.n, .k = weight.k, .weights = values.data(),
                              .threads = options_.threads};
      TRY(check_weights(matrix));
      if (const int input = task->place.input(); input >= 0)
        matrix.moments = statistics_[static_cast<size_t>(task->place.layer)][static_cast<size_t>(input)].moments;
      for (size_t i = 0; i < kCandidates.size(); ++i) {
        const auto format = fitted(kCandidates[i], weight.k);
        if (!format) {
          group.options[i].bytes += weight.stored_bytes();
          continue;
        }
        QuantizedMatrix made = quantize_outlier(matrix, *format, {.share = 0});
        group.options[i].bytes += made.view(weight.name).stored_bytes();
        group.options[i].error += output_error(matrix, made);
        if (kCandidates[i] == kProbe) probes.emplace(std::string(weight.name), std::move(made));
      }
      group.options.back().bytes += weight.stored_bytes();
    }
    TRY(step());
    group.probe_error = group.options.front().error;
    if (!probes.empty()) TRY(probe(group, probes));
    for (Option& option : group.options)
      option.kl = group.probe_error > 0 ? group.choice.probe_kl * option.error / group.probe_error : 0;
    keep_hull(group.options);
    return step();
  }

  /// The model with the group in 3 bits, and back.
  Status probe(Group& group, const std::map<std::string, QuantizedMatrix, std::less<>>& probes) {
    const PlannedWeight* planned = planned_of(*group.tasks.front());
    QUINTET_CHECK(planned, "no weight has the tensor {}", group.choice.tensors.front());
    Weight* target = target_in_model(*planned);
    QUINTET_CHECK(target, "no weight of the model has the tensor {}", group.choice.tensors.front());
    std::vector<HostWeight> parts = planned->parts;
    std::map<std::string_view, int64_t> rows_before;
    for (HostWeight& part : parts) {
      int64_t& first = rows_before[part.name];
      const int64_t rows = part.n;
      if (const auto made = probes.find(part.name); made != probes.end())
        part = made->second.view(part.name).slice_rows(first, rows);
      first += rows;
    }
    TRY_ASSIGN(Weight compressed, prepare_weight(source_, *planned, parts, vectors_, backend_));
    std::swap(*target, compressed);
    const Result<double> kl = measured_kl();
    std::swap(*target, compressed);
    if (!kl) return kl.error();
    group.choice.probe_kl = std::max(0.0, *kl);
    return {};
  }

  /// Leaves the options of which no other is smaller and no worse, and, of steps from one to the next, those whose gain a
  /// byte falls: the lower convex hull.
  static void keep_hull(std::vector<Option>& options) {
    std::stable_sort(options.begin(), options.end(), [](const Option& a, const Option& b) {
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.kl < b.kl;
    });
    const auto gain = [](const Option& from, const Option& to) {
      return (from.kl - to.kl) / static_cast<double>(to.bytes - from.bytes);
    };
    std::vector<Option> hull;
    for (const Option& option : options) {
      if (!hull.empty() && (option.bytes == hull.back().bytes || option.kl >= hull.back().kl)) continue;
      while (hull.size() >= 2 && gain(hull.back(), option) >= gain(hull[hull.size() - 2], hull.back())) hull.pop_back();
      hull.push_back(option);
    }
    options = std::move(hull);
  }

  Result<ChosenFormats> choose() {
    uint64_t bytes = fixed_bytes_;
    for (const Group& group : groups_) bytes += group.options.front().bytes;
    if (bytes > request_.target_bytes)
      return bad_input(fmt::format("target: found {}, allowed are {} and more (what the smallest formats of {} take)",
                                   format_bytes(request_.target_bytes), format_bytes(bytes), source_));
    while (true) {
      Group* best = nullptr;
      double most = 0;
      for (Group& group : groups_) {
        if (group.at + 1 >= group.options.size()) continue;
        const Option &now = group.options[group.at], &next = group.options[group.at + 1];
        if (bytes + next.bytes - now.bytes > request_.target_bytes) continue;
        const double gain = (now.kl - next.kl) / static_cast<double>(next.bytes - now.bytes);
        if (gain > most) most = gain, best = &group;
      }
      if (!best) break;
      bytes += best->options[best->at + 1].bytes - best->options[best->at].bytes;
      ++best->at;
    }
    ChosenFormats chosen{.bytes = bytes};
    for (Group& group : groups_) {
      const Option& option = group.options[group.at];
      group.choice.changed = option.changed;
      group.choice.format = option.changed ? option.format : group.tasks.front()->tensor->weight.format;
      group.choice.bytes = option.bytes;
      group.choice.expected_kl = option.kl;
      chosen.expected_kl += option.kl;
      for (const std::string& name : group.choice.tensors) chosen.overrides.push_back({name, group.choice.format});
      chosen.choices.push_back(std::move(group.choice));
    }
    return chosen;
  }

  const std::string& source_;
  const ModelFiles& files_;
  const ModelConfig& config_;
  Backend& backend_;
  const QuantizeOptions& options_;
  const ChooseRequest& request_;
  std::vector<TensorTask> tasks_;
  std::vector<Group> groups_;
  std::unique_ptr<Model> model_;
  CalibrationTokens tokens_;
  std::vector<LayerStatistics> statistics_;
  std::vector<float> base_;  ///< [tokens, vocabulary]
  std::vector<double> base_log_sum_;
  ModelWeights planned_for_;
  std::vector<PlannedWeight> plan_;
  std::vector<std::vector<float>> vectors_;
  uint64_t fixed_bytes_ = 0, done_steps_ = 0, all_steps_ = 0;
};

}  // namespace

Result<ChosenFormats> choose_formats(const std::string& source, Backend& backend, const QuantizeOptions& options,
                                     const ChooseRequest& request) {
  TRY_ASSIGN(const ModelFiles files, ModelFiles::open(source));
  TRY_ASSIGN(const ModelConfig config, read_config(files, 0));
  return Chooser(source, files, config, backend, options, request).run();
}

Result<uint64_t> weight_room(const std::string& source, uint64_t gpu_bytes, int64_t context, int64_t users,
                             std::string& sum) {
  TRY_ASSIGN(const ModelFiles files, ModelFiles::open(source));
  TRY_ASSIGN(const ModelConfig config, read_config(files, 0));
  if (context > config.context)
    return bad_input(fmt::format("--context: found {}, allowed are at most {} (what {} was made for)", context,
                                 config.context, source));
  const uint64_t cache = uint64_t{4} * static_cast<uint64_t>(config.layers) * static_cast<uint64_t>(config.kv_heads) *
                         static_cast<uint64_t>(config.head_dim) * static_cast<uint64_t>(context) *
                         static_cast<uint64_t>(users);
  const uint64_t workspace = Workspace::bytes_needed(config,
                                                     {.rows = kStepRows,
                                                      .seqs = static_cast<int32_t>(users),
                                                      .logit_rows = static_cast<int32_t>(std::min<int64_t>(users, kStepRows)),
                                                      .context = static_cast<int32_t>(context)},
                                                     DType::f16);
  sum = fmt::format("{} of the GPU - {} for keys and values of {} x {} tokens - {} workspace - {} for the driver",
                    format_bytes(gpu_bytes), format_bytes(cache), users, context, format_bytes(workspace),
                    format_bytes(kDriverBytes));
  if (cache + workspace + kDriverBytes >= gpu_bytes)
    return bad_input(fmt::format("--target-gpu: found {}, which leaves no room for weights", sum));
  return gpu_bytes - cache - workspace - kDriverBytes;
}

}  // namespace quintet
