// Walks the layers of a model, compresses their weights, and writes them as they come.
#include "compress/quantize_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/parallel.h"
#include "base/units.h"
#include "compress/encode_matrix.h"
#include "compress/exchange_sink.h"
#include "compress/layer_calibration.h"
#include "compress/layer_fold.h"
#include "compress/model_sink.h"
#include "compress/outlier_shares.h"
#include "compress/quantize_identity.h"
#include "compress/sample_rows.h"
#include "compress/tensor_plan.h"
#include "compress/weight_plot.h"
#include "compress/write_queue.h"
#include "model/config_reader.h"
#include "model/gguf_view.h"
#include "quant/encode.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

/// Of a heavy-tailed input that is present in one token of a hundred, this leaves some forty.
constexpr int64_t kFewTokens = 4096;

bool is_dense(WeightFormat format) { return format <= WeightFormat::bf16; }

Json to_json(const TensorReport& t) {
  return {t.name, static_cast<int>(t.format), t.changed, t.weights, t.bytes, t.outliers, t.error, t.note};
}

TensorReport report_of(const Json& saved) {
  return {.name = saved[0].get<std::string>(),
          .format = static_cast<WeightFormat>(saved[1].get<int>()),
          .changed = saved[2].get<bool>(),
          .weights = saved[3].get<int64_t>(),
          .bytes = saved[4].get<uint64_t>(),
          .outliers = saved[5].get<int64_t>(),
          .error = saved[6].get<double>(),
          .note = saved[7].get<std::string>()};
}

class Quantizer {
 public:
  Quantizer(const ModelFiles& files, const ModelConfig& config, const std::string& source, Backend& backend,
            const QuantizeOptions& options, const QuantizeHooks& hooks)
      : files_(files), config_(config), source_(source), backend_(backend), options_(options), hooks_(hooks) {}

  Result<QuantizeReport> run(const std::string& destination) {
    TRY_ASSIGN(tasks_, plan_tensors(files_, config_, options_));
    for (TensorTask& task : tasks_) {
      // A norm that scales are folded into would lose them to the roundings of 16 bits.
      const bool norm = task.place.part == TensorPart::attn_norm || task.place.part == TensorPart::mlp_norm;
      if (options_.method == QuantizeMethod::awq && norm) task.format = WeightFormat::f32;
      planned_.push_back({task.tensor, task.format});
      all_bytes_ += task.tensor->weight.stored_bytes();
    }
    if (options_.layout != FolderLayout::quintet) TRY(check_exchange(files_, tasks_, options_));
    if (options_.importance && std::ranges::all_of(*options_.importance, [](const auto& weight) {
          return std::ranges::all_of(weight.second, [](float moment) { return moment == 0; });
        }))
      return bad_input("importance matrix: found zeros alone, allowed is a matrix of mean squares that are not all zero");
    for (const TensorTask& task : tasks_)
      if (options_.importance && task.changed && task.place.input() >= 0) TRY(check_importance(task));
    if (options_.is_gptq()) TRY(find_solver());
    Json identity = identity_of(files_, backend_, options_);
    if (solver_) identity["Hessians and rounding"] = "on the device";
    TRY_ASSIGN(WorkFolder folder, WorkFolder::open(destination, identity, options_.restart));
    folder_ = &folder;
    const WriteQueue::Drained drained(writes_);  // what is written uses the folder, however this ends
    Status status = work();
    const Status written = writes_.drain();
    if (status) status = written;
    sink_.reset();
    folder_ = nullptr;
    if (!status) {
      const ErrorKind kind = status.error().kind;
      if (saved_ && kind != ErrorKind::bad_input) folder.keep();
      return status.error();
    }
    report_.source_bytes = files_.file_bytes();
    return std::move(report_);
  }

 private:
  void warn(const std::string& message) const {
    if (hooks_.on_warning) hooks_.on_warning(message);
  }

  /// A backend that cannot have one here leaves GPTQ to the CPU.
  Status find_solver() {
    auto solver = backend_.make_weight_solver();
    if (solver) {
      solver_ = std::move(solver).value();
      return {};
    }
    if (solver.error().kind != ErrorKind::not_found) return solver.error();
    warn(fmt::format("{}: {}", backend_.info().name, solver.error().message));
    return {};
  }

  bool goes_on() const { return !hooks_.progress || hooks_.progress(done_bytes_, all_bytes_); }

  Status work() {
    const Json& loaded = folder_->loaded();
    const SinkPlan plan{files_, planned_, options_.mix ? options_.mix->file_type : 0};
    const Json checkpoint = loaded.is_null() ? Json() : loaded.at("sink");
    TRY_ASSIGN(sink_, options_.method == QuantizeMethod::gguf ? make_gguf_sink(*folder_, plan, checkpoint)
                                : options_.layout != FolderLayout::quintet
                                    ? make_exchange_sink(*folder_, plan, checkpoint, options_)
                                    : make_folder_sink(*folder_, plan, checkpoint));
    size_t first = 0;
    int entering = 0;
    if (!loaded.is_null()) {
      first = loaded.at("tensors").get<size_t>();
      entering = loaded.at("entering").get<int>();
      saved_ = true;
      // Work of a version before there were any has none.
      const Json shares = loaded.value("shares", Json::object());
      for (const auto& [name, share] : shares.items()) shares_[name] = share.get<double>();
      for (const Json& saved : loaded.at("report")) note_done(report_of(saved));
      for (size_t i = 0; i < first; ++i) done_bytes_ += tasks_[i].tensor->weight.stored_bytes();
      warn(fmt::format("{}: going on behind {} of {} tensors", folder_->path(), first, tasks_.size()));
    } else {
      warn_of_source();
      if (options_.auto_shares) TRY(choose_shares());
    }
    if (calibrates()) TRY(start_calibration(first, entering));
    for (size_t begin = first; begin < tasks_.size();) {
      size_t end = begin + 1;
      while (end < tasks_.size() && tasks_[end].place.layer == tasks_[begin].place.layer &&
             tasks_[begin].place.layer >= 0)
        ++end;
      TRY(write_unit(begin, end));
      begin = end;
      if (std::none_of(tasks_.begin() + static_cast<std::ptrdiff_t>(begin), tasks_.end(),
                       [](const TensorTask& task) { return task.place.layer >= 0; }))
        calibration_.reset();
      if (begin < tasks_.size()) TRY(save(begin));
    }
    calibration_.reset();
    if (!options_.save_importance.empty()) TRY(write_moments());
    TRY(writes_.drain());
    return sink_->finish(describe(options_), [this] { return goes_on(); });
  }

  /// Once what waits to be written is, every tensor before `tensors` is on the disk, and so is what the next layer's inputs are
  /// made of.
  Status save(size_t tensors) {
    if (calibration_) {
      if (!calibration_->is_saved_or_due()) return {};
      TRY(calibration_->save());
    }
    Json report = Json::array();
    for (const TensorReport& tensor : report_.tensors) report.push_back(to_json(tensor));
    Json state = {{"tensors", tensors},
                  {"entering", calibration_ ? calibration_->entering() : 0},
                  {"sink", nullptr},
                  {"shares", shares_},
                  {"report", std::move(report)}};
    return writes_.push([this, state = std::move(state)]() mutable -> Status {
      TRY_ASSIGN(state["sink"], sink_->checkpoint());
      TRY(folder_->save(state));
      saved_ = true;
      return {};
    });
  }

  void warn_of_source() const {
    for (const TensorTask& task : tasks_)
      if (task.place.input() >= 0 && !is_dense(task.tensor->weight.format))
        return warn(fmt::format("{}: {} is compressed already ({}): its errors stay, and new ones are added", source_,
                                task.tensor->weight.name, format_info(task.tensor->weight.format).name));
  }

  // --- calibration ---

  /// GPTQ that has nothing to round asks for nothing.
  bool calibrates() const {
    return options_.needs_calibration() && (!options_.is_gptq() || std::ranges::any_of(tasks_, [](const TensorTask& task) {
                                              return task.changed && task.place.input() >= 0;
                                            }));
  }

  Status start_calibration(size_t first_task, int entering) {
    TRY_ASSIGN(tokens_, calibration_sequences({.source = source_,
                                               .config = config_,
                                               .text = {.text = options_.calibration_text, .special = options_.calibration_special},
                                               .samples = options_.samples,
                                               .length = options_.length}));
    const auto tokens = static_cast<int64_t>(tokens_.size()) * options_.length;
    if (!std::exchange(calibration_warned_, true)) warn_of_calibration(tokens);
    // The first layer that is still to come: the embedding stands before the layers, output norm and head behind.
    int32_t next = config_.layers;
    for (size_t i = first_task; i < tasks_.size() && next == config_.layers; ++i)
      if (tasks_[i].place.layer >= 0) next = tasks_[i].place.layer;
    if (next == config_.layers) return {};
    TRY_ASSIGN(HiddenStates states, open_states({.tokens = tokens, .hidden = config_.hidden, .entering = entering}, next > 0));
    const uint64_t free_bytes = backend_.info().free_bytes, others = needs_beside_states();
    const uint64_t kept_bytes = states.on_backend() && free_bytes > others ? free_bytes - others : 0;
    TRY_ASSIGN(calibration_, LayerCalibration::make({.files = files_,
                                                     .config = config_,
                                                     .backend = backend_,
                                                     .tokens = tokens_,
                                                     .threads = options_.threads,
                                                     .solver = solver_.get(),
                                                     .goes_on = [this] { return goes_on(); },
                                                     .kept_bytes = kept_bytes},
                                                    std::move(states), next));
    return {};
  }

  /// Of a device's memory: a layer, what solves for its weights (backend/weight_solver.h), and a step's workspace.
  uint64_t needs_beside_states() const {
    constexpr uint64_t kWorkspaceBytes = uint64_t{2} << 30;  // a step of 2048 tokens of a 70B model takes 1.2 GB
    std::map<int32_t, uint64_t> layers;
    uint64_t largest = 0, widest = 0, most = 0;
    for (const TensorTask& task : tasks_) {
      if (task.place.layer < 0) continue;
      const auto k = static_cast<uint64_t>(task.tensor->weight.k), weights = static_cast<uint64_t>(task.tensor->weight.n) * k;
      most = std::max(most, layers[task.place.layer] += weights);
      if (task.place.input() >= 0) largest = std::max(largest, weights), widest = std::max(widest, k);
    }
    return kWorkspaceBytes + 5 * most / 2 + (solver_ ? 8 * widest * widest + 10 * largest : 0);
  }

  /// A device has them in its own memory where there is room: on their way to and from the host's, and from there to the disk,
  /// they would take ten times as long as the layers.
  Result<HiddenStates> open_states(const HiddenStates::Shape& shape, bool saved) const {
    const BackendInfo info = backend_.info();
    if (info.asynchronous && static_cast<uint64_t>(shape.tokens * shape.hidden) * sizeof(float) + needs_beside_states() < info.free_bytes) {
      auto kept = HiddenStates::keep(folder_->path(), shape, backend_, saved);
      if (kept || kept.error().kind != ErrorKind::no_room) return kept;
    }
    return HiddenStates::open(folder_->path(), shape);
  }

  void warn_of_calibration(int64_t tokens) const {
    if (static_cast<int64_t>(tokens_.size()) < options_.samples)
      warn(fmt::format("calibration text: found {} stretches of {} tokens, asked for were {}", tokens_.size(),
                       options_.length, options_.samples));
    const int64_t widest = std::max({config_.hidden, config_.ffn, config_.heads * config_.head_dim});
    if (options_.is_gptq() && tokens < widest)
      warn(fmt::format("calibration text: {} tokens are fewer than the {} inputs of the widest layer; the Hessian has "
                       "no full rank",
                       tokens, widest));
    else if (tokens < kFewTokens)
      warn(fmt::format("calibration text: {} tokens are few; second moments settle with {} and more", tokens, kFewTokens));
  }

  // --- shares of outliers ---

  double share_of(const TensorTask& task) const {
    if (!options_.has_outliers()) return 0;
    if (const auto at = shares_.find(task.tensor->weight.name); at != shares_.end()) return at->second;
    return task.place.input() < 0                        ? options_.shares.head
           : task.place.layer < (config_.layers + 7) / 8 ? options_.shares.first
                                                         : options_.shares.middle;
  }

  /// One walk over the model before the one that compresses: its moments, and what outliers save of each tensor's error.
  Status choose_shares() {
    if (options_.needs_calibration()) TRY(start_calibration(0, 0));
    if (std::max({options_.shares.first, options_.shares.middle, options_.shares.head}) > ShareChooser::kMostShare)
      warn(fmt::format("--outliers auto: no tensor gets more than {:g} % outliers, so that they may be fewer than asked for",
                       100 * ShareChooser::kMostShare));
    all_bytes_ *= 2;  // both walks
    ShareChooser chooser(options_.select);
    double room = 0;
    int32_t layer = -1;
    statistics_.assign(kLayerInputs, {});
    for (const TensorTask& task : tasks_) {
      if (task.place.layer >= 0 && task.place.layer != layer && calibration_) {
        layer = task.place.layer;
        TRY(calibration_->load(layer));
        TRY_ASSIGN(statistics_, calibration_->pass({.inputs = {true, true, true, true}, .advance = true}));
        TRY(check_statistics(source_, layer, statistics_));
      }
      done_bytes_ += task.tensor->weight.stored_bytes();
      if (!task.integers || !task.changed) continue;
      room += 4 * share_of(task) * static_cast<double>(task.tensor->weight.n * task.tensor->weight.k);
      TRY(measure_shares(task, chooser));
      if (!goes_on()) return Error{ErrorKind::cancelled, "stopped by a signal"};
    }
    calibration_.reset();
    shares_ = chooser.choose(static_cast<uint64_t>(room));
    return save(0);
  }

  Status measure_shares(const TensorTask& task, ShareChooser& chooser) const {
    constexpr int64_t kRows = 128;
    const HostWeight& weight = task.tensor->weight;
    const int64_t rows = std::min(weight.n, kRows);
    TRY_ASSIGN(const std::vector<float> values, sample_rows(weight, rows));
    drop_pages(weight.bytes);
    MatrixToQuantize matrix{.name = weight.name, .n = rows, .k = weight.k, .weights = values.data(),
                            .threads = options_.threads};
    TRY(check_weights(matrix));
    std::vector<float> moments;
    TRY_ASSIGN(moments, moments_of(task));
    matrix.moments = moments;
    chooser.measure(matrix, weight.n, *task.integers);
    return {};
  }

  // --- second moments ---

  /// Of a task's inputs; empty where nothing is known of them.
  Result<std::vector<float>> moments_of(const TensorTask& task) const {
    if (task.place.input() < 0) return std::vector<float>();
    if (!options_.importance)
      return fold_.moments(task.place.input(), statistics_[static_cast<size_t>(task.place.input())].moments);
    const HostWeight& weight = task.tensor->weight;
    const auto at = options_.importance->find(gguf_name(weight.name));
    if (at == options_.importance->end())
      return bad_input(fmt::format("importance matrix: found no weight {}, allowed is a matrix of all linear layers",
                                   gguf_name(weight.name)));
    if (static_cast<int64_t>(at->second.size()) != weight.k)
      return bad_input(fmt::format("importance matrix: {}: found {} inputs, allowed are {}, the weight's", at->first,
                                   at->second.size(), weight.k));
    if (std::ranges::all_of(at->second, [](float moment) { return moment == 0; })) return std::vector<float>();
    return at->second;
  }

  /// A matrix that says nothing of a weight is no reason to stop: other weights have their say. But nobody should take the
  /// result for one that it shaped.
  Status check_importance(const TensorTask& task) const {
    TRY_ASSIGN(const std::vector<float> moments, moments_of(task));
    if (moments.empty())
      warn(fmt::format("importance matrix: {}: found zeros alone: its inputs all count the same", gguf_name(task.tensor->weight.name)));
    return {};
  }

  std::string gguf_name(std::string_view name) const {
    return files_.kind() == ModelFiles::Kind::gguf ? std::string(name) : gguf_name_of(name, config_.post_norms);
  }

  std::string moments_name(int32_t layer) const { return fmt::format("moments-{}.gguf", layer); }

  /// A layer's moments stay in the work folder, as its compressed weights do, whatever ends the process.
  Status keep_moments(int32_t layer, size_t begin, size_t end) const {
    ImportanceMatrix matrix;
    for (size_t i = begin; i < end; ++i)
      if (const int input = tasks_[i].place.input(); input >= 0)
        matrix[gguf_name(tasks_[i].tensor->weight.name)] = statistics_[static_cast<size_t>(input)].moments;
    return write_importance(folder_->file(moments_name(layer)), matrix, importance_origin());
  }

  Status write_moments() const {
    ImportanceMatrix all;
    for (int32_t layer = 0; layer < config_.layers; ++layer) {
      TRY_ASSIGN(ImportanceMatrix one, read_importance(folder_->file(moments_name(layer))));
      all.merge(one);
    }
    return write_importance(options_.save_importance, all, importance_origin());
  }

  ImportanceOrigin importance_origin() const {
    return {.text = options_.calibration_origin, .samples = static_cast<int64_t>(tokens_.size()), .length = options_.length};
  }

  // --- layers ---

  Status write_unit(size_t begin, size_t end) {
    const int32_t layer = tasks_[begin].place.layer;
    made_.clear();
    fold_ = {};
    statistics_.assign(kLayerInputs, {});
    if (layer >= 0 && calibration_) {
      TRY(calibration_->load(layer));
      TRY(options_.is_gptq() ? calibrate_and_quantize(layer, begin, end) : observe(layer, begin, end));
    }
    for (size_t i = begin; i < end; ++i) {
      if (i + 1 < tasks_.size()) read_ahead(tasks_[i + 1].tensor->weight.bytes);
      TRY(write_tensor(i));
    }
    return {};
  }

  /// All inputs in one pass of the layer as the source has it.
  Status observe(int32_t layer, size_t begin, size_t end) {
    TRY(writes_.drain());  // the states that the layer before left take the place of those that the last saved work needs
    TRY_ASSIGN(statistics_, calibration_->pass({.inputs = {true, true, true, true}, .advance = true}));
    TRY(check_statistics(source_, layer, statistics_));
    if (!options_.save_importance.empty()) TRY(keep_moments(layer, begin, end));
    if (options_.method != QuantizeMethod::awq) return {};
    std::vector<const TensorTask*> tasks;
    for (size_t i = begin; i < end; ++i) tasks.push_back(&tasks_[i]);
    TRY_ASSIGN(fold_, search_fold(tasks, config_, statistics_, options_.threads));
    return {};
  }

  /// GPTQ: input after input, each as the weights before it, compressed already, leave it; at the end the layer's output.
  Status calibrate_and_quantize(int32_t layer, size_t begin, size_t end) {
    for (int input = 0; input < kLayerInputs; ++input) {
      PassRequest request{.hessians = true, .sequential = options_.true_sequential};
      request.inputs[input] = true;
      TRY_ASSIGN(statistics_, calibration_->pass(request));
      TRY(check_statistics(source_, layer, statistics_));
      on_device_ = solver_ ? OnDevice::hessian : OnDevice::nothing;
      for (size_t i = begin; i < end; ++i)
        if (tasks_[i].place.input() == input && tasks_[i].changed) TRY(quantize(i));
      gptq_.reset();
      on_device_ = OnDevice::nothing;
      if (options_.true_sequential) TRY(replace(input));
    }
    for (int input = 0; input < kLayerInputs && !options_.true_sequential; ++input) TRY(replace(input));
    if (layer + 1 == config_.layers) return {};
    TRY(writes_.drain());  // as in observe()
    TRY_ASSIGN(statistics_, calibration_->pass({.advance = true, .sequential = options_.true_sequential}));
    return {};
  }

  Status replace(int input) {
    const int64_t begin_us = now_us();
    std::map<std::string, HostWeight, std::less<>> views;
    for (const auto& [index, made] : made_)
      if (tasks_[index].place.input() == input) {
        const std::string_view name = tasks_[index].tensor->weight.name;
        views.emplace(name, made.matrix.view(name));
      }
    if (!views.empty()) TRY(calibration_->replace(input, views));
    LOG_DEBUG("input {}: rounded weights in place in {:.3f} s", input, static_cast<double>(now_us() - begin_us) * 1e-6);
    return {};
  }

  // --- one tensor ---

  struct Made {
    QuantizedMatrix matrix;
    double error = 0;
    WeightPlot plot;
  };

  Status write_tensor(size_t index) {
    const TensorTask& task = tasks_[index];
    const HostWeight& weight = task.tensor->weight;
    TensorReport report{.name = std::string(weight.name),
                        .format = task.format,
                        .changed = task.changed,
                        .weights = weight.n * weight.k,
                        .note = task.note};
    if (!task.changed && !fold_.touches(task.place)) {
      const auto made = std::make_shared<QuantizedMatrix>();
      TRY_ASSIGN(const HostWeight whole, made_of(weight, *made));
      TRY(check_side_data(whole));
      if (!whole.in_perm.empty())
        return bad_input(fmt::format("tensor {}: found inputs in another order (act-order), allowed are tensors that are "
                                     "compressed anew or lie in order",
                                     weight.name));
      if (is_dense(whole.format)) TRY(check_finite(whole));
      TRY(writes_.push([this, index, whole, made]() -> Status {
        TRY(sink_->add(planned_[index], whole));
        drop_pages(tasks_[index].tensor->weight.bytes);  // of the file: what was made for the occasion lies elsewhere
        return {};
      }));
      report.bytes = weight.stored_bytes();
    } else {
      if (!made_.contains(index)) TRY(quantize(index));
      const auto made = std::make_shared<Made>(std::move(made_.at(index)));
      made_.erase(index);
      const HostWeight view = made->matrix.view(weight.name);
      report.bytes = view.stored_bytes();
      report.outliers = static_cast<int64_t>(made->matrix.outlier_column.size());
      report.error = made->error;
      report.plot = made->plot;
      if (!made->matrix.note.empty()) report.note += (report.note.empty() ? "" : "; ") + made->matrix.note;
      TRY(writes_.push([this, index, view, made]() -> Status {
        TRY(sink_->add(planned_[index], view));
        if (options_.is_gptq()) return {};  // its layers have no use for them, and need the room
        const std::lock_guard lock(spare_mutex_);
        spare_blocks_ = std::move(made->matrix.blocks);
        return {};
      }));
      drop_pages(weight.bytes);
    }
    done_bytes_ += weight.stored_bytes();
    if (hooks_.on_tensor) hooks_.on_tensor(report);
    note_done(std::move(report));
    return goes_on() ? Status() : Error{ErrorKind::cancelled, "stopped by a signal"};
  }

  /// A model with NaN or infinity in a tensor that stays as it is would be written and could not be loaded.
  Status check_finite(const HostWeight& weight) const {
    std::atomic<int64_t> bad = -1;
    parallel_for(weight.n, options_.threads, [&](int64_t row) {
      std::vector<float> values(static_cast<size_t>(weight.k));
      decode_row(weight, row, values.data());
      for (size_t i = 0; i < values.size(); ++i) {
        if (std::isfinite(values[i])) continue;
        int64_t none = -1;
        bad.compare_exchange_strong(none, row * weight.k + static_cast<int64_t>(i));
        return;
      }
    });
    if (bad < 0) return {};
    return bad_input(fmt::format("tensor {}: row {}, column {}: found NaN or infinity, allowed are finite numbers", weight.name,
                                 bad / weight.k, bad % weight.k));
  }

  void note_done(TensorReport report) {
    report_.bytes += report.bytes;
    report_.tensors.push_back(std::move(report));
  }

  Status quantize(size_t index) {
    const int64_t begin_us = now_us();
    const TensorTask& task = tasks_[index];
    const HostWeight& weight = task.tensor->weight;
    if (weight.k > 65536 && options_.has_outliers())
      return bad_input(
          fmt::format("tensor {}: found {} inputs, allowed with outliers are 65536", weight.name, weight.k));
    TRY_ASSIGN(const std::vector<float> moments, moments_of(task));
    if (task.place.input() >= 0) TRY(prepare_for_gptq(task));
    // A scale of the whole tensor needs all of it.
    const bool whole = options_.method == QuantizeMethod::rtn && options_.granularity == Granularity::tensor;
    const int64_t rows_at_once = whole ? weight.n : std::max<int64_t>(1, options_.weights_at_once / weight.k);
    Made made;
    OutputError error;
    for (int64_t first = 0; first < weight.n; first += rows_at_once) {
      const int64_t count = std::min(rows_at_once, weight.n - first);
      QuantizedMatrix source;
      TRY_ASSIGN(const HostWeight part,
                 made_of(count == weight.n ? weight : weight.slice_rows(first, count), source));
      TRY(check_side_data(part));
      const Stretch of{.task = task, .rows = part, .first_row = first, .moments = moments};
      OutputError of_rows;
      // A plot is of the first rows, as many as there are room for.
      TRY(rows_stand_alone(task) && !options_.plots ? quantize_by_rows(of, made, of_rows) : quantize_at_once(of, made, of_rows));
      error.lost += of_rows.lost, error.had += of_rows.had;
    }
    made.error = error.relative();
    made_.emplace(index, std::move(made));
    LOG_DEBUG("{}: rounded in {:.3f} s", weight.name, static_cast<double>(now_us() - begin_us) * 1e-6);
    return {};
  }

  /// Some rows of a tensor, or all.
  struct Stretch {
    const TensorTask& task;
    const HostWeight& rows;
    int64_t first_row;
    std::span<const float> moments;
  };

  /// As floats, scales folded in.
  void read_rows(const Stretch& part, int64_t first, int64_t count, float* values) const {
    decode_rows(part, first, count, values);
    fold_rows(part, first, count, values);
  }
  /// As floats, as the file has them: what check_weights() is to see.
  static void decode_rows(const Stretch& part, int64_t first, int64_t count, float* values) {
    for (int64_t row = 0; row < count; ++row) decode_row(part.rows, first + row, values + row * part.rows.k);
  }
  void fold_rows(const Stretch& part, int64_t first, int64_t count, float* values) const {
    TensorPlace place = part.task.place;
    place.first_row += part.first_row + first;
    fold_.apply(place, config_, count, part.rows.k, values);
  }

  Status quantize_at_once(const Stretch& part, Made& made, OutputError& error) {
    const int64_t n = part.rows.n, k = part.rows.k;
    if (values_size_ < n * k) {
      values_.reset();
      values_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(n * k));
      values_size_ = n * k;
    }
    parallel_for(n, options_.threads, [&](int64_t row) { decode_rows(part, row, 1, values_.get() + row * k); });
    const MatrixToQuantize matrix = matrix_of(part, 0, n, values_.get(), options_.threads);
    TRY(check_weights(matrix));
    fold_rows(part, 0, n, values_.get());
    TRY_ASSIGN(QuantizedMatrix rows, quantize(matrix, part.task));
    error = output_error(matrix, rows);
    if (options_.plots && part.first_row == 0) made.plot = plot_of(matrix, rows, part.task.place.layer);
    append_rows(made.matrix, std::move(rows));
    return {};
  }

  MatrixToQuantize matrix_of(const Stretch& part, int64_t first, int64_t count, const float* values, int threads) const {
    return {.name = part.rows.name,
            .n = count,
            .k = part.rows.k,
            .weights = values,
            .moments = part.moments,
            .threads = threads,
            .first_row = part.first_row + first};
  }

  /// Whether no row's codes depend on other rows, but for which weights are outliers by magnitude.
  bool rows_stand_alone(const TensorTask& task) const {
    if (!task.integers) return true;
    if (options_.method == QuantizeMethod::rtn) return options_.granularity != Granularity::tensor;
    if (task.place.input() >= 0 && (gptq_ || on_device_ == OnDevice::factor)) return false;
    return options_.select == OutlierSelect::magnitude || share_of(task) == 0;
  }

  std::vector<uint8_t> spare_blocks(size_t bytes) {
    std::vector<uint8_t> blocks;
    {
      const std::lock_guard lock(spare_mutex_);
      blocks = std::exchange(spare_blocks_, {});
    }
    if (blocks.capacity() < bytes) blocks = {};  // not copied into what is larger
    blocks.resize(bytes);
    return blocks;
  }

  /// A few rows at a time from the file to their blocks and errors, each time on one thread: what is worked on stays in the
  /// processor's caches, and nothing is as large as the tensor but its result.
  Status quantize_by_rows(const Stretch& part, Made& made, OutputError& error) {
    constexpr int64_t kWeightsAtOnce = int64_t{1} << 16, kRowsOfEncoder = 16;  // whole batches of it, whatever rows are long
    const int64_t n = part.rows.n, k = part.rows.k;
    const bool encoder = options_.method == QuantizeMethod::gguf;
    const int64_t rows_at_once = encoder ? kRowsOfEncoder : std::max<int64_t>(1, kWeightsAtOnce / k);
    const int64_t chunks = (n + rows_at_once - 1) / rows_at_once;
    LargestWeights largest;
    if (part.task.integers && options_.has_outliers() && options_.select == OutlierSelect::magnitude)
      largest = LargestWeights::find({.n = n, .k = k, .read = [&](int64_t first, int64_t count, float* out) {
                                        read_rows(part, first, count, out);
                                      }},
                                     share_of(part.task), options_.threads);
    const auto row_bytes = static_cast<size_t>(format_bytes_of(part.task.format, static_cast<uint64_t>(k)));
    QuantizedMatrix all{.format = part.task.format, .n = n, .k = k};
    all.blocks = spare_blocks(static_cast<size_t>(n) * row_bytes);
    std::vector<QuantizedMatrix> side(static_cast<size_t>(chunks));  ///< without their blocks
    std::vector<OutputError> errors(static_cast<size_t>(n));
    std::mutex mutex;
    int64_t failed_chunk = chunks;
    Status failed;
    parallel_for(chunks, options_.threads, [&](int64_t chunk) {
      const int64_t first = chunk * rows_at_once, count = std::min(rows_at_once, n - first);
      const auto values = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(count * k));
      decode_rows(part, first, count, values.get());
      const MatrixToQuantize matrix = matrix_of(part, first, count, values.get(), 1);
      const auto work = [&]() -> Status {
        TRY(check_weights(matrix));
        fold_rows(part, first, count, values.get());
        // Which rows hold how many of equal largest weights is counted from the part's first one.
        MatrixToQuantize counted = matrix;
        counted.first_row = first;
        auto& rows = side[static_cast<size_t>(chunk)];
        if (largest.empty()) {
          TRY_ASSIGN(rows, quantize(matrix, part.task));
        } else {
          rows = quantize_without(counted, *part.task.integers, largest);
        }
        errors_of_rows(matrix, rows, {errors.data() + first, static_cast<size_t>(count)});
        std::memcpy(all.blocks.data() + static_cast<size_t>(first) * row_bytes, rows.blocks.data(), rows.blocks.size());
        rows.blocks = {};
        return {};
      };
      const Status status = work();
      if (status) return;
      const std::lock_guard lock(mutex);
      if (chunk < failed_chunk) failed_chunk = chunk, failed = status;
    });
    if (failed_chunk < chunks) return failed;
    for (const OutputError& row : errors) error.lost += row.lost, error.had += row.had;
    for (const QuantizedMatrix& rows : side) append_side_data(all, rows);
    append_rows(made.matrix, std::move(all));
    return {};
  }

  /// Factors the Hessian of the task's inputs, once for the tensors that share them.
  Status prepare_for_gptq(const TensorTask& task) {
    InputStatistics& of = statistics_[static_cast<size_t>(task.place.input())];
    const GptqOptions options{.damping = options_.damping, .act_order = options_.act_order};
    if (on_device_ == OnDevice::hessian && task.integers) {
      TRY(solver_->factor(task.tensor->weight.name, options));
      on_device_ = OnDevice::factor;
    }
    if (gptq_ || of.hessian.empty() || !task.integers) return {};
    TRY_ASSIGN(gptq_, prepare_gptq(task.tensor->weight.name, of.k, std::exchange(of.hessian, {}), options, options_.threads));
    return {};
  }

  Result<QuantizedMatrix> quantize(const MatrixToQuantize& matrix, const TensorTask& task) const {
    if (is_direct_format(task.format)) return quantize_direct(matrix, task.format);
    if (!task.integers && !can_encode(task.format))
      return bad_input(fmt::format("tensor {}: found the format {}, into which scales cannot be folded; allowed with awq "
                                   "are dense weights",
                                   matrix.name, format_info(task.format).name));
    if (!task.integers) return encode_matrix(matrix, task.format);
    const IntegerFormat& format = *task.integers;
    if (options_.method == QuantizeMethod::rtn) return quantize_rtn(matrix, format, options_.granularity);
    const double share = share_of(task);
    if (on_device_ == OnDevice::factor && task.place.input() >= 0) return solver_->quantize(matrix, format, share);
    if (gptq_ && task.place.input() >= 0) return quantize_gptq(matrix, format, *gptq_, share);
    return quantize_outlier(matrix, format, {.share = share, .select = options_.select});
  }

  const ModelFiles& files_;
  const ModelConfig& config_;
  const std::string& source_;
  Backend& backend_;
  const QuantizeOptions& options_;
  const QuantizeHooks& hooks_;
  std::vector<TensorTask> tasks_;
  std::vector<PlannedTensor> planned_;
  WorkFolder* folder_ = nullptr;
  std::unique_ptr<ModelSink> sink_;
  TensorShares shares_;  ///< of auto_shares
  CalibrationTokens tokens_;
  std::unique_ptr<WeightSolver> solver_;  ///< of gptq, where the backend has one
  std::unique_ptr<LayerCalibration> calibration_;
  // Of the layer that is worked on:
  LayerStatistics statistics_;
  std::optional<GptqInputs> gptq_;  ///< of the input that is worked on
  enum class OnDevice : uint8_t { nothing, hessian, factor };
  OnDevice on_device_ = OnDevice::nothing;  ///< what solver_ holds of it
  LayerFold fold_;
  std::map<size_t, Made> made_;  ///< compressed and not written yet, by index of the task

  std::unique_ptr<float[]> values_;  ///< of quantize_at_once(): memory that is there already
  int64_t values_size_ = 0;

  bool calibration_warned_ = false;  ///< once: outliers that are shared out walk over the model twice
  std::atomic<bool> saved_ = false;  ///< there is something to go on from
  uint64_t all_bytes_ = 0, done_bytes_ = 0;
  QuantizeReport report_;
  std::mutex spare_mutex_;
  std::vector<uint8_t> spare_blocks_;  ///< of a tensor that is written: memory that is there already
  WriteQueue writes_;  ///< the last member: its jobs use the others
};

}  // namespace

Result<QuantizeReport> quantize_model(const std::string& source, const std::string& destination,
                                      Backend& backend, const QuantizeOptions& options,
                                      const QuantizeHooks& hooks) {
  TRY_ASSIGN(const ModelFiles files, ModelFiles::open(source));
  if (files.tensors().empty())
    return bad_input(fmt::format("{}: found a vocabulary and no weights, allowed is a model", source));
  std::optional<GgufView> view;
  if (options.mix && files.kind() == ModelFiles::Kind::huggingface) {
    TRY_ASSIGN(GgufView made, GgufView::make(files));
    view.emplace(std::move(made));
    if (hooks.on_warning)
      for (const std::string& note : view->exported().notes) hooks.on_warning(fmt::format("{}: {}", source, note));
  }
  const ModelFiles& seen = view ? view->files() : files;
  TRY_ASSIGN(const ModelConfig config, read_config(seen, 0));
  return Quantizer(seen, config, source, backend, options, hooks).run(destination);
}

}  // namespace quintet
