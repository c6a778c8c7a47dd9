// Measures sensitivities and spends bytes where they save most.
#include "compress/choose_formats.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "base/disk_space.h"
#include "base/parallel.h"
#include "base/units.h"
#include "compress/format_budget.h"
#include "compress/format_errors.h"
#include "compress/layer_calibration.h"
#include "compress/quantize_identity.h"
#include "compress/saved_choice.h"
#include "compress/tensor_plan.h"
#include "compress/work_folder.h"
#include "model/config_reader.h"
#include "model/decoder.h"
#include "model/loader.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

/// What a group is tried in: losses large enough to be told from what 16-bit activations round, and small enough to add up.
/// Embedding and head in 3 bits lose so much that nothing is in proportion to it any more.
constexpr IntegerFormat kProbe{.bits = 3, .group = 128}, kTableProbe{.bits = 4, .group = 128};
constexpr uint64_t kDriverBytes = uint64_t{768} << 20;  // context, kernels, graphs
constexpr int32_t kStepRows = 512;

struct Group {
  FormatChoice choice;
  std::vector<const TensorTask*> tasks;
  std::vector<FormatOption> options;  ///< as keep_hull() leaves them
  std::map<std::string, QuantizedMatrix, std::less<>> probes;  ///< until they were tried
  bool tried = false;
};

/// Of one row of logits: log of the sum of exponentials.
double log_sum(const float* logits, int32_t vocabulary) {
  float most = logits[0];
  for (int32_t i = 1; i < vocabulary; ++i) most = std::max(most, logits[i]);
  double sum = 0;
  for (int32_t i = 0; i < vocabulary; ++i) sum += std::exp(static_cast<double>(logits[i]) - most);
  return most + std::log(sum);
}

/// A folder that goes when the object does, or before.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> make(const std::string& beside) {
    std::string path = beside + ".measure-XXXXXX";
    if (!::mkdtemp(path.data())) return bad_input(fmt::format("{}: cannot make the folder: {}", path, std::strerror(errno)));
    return TemporaryFolder(path);
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() { remove(); }
  /// What is open or mapped stays so without a name. Another try follows at the end: not every file system can.
  void remove() const {
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

  Status plan() {
    TRY_ASSIGN(tasks_, plan_tensors(files_, config_, options_));
    TRY(make_groups());
    return check_room();  // measuring takes long: what cannot be is told before
  }

  /// The best format of every group, where there is room for them all: what measuring would find, too.
  std::optional<ChosenFormats> without_measuring() {
    uint64_t most = fixed_bytes_;
    for (const Group& group : groups_) most += group.options.back().bytes;
    if (most > request_.target_bytes) return std::nullopt;
    ChosenFormats chosen{.basis = ChoiceBasis::room, .bytes = fixed_bytes_};
    for (Group& group : groups_) add_choice(group, group.options.back(), chosen);
    chosen.overrides = overrides_of(chosen.choices);
    return chosen;
  }

  /// `beside`: what the name of the folder for working files begins with.
  Result<ChosenFormats> measure(const std::string& beside) {
    // Each layer for itself and for every trial before it; then what each trial makes of the head.
    all_steps_ = static_cast<uint64_t>(config_.layers) + 2 * groups_.size();
    const int64_t held_out = (request_.probe_tokens + options_.length - 1) / options_.length;
    TRY_ASSIGN(tokens_, calibration_sequences({.source = source_,
                                               .config = config_,
                                               .text = {.text = options_.calibration_text, .special = options_.calibration_special},
                                               .samples = options_.samples + held_out,
                                               .length = options_.length}));
    take_probe(held_out);
    TRY_ASSIGN(const TemporaryFolder folder, TemporaryFolder::make(beside));
    TRY(walk(folder));
    return choose();
  }

 private:
  Status step() {
    if (!request_.progress || request_.progress(++done_steps_, all_steps_)) return {};
    return Error{ErrorKind::cancelled, "stopped by a signal"};
  }

  bool is_pinned(const TensorTask& task) const {
    return std::ranges::any_of(options_.overrides, [&](const FormatOverride& override) {
      return matches(override.pattern, task.tensor->weight.name);
    });
  }

  /// Tensors that share an input; v apart from q and k, since it needs more bits than they do.
  Status make_groups() {
    static constexpr std::string_view kNames[] = {"q, k, v", "attention output", "gate, up", "down"};
    const int64_t keys_end = int64_t{config_.heads + config_.kv_heads} * config_.head_dim;
    std::map<std::tuple<int32_t, int, bool>, size_t> of;
    for (const TensorTask& task : tasks_) {
      const int input = task.place.input();
      const HostWeight& weight = task.tensor->weight;
      if ((input < 0 && task.place.part != TensorPart::table) || is_pinned(task)) {
        fixed_bytes_ += is_pinned(task) ? planned_bytes(task) : weight.stored_bytes();  // nothing is chosen for it
        continue;
      }
      const bool qkv = task.place.part == TensorPart::qkv, values = qkv && task.place.first_row >= keys_end;
      const bool keys = qkv && !values && task.place.first_row + weight.n <= keys_end;
      const auto key = std::tuple(input < 0 ? -1 - static_cast<int32_t>(groups_.size()) : task.place.layer, input, values);
      const auto [at, is_new] = of.emplace(key, groups_.size());
      if (is_new) {
        Group group;
        group.choice.name = input < 0 ? std::string(weight.name)
                                      : fmt::format("layer {}: {}", task.place.layer,
                                                    values ? "v" : keys ? "q, k" : kNames[input]);
        groups_.push_back(std::move(group));
      }
      groups_[at->second].tasks.push_back(&task);
      groups_[at->second].choice.tensors.emplace_back(weight.name);
    }
    for (Group& group : groups_) TRY(list_options(group));
    return {};
  }

  /// The formats that fit the group's rows, by bits, and what they take; last, the tensors as they are, which lose nothing.
  static Status list_options(Group& group) {
    uint64_t weights = 0;
    FormatOption as_they_are;
    bool in_order = true;
    for (const TensorTask* task : group.tasks) {
      const HostWeight& weight = task->tensor->weight;
      weights += static_cast<uint64_t>(weight.n * weight.k);
      as_they_are.bytes += weight.stored_bytes();
      QuantizedMatrix made;
      TRY_ASSIGN(const HostWeight row, made_of(weight.slice_rows(0, 1), made));
      in_order = in_order && row.in_perm.empty();  // act-order: nothing writes such tensors as they are
    }
    for (const WeightFormat format : candidate_formats(group.tasks.front()->tensor->weight.k))
      group.options.push_back({.format = format, .changed = true, .bytes = format_bytes_of(format, weights)});
    if (in_order || group.options.empty()) group.options.push_back(as_they_are);
    return {};
  }

  Status check_room() const {
    uint64_t least = fixed_bytes_;
    for (const Group& group : groups_) least += std::ranges::min(group.options, {}, &FormatOption::bytes).bytes;
    if (least <= request_.target_bytes) return {};
    return bad_input(fmt::format("target: found {} ({} bytes), allowed are {} ({} bytes) and more (what the smallest formats of {} take)",
                                 format_bytes(request_.target_bytes), request_.target_bytes, format_bytes(least), least, source_));
  }

  /// The last sequences, which GPTQ then does not see: what it learns of its own text by heart would look like quality. Where
  /// the text is too short for more than was asked for, the first ones, which it sees.
  void take_probe(int64_t held_out) {
    const bool enough = static_cast<int64_t>(tokens_.size()) == options_.samples + held_out;
    const auto from = enough ? tokens_.end() - held_out : tokens_.begin();
    int64_t left = request_.probe_tokens;
    for (auto sequence = from; sequence != tokens_.end() && left > 0; ++sequence) {
      const auto count = std::min<int64_t>(left, static_cast<int64_t>(sequence->size()));
      left -= count;
      probe_rows_ += count;
      probe_.emplace_back(sequence->begin(), sequence->begin() + static_cast<std::ptrdiff_t>(count));
    }
    if (enough) tokens_.erase(from, tokens_.end());
  }

  /// Rows between layers and logits are on the disk: whatever --probe-tokens asks for, memory does not bound them.
  Status check_disk(const std::string& folder, int64_t tokens) const {
    const auto bytes = [](int64_t rows, int64_t width) { return static_cast<uint64_t>(rows * width) * sizeof(float); };
    const uint64_t trials = bytes(static_cast<int64_t>(groups_.size() + 1) * probe_rows_, config_.hidden);
    const uint64_t states = 2 * bytes(tokens, config_.hidden), logits = bytes(probe_rows_, config_.vocabulary);
    return check_disk_space(folder, trials + states + logits,
                            fmt::format("{} for rows of {} trials of {} --probe-tokens, {} for logits, {} for rows of {} calibration tokens",
                                        format_bytes(trials), groups_.size(), probe_rows_, format_bytes(logits), format_bytes(states), tokens));
  }

  /// Rows [count, width] of f32 in a file of their own.
  static Result<HiddenStates> open_rows(const std::string& folder, int64_t count, int64_t width) {
    std::error_code error;
    fs::create_directory(folder, error);
    if (error) return io_error(fmt::format("{}: {}", folder, error.message()));
    return HiddenStates::open(folder, {.tokens = count, .hidden = width, .files = 1});
  }

  /// Rows behind the layers so far, [groups + 1, probe rows, hidden]: of group i the model with that group's probe alone, last
  /// the source.
  float* trial(size_t group) {
    return trials_->row_in(static_cast<int64_t>(group) * probe_rows_);
  }

  /// Layer after layer: its inputs' Hessians, all trials before it, then its own, then the source's rows, on which those begin.
  /// One layer's weights are in memory.
  Status walk(const TemporaryFolder& folder) {
    int64_t tokens = 0;
    for (const auto& sequence : tokens_) tokens += static_cast<int64_t>(sequence.size());
    TRY(check_disk(folder.path(), tokens));
    // What is chosen takes nearly all that it may: told now and not behind hours of measuring.
    TRY(check_disk_space(folder.path(), request_.target_bytes / 20 * 19, fmt::format("weights of nearly {}", format_bytes(request_.target_bytes))));
    TRY_ASSIGN(HiddenStates states, HiddenStates::open(folder.path(), {.tokens = tokens, .hidden = config_.hidden}));
    TRY_ASSIGN(HiddenStates trials,
               open_rows(folder.path() + "/trials", static_cast<int64_t>(groups_.size() + 1) * probe_rows_, config_.hidden));
    TRY_ASSIGN(HiddenStates base, open_rows(folder.path() + "/logits", probe_rows_, config_.vocabulary));
    trials_.emplace(std::move(trials));
    base_.emplace(std::move(base));
    folder.remove();  // whatever ends the process, gigabytes of nothing to go on with do not stay
    TRY_ASSIGN(calibration_, LayerCalibration::make({.files = files_,
                                                     .config = config_,
                                                     .backend = backend_,
                                                     .tokens = tokens_,
                                                     .threads = options_.threads},
                                                    std::move(states), 0));
    TRY(calibration_->embed(probe_, base_rows()));
    std::optional<QuantizedMatrix> table, head;  // probes
    size_t begun = 0;                            // groups whose trial has rows
    for (; begun < groups_.size() && groups_[begun].tasks.front()->place.layer < 0; ++begun) {
      TRY(measure(groups_[begun], nullptr));
      table = take_probe_of(groups_[begun]);
      if (table) embed_rows(table->view(""), probe_, config_.embedding_scale, trial(begun));
      TRY(step());
    }
    const size_t embedding = begun == 0 || !table ? groups_.size() : begun - 1;
    if (!config_.tied_embeddings) table.reset();
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      TRY(calibration_->load(layer));
      TRY_ASSIGN(LayerStatistics seen, calibration_->pass({.inputs = {true, true, true, true}, .hessians = true, .advance = true}));
      TRY(check_statistics(source_, layer, seen));
      TRY(step());
      for (size_t i = 0; i < begun; ++i)
        if (has_trial(i)) TRY(calibration_->through(probe_, trial(i)));
      std::optional<GptqInputs> inputs;
      int inputs_of = -1;
      for (; begun < groups_.size() && groups_[begun].tasks.front()->place.layer == layer; ++begun) {
        const int input = groups_[begun].tasks.front()->place.input();
        if (input != std::exchange(inputs_of, input)) {
          TRY_ASSIGN(inputs, take_inputs(groups_[begun], seen[static_cast<size_t>(input)]));
        }
        TRY(measure(groups_[begun], &*inputs));
        TRY(try_group(begun));
        TRY(step());
      }
      TRY(calibration_->through(probe_, base_rows()));
    }
    for (; begun < groups_.size(); ++begun) {  // a head of its own
      TRY(measure(groups_[begun], nullptr));
      head = take_probe_of(groups_[begun]);
      if (head) std::copy_n(base_rows(), probe_rows_ * config_.hidden, trial(begun));
      TRY(step());
    }
    return read_out(embedding, table ? &*table : nullptr, head ? &*head : nullptr);
  }

  /// Factors the Hessian, as compressing will.
  Result<GptqInputs> take_inputs(const Group& group, InputStatistics& of) const {
    return prepare_gptq(group.choice.tensors.front(), of.k, std::exchange(of.hessian, {}),
                        {.damping = options_.damping, .act_order = options_.act_order}, options_.threads);
  }

  float* base_rows() { return trial(groups_.size()); }

  bool has_trial(size_t group) const { return groups_[group].tried; }

  /// KL of each trial. Where the embedding is the head too, its trial ends in it.
  Status read_out(size_t embedding, const QuantizedMatrix* table, const QuantizedMatrix* head) {
    double checked = 0;  // NaN or infinite where any is
    TRY(calibration_->read_out(probe_, base_rows(), nullptr, [&](const float* logits) {
      std::copy_n(logits, config_.vocabulary, base_->row_in(static_cast<int64_t>(base_log_sum_.size())));
      base_log_sum_.push_back(log_sum(logits, config_.vocabulary));
      checked += base_log_sum_.back();
    }));
    if (!std::isfinite(checked))
      return bad_input(fmt::format("{}: its logits on the calibration text are NaN or infinite, allowed are finite ones", source_));
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
          const float* base = base_->row_in(static_cast<int64_t>(row));
          const double total = log_sum(logits, config_.vocabulary), base_total = base_log_sum_[row++];
          for (int32_t v = 0; v < config_.vocabulary; ++v) {
            const double log_p = base[v] - base_total;
            sum += std::exp(log_p) * (log_p - (logits[v] - total));
          }
        }));
        if (!std::isfinite(sum))
          return bad_input(fmt::format("{}: its logits are NaN or infinite with {} in {}, allowed are finite ones; --tensor-format can "
                                       "leave those tensors out of the choice",
                                       source_, group.choice.name, format_info(group.choice.probe).name));
        group.choice.probe_kl = std::max(0.0, sum / static_cast<double>(std::max<size_t>(row, 1)));
      }
      TRY(step());
    }
    return {};
  }

  /// The error of each format of the group's tensors over the probe's, which stands in the place of the loss until choose()
  /// knows what the probe loses. Keeps the probe. `inputs` is null of embedding and head.
  Status measure(Group& group, const GptqInputs* inputs) {
    std::vector<WeightFormat> formats;
    for (const FormatOption& option : group.options)
      if (option.changed) formats.push_back(option.format);
    double probe_error = 0;
    for (const TensorTask* task : group.tasks) {
      const HostWeight& weight = task->tensor->weight;
      const auto probe = fit_group(inputs ? kProbe : kTableProbe, weight.k);
      if (!probe) continue;
      group.choice.probe = *weight_format_of(*probe);
      TRY(make_probe(weight, *probe, inputs, group.probes[std::string(weight.name)]));
      const KnownInputs known{.moments = inputs ? std::span<const float>(inputs->moments) : std::span<const float>(), .gptq = inputs};
      TRY_ASSIGN(const std::vector<double> errors, format_errors(weight, formats, *probe, known, options_.threads));
      for (size_t i = 0; i < formats.size(); ++i) {
        group.options[i].kl += errors[i];
        if (formats[i] == group.choice.probe) probe_error += errors[i];
      }
      drop_pages(weight.bytes);
    }
    for (FormatOption& option : group.options) option.kl = probe_error > 0 ? option.kl / probe_error : 0;
    return {};
  }

  Status make_probe(const HostWeight& weight, const IntegerFormat& probe, const GptqInputs* inputs, QuantizedMatrix& made) {
    const int64_t rows_at_once = std::max<int64_t>(1, options_.weights_at_once / weight.k);
    for (int64_t first = 0; first < weight.n; first += rows_at_once) {
      const int64_t count = std::min(rows_at_once, weight.n - first);
      QuantizedMatrix source;
      TRY_ASSIGN(const HostWeight part, made_of(count == weight.n ? weight : weight.slice_rows(first, count), source));
      TRY(check_side_data(part));
      std::vector<float> values(static_cast<size_t>(count * weight.k));
      parallel_for(count, options_.threads, [&](int64_t row) { decode_row(part, row, values.data() + row * weight.k); });
      const MatrixToQuantize matrix{.name = weight.name,
                                    .n = count,
                                    .k = weight.k,
                                    .weights = values.data(),
                                    .threads = options_.threads,
                                    .first_row = first};
      TRY(check_weights(matrix));
      append_rows(made, inputs ? quantize_gptq(matrix, probe, *inputs, 0) : quantize_outlier(matrix, probe, {.share = 0}));
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

  /// The loaded layer with the group's probe, on what entered it in the source.
  Status try_group(size_t index) {
    Group& group = groups_[index];
    if (group.probes.empty()) return {};
    const int input = group.tasks.front()->place.input();
    std::map<std::string, HostWeight, std::less<>> views;
    for (const auto& [name, made] : group.probes) views.emplace(name, made.view(name));
    TRY(calibration_->replace(input, views));
    std::copy_n(base_rows(), probe_rows_ * config_.hidden, trial(index));
    TRY(calibration_->through(probe_, trial(index)));
    group.probes.clear();
    group.tried = true;
    return calibration_->restore(input);
  }

  /// Losses of all formats are in proportion to what was measured.
  Result<ChosenFormats> choose() {
    for (Group& group : groups_) {
      for (FormatOption& option : group.options) option.kl *= group.choice.probe_kl;
      keep_hull(group.options);
    }
    std::vector<std::vector<FormatOption>> options;
    for (Group& group : groups_) options.push_back(std::move(group.options));
    const std::vector<size_t> chosen_at = spend_bytes(options, request_.target_bytes - fixed_bytes_);
    ChosenFormats chosen{.bytes = fixed_bytes_};
    for (size_t i = 0; i < groups_.size(); ++i) {
      const FormatOption& option = options[i][chosen_at[i]];
      add_choice(groups_[i], option, chosen);
      chosen.choices.back().expected_kl = option.kl;
      chosen.expected_kl += option.kl;
    }
    chosen.overrides = overrides_of(chosen.choices);
    return chosen;
  }

  static void add_choice(Group& group, const FormatOption& option, ChosenFormats& chosen) {
    FormatChoice& choice = group.choice;
    choice.changed = option.changed;
    choice.format = option.changed ? option.format : group.tasks.front()->tensor->weight.format;
    choice.bytes = option.bytes;
    chosen.bytes += option.bytes;
    chosen.choices.push_back(std::move(choice));
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
  std::optional<HiddenStates> trials_, base_;  ///< base_: no states, but logits of the source, [probe rows, vocabulary]
  std::unique_ptr<LayerCalibration> calibration_;
  std::vector<double> base_log_sum_;
  uint64_t fixed_bytes_ = 0, done_steps_ = 0, all_steps_ = 0;
};

}  // namespace

Result<ChosenFormats> choose_formats(const std::string& source, const std::string& destination, Backend& backend,
                                     const QuantizeOptions& options, const ChooseRequest& request) {
  TRY_ASSIGN(const ModelFiles files, ModelFiles::open(source));
  TRY_ASSIGN(const ModelConfig config, read_config(files, 0));
  Chooser chooser(source, files, config, backend, options, request);
  TRY(chooser.plan());
  if (auto chosen = chooser.without_measuring()) return std::move(*chosen);
  auto identity = identity_of(files, backend, options);
  identity["target"] = fmt::format("{} bytes", request.target_bytes);
  identity["number of probe tokens"] = fmt::format("{}", request.probe_tokens);
  TRY_ASSIGN(WorkFolder folder, WorkFolder::open(destination, identity, options.restart, WorkStage::choice));
  if (!folder.loaded().is_null()) return saved_choice(folder.loaded());
  TRY_ASSIGN(ChosenFormats chosen, chooser.measure(folder.path()));
  TRY(folder.save(to_json(chosen)));
  folder.keep();
  return chosen;
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
