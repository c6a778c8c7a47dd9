// Measures sensitivities and spends bytes where they save most.
#include "compress/choose_formats.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "base/units.h"
#include "compress/layer_calibration.h"
#include "compress/tensor_plan.h"
#include "model/config_reader.h"
#include "model/decoder.h"
#include "model/loader.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

constexpr IntegerFormat kProbe{.bits = 3, .group = 128};
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
  std::map<std::string, QuantizedMatrix, std::less<>> probes;  ///< in 3 bits, until they were tried
  bool tried = false;
  double probe_error = 0;
  size_t at = 0;
};

std::optional<IntegerFormat> fitted(IntegerFormat format, int64_t k) {
  while (format.group >= 32 && k % format.group != 0) format.group /= 2;
  if (format.group < 32) return std::nullopt;
  return format;
}

/// Of one row of logits: log of the sum of exponentials.
double log_sum(const float* logits, int32_t vocabulary) {
  float most = logits[0];
  for (int32_t i = 1; i < vocabulary; ++i) most = std::max(most, logits[i]);
  double sum = 0;
  for (int32_t i = 0; i < vocabulary; ++i) sum += std::exp(static_cast<double>(logits[i]) - most);
  return most + std::log(sum);
}

/// A folder that goes when the object does.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> make(const std::string& beside) {
    std::string path = beside + ".measure-XXXXXX";
    if (!::mkdtemp(path.data())) return bad_input(fmt::format("{}: cannot make the folder: {}", path, std::strerror(errno)));
    return TemporaryFolder(path);
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

class Chooser {
 public:
  Chooser(const std::string& source, const ModelFiles& files, const ModelConfig& config, Backend& backend,
          const QuantizeOptions& options, const ChooseRequest& request)
      : source_(source), files_(files), config_(config), backend_(backend), options_(options), request_(request) {}

  Result<ChosenFormats> run() {
    TRY_ASSIGN(tasks_, plan_tensors(files_, config_, options_));
    make_groups();
    // Each layer for itself and for every trial before it; then what each trial makes of the head.
    all_steps_ = static_cast<uint64_t>(config_.layers) + 2 * groups_.size();
    const auto text = load_text(source_, {});
    if (!text)
      return bad_input(fmt::format("{}; allowed with auto is a model with a tokenizer", text.error().message));
    TRY_ASSIGN(tokens_, calibration_sequences(*(*text)->tokenizer,
                                              {.text = options_.calibration_text, .special = options_.calibration_special},
                                              options_.samples, options_.length));
    take_probe();
    TRY_ASSIGN(const TemporaryFolder folder, TemporaryFolder::make(request_.beside));
    TRY(walk(folder.path()));
    for (Group& group : groups_) finish(group);
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

  /// The first tokens of the calibration sequences, as many as are asked for.
  void take_probe() {
    int64_t left = request_.probe_tokens;
    for (const auto& sequence : tokens_) {
      if (left <= 0) break;
      const auto count = std::min<int64_t>(left, static_cast<int64_t>(sequence.size()));
      left -= count;
      probe_rows_ += count;
      probe_.emplace_back(sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(count));
    }
  }

  /// Rows behind the layers so far, [groups, probe rows, hidden]: of group i the model with that group alone in 3 bits.
  float* trial(size_t group) {
    return trials_->row_in(static_cast<int64_t>(group) * probe_rows_);
  }

  /// Layer after layer: its inputs' moments, all trials before it, then its own. One layer's weights are in memory.
  Status walk(const std::string& folder) {
    int64_t tokens = 0;
    for (const auto& sequence : tokens_) tokens += static_cast<int64_t>(sequence.size());
    TRY_ASSIGN(HiddenStates states, HiddenStates::open(folder, {.tokens = tokens, .hidden = config_.hidden}));
    const std::string trials = folder + "/trials";
    std::error_code error;
    fs::create_directory(trials, error);
    if (error) return io_error(fmt::format("{}: {}", trials, error.message()));
    TRY_ASSIGN(HiddenStates rows, HiddenStates::open(trials, {.tokens = static_cast<int64_t>(groups_.size()) * probe_rows_,
                                                              .hidden = config_.hidden,
                                                              .files = 1}));
    trials_.emplace(std::move(rows));
    TRY_ASSIGN(calibration_, LayerCalibration::make({.files = files_,
                                                     .config = config_,
                                                     .backend = backend_,
                                                     .tokens = tokens_,
                                                     .threads = options_.threads},
                                                    std::move(states), 0));
    std::optional<QuantizedMatrix> table, head;  // in 3 bits
    size_t begun = 0;                            // groups whose trial has rows
    for (; begun < groups_.size() && groups_[begun].tasks.front()->place.layer < 0; ++begun) {
      TRY(measure(groups_[begun], {}));
      table = take_probe_of(groups_[begun]);
      if (table) embed_rows(table->view(""), probe_, config_.embedding_scale, trial(begun));
      TRY(step());
    }
    const size_t embedding = begun == 0 || !table ? groups_.size() : begun - 1;
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      TRY(calibration_->load(layer));
      TRY_ASSIGN(const LayerStatistics seen, calibration_->pass({.inputs = {true, true, true, true}, .advance = true}));
      TRY(step());
      for (size_t i = 0; i < begun; ++i)
        if (has_trial(i)) TRY(calibration_->through(probe_, trial(i)));
      for (; begun < groups_.size() && groups_[begun].tasks.front()->place.layer == layer; ++begun) {
        TRY(measure(groups_[begun], seen));
        TRY(try_group(begun));
        TRY(step());
      }
    }
    for (; begun < groups_.size(); ++begun) {  // a head of its own
      TRY(measure(groups_[begun], {}));
      head = take_probe_of(groups_[begun]);
      if (head) std::copy_n(base_rows(), probe_rows_ * config_.hidden, trial(begun));
      TRY(step());
    }
    return read_out(embedding, table ? &*table : nullptr, head ? &*head : nullptr);
  }

  /// Of the source, behind all layers.
  const float* base_rows() { return calibration_->leaving(); }

  bool has_trial(size_t group) const { return groups_[group].tried; }

  /// KL of each trial. Where the embedding is the head too, its trial ends in it.
  Status read_out(size_t embedding, const QuantizedMatrix* table, const QuantizedMatrix* head) {
    TRY(calibration_->read_out(probe_, base_rows(), nullptr, [&](const float* logits) {
      base_.insert(base_.end(), logits, logits + config_.vocabulary);
      base_log_sum_.push_back(log_sum(logits, config_.vocabulary));
    }));
    std::optional<HostWeight> made;
    for (size_t i = 0; i < groups_.size(); ++i) {
      Group& group = groups_[i];
      if (has_trial(i)) {
        made.reset();
        if (head && i + 1 == groups_.size()) made = head->view(group.choice.tensors.front());
        if (table && i == embedding && config_.tied_embeddings) made = table->view(group.choice.tensors.front());
        double sum = 0;
        size_t row = 0;
        TRY(calibration_->read_out(probe_, trial(i), made ? &*made : nullptr, [&](const float* logits) {
          const float* base = base_.data() + row * static_cast<size_t>(config_.vocabulary);
          const double total = log_sum(logits, config_.vocabulary), base_total = base_log_sum_[row++];
          for (int32_t v = 0; v < config_.vocabulary; ++v) {
            const double log_p = base[v] - base_total;
            sum += std::exp(log_p) * (log_p - (logits[v] - total));
          }
        }));
        group.choice.probe_kl = std::max(0.0, sum / static_cast<double>(std::max<size_t>(row, 1)));
      }
      TRY(step());
    }
    return {};
  }

  /// What each format of the group's tensors takes and loses; keeps them in 3 bits, where they have groups.
  Status measure(Group& group, const LayerStatistics& statistics) {
    for (const IntegerFormat& candidate : kCandidates)
      group.options.push_back(Option{.format = *weight_format_of(candidate), .changed = true});
    group.options.push_back({});
    for (const TensorTask* task : group.tasks) {
      const HostWeight& weight = task->tensor->weight;
      const int64_t rows_at_once = std::max<int64_t>(1, options_.weights_at_once / weight.k);
      for (int64_t first = 0; first < weight.n; first += rows_at_once)
        TRY(measure_rows(*task, first, std::min(rows_at_once, weight.n - first), statistics, group));
      group.options.back().bytes += weight.stored_bytes();
      drop_pages(weight.bytes);
    }
    group.probe_error = group.options.front().error;
    return {};
  }

  Status measure_rows(const TensorTask& task, int64_t first, int64_t count, const LayerStatistics& statistics, Group& group) {
    const HostWeight& weight = task.tensor->weight;
    QuantizedMatrix source;
    TRY_ASSIGN(const HostWeight part, made_of(count == weight.n ? weight : weight.slice_rows(first, count), source));
    TRY(check_side_data(part));
    std::vector<float> values(static_cast<size_t>(count * weight.k));
    parallel_for(count, options_.threads, [&](int64_t row) { decode_row(part, row, values.data() + row * weight.k); });
    MatrixToQuantize matrix{.name = weight.name,
                            .n = count,
                            .k = weight.k,
                            .weights = values.data(),
                            .threads = options_.threads,
                            .first_row = first};
    TRY(check_weights(matrix));
    if (const int input = task.place.input(); input >= 0)
      matrix.moments = statistics[static_cast<size_t>(input)].moments;
    for (size_t i = 0; i < kCandidates.size(); ++i) {
      const auto format = fitted(kCandidates[i], weight.k);
      if (!format) {
        if (first == 0) group.options[i].bytes += weight.stored_bytes();
        continue;
      }
      QuantizedMatrix made = quantize_outlier(matrix, *format, {.share = 0});
      group.options[i].bytes += made.view(weight.name).stored_bytes();
      group.options[i].error += output_error(matrix, made).lost;
      if (kCandidates[i] == kProbe) append_rows(group.probes[std::string(weight.name)], std::move(made));
    }
    return {};
  }

  /// Of a group of one tensor.
  std::optional<QuantizedMatrix> take_probe_of(Group& group) {
    if (group.probes.empty()) return std::nullopt;
    QuantizedMatrix made = std::move(group.probes.begin()->second);
    group.probes.clear();
    group.tried = true;
    return made;
  }

  /// The loaded layer with the group in 3 bits, on what entered it in the source.
  Status try_group(size_t index) {
    Group& group = groups_[index];
    if (group.probes.empty()) return {};
    const int input = group.tasks.front()->place.input();
    std::map<std::string, HostWeight, std::less<>> views;
    for (const auto& [name, made] : group.probes) views.emplace(name, made.view(name));
    TRY(calibration_->replace(input, views));
    std::copy_n(calibration_->entered(), probe_rows_ * config_.hidden, trial(index));
    TRY(calibration_->through(probe_, trial(index)));
    group.probes.clear();
    group.tried = true;
    return calibration_->restore(input);
  }

  /// Losses of all formats in proportion to what was measured.
  static void finish(Group& group) {
    for (Option& option : group.options)
      option.kl = group.probe_error > 0 ? group.choice.probe_kl * option.error / group.probe_error : 0;
    keep_hull(group.options);
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
  CalibrationTokens tokens_, probe_;
  int64_t probe_rows_ = 0;
  std::optional<HiddenStates> trials_;
  std::unique_ptr<LayerCalibration> calibration_;
  std::vector<float> base_;  ///< [probe rows, vocabulary]
  std::vector<double> base_log_sum_;
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
