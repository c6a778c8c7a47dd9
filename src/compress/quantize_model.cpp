// Walks the layers of a model, has their weights rounded, and writes them as they come.
#include "compress/quantize_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "base/disk_space.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/units.h"
#include "compress/calibration_run.h"
#include "compress/choose_shares.h"
#include "compress/exchange_sink.h"
#include "compress/layer_calibration.h"
#include "compress/layer_fold.h"
#include "compress/model_sink.h"
#include "compress/quantize_identity.h"
#include "compress/quantize_state.h"
#include "compress/second_moments.h"
#include "compress/tensor_plan.h"
#include "compress/tensor_rounder.h"
#include "compress/write_queue.h"
#include "model/config_reader.h"
#include "model/gguf_view.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

bool is_dense(WeightFormat format) { return format <= WeightFormat::bf16; }

/// A model with NaN or infinity in a tensor that stays as it is would be written and could not be loaded.
Status check_finite(const HostWeight& weight, int threads) {
  std::atomic<int64_t> bad = -1;
  parallel_for(weight.n, threads, [&](int64_t row) {
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

class Quantizer {
 public:
  Quantizer(const ModelFiles& files, const ModelConfig& config, const std::string& source, Backend& backend,
            const QuantizeOptions& options, const QuantizeHooks& hooks)
      : model_{source, files, config, options, tasks_}, options_(options), backend_(backend), hooks_(hooks) {}

  Result<QuantizeReport> run(const std::string& destination) {
    TRY_ASSIGN(tasks_, plan_tensors(model_.files, model_.config, options_));
    for (TensorTask& task : tasks_) {
      // A norm that scales are folded into would lose them to the roundings of 16 bits.
      const bool norm = task.place.part == TensorPart::attn_norm || task.place.part == TensorPart::mlp_norm;
      if (options_.method == QuantizeMethod::awq && norm) task.format = WeightFormat::f32;
      planned_.push_back({task.tensor, task.format});
      all_bytes_ += task.tensor->weight.stored_bytes();
    }
    if (options_.layout != FolderLayout::quintet) TRY(check_exchange(model_.files, tasks_, options_));
    TRY(moments_.check_importance([this](const std::string& message) { warn(message); }));
    if (options_.is_gptq()) TRY(find_solver());
    rounder_.emplace(model_, shares_, inputs_, solver_.get());
    Json identity = identity_of(model_.files, backend_, options_);
    if (solver_) identity["Hessians and rounding"] = "on the device";
    TRY_ASSIGN(WorkFolder folder, WorkFolder::open(destination, identity, options_.restart));
    folder_ = &folder;
    const WriteQueue::Drained drained(writes_);  // what is written uses the folder, however this ends
    Status status = work_or_no_room();
    const Status written = writes_.drain();
    if (status) status = written;
    sink_.reset();
    folder_ = nullptr;
    if (!status) {
      const ErrorKind kind = status.error().kind;
      if (saved_ && kind != ErrorKind::bad_input) folder.keep();
      return status.error();
    }
    report_.source_bytes = model_.files.file_bytes();
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

  /// No memory is an error like others: an exception that left run() would take what is saved with it.
  Status work_or_no_room() {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return no_room("out of memory");
    }
  }

  Status work() {
    const Json& loaded = folder_->loaded();
    const SinkPlan plan{model_.files, planned_, options_.mix ? options_.mix->file_type : 0};
    const Json checkpoint = loaded.is_null() ? Json() : loaded.at("sink");
    TRY_ASSIGN(sink_, options_.method == QuantizeMethod::gguf ? make_gguf_sink(*folder_, plan, checkpoint)
                                : options_.layout != FolderLayout::quintet
                                    ? make_exchange_sink(*folder_, plan, checkpoint, options_)
                                    : make_folder_sink(*folder_, plan, checkpoint));
    calibration_run_.emplace(CalibrationRun::Setup{.model = model_,
                                                   .backend = backend_,
                                                   .solver = solver_.get(),
                                                   .folder = folder_->path(),
                                                   .goes_on = [this] { return goes_on(); },
                                                   .warn = [this](const std::string& message) { warn(message); }});
    size_t first = 0;
    int entering = 0;
    if (!loaded.is_null()) {
      QuantizeState state = saved_state(loaded);
      first = state.tensors;
      entering = state.entering;
      shares_ = std::move(state.shares);
      saved_ = true;
      for (TensorReport& tensor : state.report) note_done(std::move(tensor));
      for (size_t i = 0; i < first; ++i) done_bytes_ += tasks_[i].tensor->weight.stored_bytes();
      warn(fmt::format("{}: going on behind {} of {} tensors", folder_->path(), first, tasks_.size()));
    } else {
      warn_of_source();
    }
    if (CalibrationRun::is_needed(model_)) TRY(calibration_run_->read_text());
    TRY(check_disk());
    if (loaded.is_null() && options_.auto_shares) TRY(share_out());
    if (CalibrationRun::is_needed(model_)) {
      TRY_ASSIGN(calibration_, calibration_run_->start(first, entering));
    }
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
    if (!options_.save_importance.empty()) TRY(moments_.write_all(folder_->path(), importance_origin()));
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
    Json state = to_json(QuantizeState{.tensors = tensors,
                                       .entering = calibration_ ? calibration_->entering() : 0,
                                       .shares = shares_,
                                       .report = report_.tensors});
    return writes_.push([this, state = std::move(state)]() mutable -> Status {
      TRY_ASSIGN(state["sink"], sink_->checkpoint());
      TRY(folder_->save(state));
      saved_ = true;
      return {};
    });
  }

  /// Nearly all that will be written is known: a disk that has too little room for it is told now, not when it is full.
  Status check_disk() const {
    uint64_t weights = 0;
    for (const TensorTask& task : tasks_) {
      weights += planned_bytes(task);
      // With their columns; how many are shared out is not known yet.
      if (task.changed && task.integers && !options_.auto_shares)
        weights += static_cast<uint64_t>(4 * share_of(model_, task, shares_) * static_cast<double>(task.tensor->weight.n * task.tensor->weight.k));
    }
    const uint64_t states = calibration_run_->state_bytes(), there = disk_bytes_of(folder_->path());
    if (weights + states <= there) return {};
    std::string sum = fmt::format("{} for weights", format_bytes(weights));
    if (states > 0) sum += fmt::format(" and {} for rows of {} calibration tokens", format_bytes(states), calibration_run_->tokens());
    if (there > 0) sum += fmt::format(", less {} that are there already", format_bytes(there));
    return check_disk_space(folder_->path(), weights + states - there, sum);
  }

  void warn_of_source() const {
    for (const TensorTask& task : tasks_)
      if (task.place.input() >= 0 && !is_dense(task.tensor->weight.format))
        return warn(fmt::format("{}: {} is compressed already ({}): its errors stay, and new ones are added", model_.source,
                                task.tensor->weight.name, format_info(task.tensor->weight.format).name));
  }

  Status share_out() {
    if (CalibrationRun::is_needed(model_)) {
      TRY_ASSIGN(calibration_, calibration_run_->start(0, 0));
    }
    if (std::max({options_.shares.first, options_.shares.middle, options_.shares.head}) > ShareChooser::kMostShare)
      warn(fmt::format("--outliers auto: no tensor gets more than {:g} % outliers, so that they may be fewer than asked for",
                       100 * ShareChooser::kMostShare));
    all_bytes_ *= 2;  // both walks
    TRY_ASSIGN(shares_, choose_shares(model_, moments_, calibration_.get(), [this](const TensorTask& task) {
                 done_bytes_ += task.tensor->weight.stored_bytes();
                 return goes_on();
               }));
    calibration_.reset();
    return save(0);
  }

  ImportanceOrigin importance_origin() const {
    return {.text = options_.calibration_origin, .samples = calibration_run_->samples(), .length = options_.length};
  }

  // --- layers ---

  Status write_unit(size_t begin, size_t end) {
    const int32_t layer = tasks_[begin].place.layer;
    made_.clear();
    inputs_ = {};
    if (layer >= 0 && calibration_) {
      TRY(calibration_->load(layer));
      TRY(options_.is_gptq() ? calibrate_and_round(layer, begin, end) : observe(layer, begin, end));
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
    TRY_ASSIGN(inputs_.statistics, calibration_->pass({.inputs = {true, true, true, true}, .advance = true}));
    TRY(check_statistics(model_.source, layer, inputs_.statistics));
    const std::span<const TensorTask> tasks = std::span(tasks_).subspan(begin, end - begin);
    if (!options_.save_importance.empty())
      TRY(moments_.keep(tasks, inputs_.statistics, folder_->file(SecondMoments::file_name(layer)), importance_origin()));
    if (options_.method != QuantizeMethod::awq) return {};
    std::vector<const TensorTask*> folded;
    for (const TensorTask& task : tasks) folded.push_back(&task);
    TRY_ASSIGN(inputs_.fold, search_fold(folded, model_.config, inputs_.statistics, options_.threads));
    return {};
  }

  /// GPTQ: input after input, each as the weights before it, compressed already, leave it; at the end the layer's output.
  Status calibrate_and_round(int32_t layer, size_t begin, size_t end) {
    for (int input = 0; input < kLayerInputs; ++input) {
      PassRequest request{.hessians = true, .sequential = options_.true_sequential};
      request.inputs[input] = true;
      TRY_ASSIGN(inputs_.statistics, calibration_->pass(request));
      TRY(check_statistics(model_.source, layer, inputs_.statistics));
      rounder_->begin_input();
      for (size_t i = begin; i < end; ++i)
        if (tasks_[i].place.input() == input && tasks_[i].changed) TRY(round(i));
      rounder_->end_input();
      if (options_.true_sequential) TRY(replace(input));
    }
    for (int input = 0; input < kLayerInputs && !options_.true_sequential; ++input) TRY(replace(input));
    if (layer + 1 == model_.config.layers) return {};
    TRY(writes_.drain());  // as in observe()
    TRY_ASSIGN(inputs_.statistics, calibration_->pass({.advance = true, .sequential = options_.true_sequential}));
    return {};
  }

  Status round(size_t index) {
    TRY_ASSIGN(RoundedTensor made, rounder_->round(tasks_[index]));
    made_.emplace(index, std::move(made));
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

  Status write_tensor(size_t index) {
    const TensorTask& task = tasks_[index];
    const HostWeight& weight = task.tensor->weight;
    TensorReport report{.name = std::string(weight.name),
                        .format = task.format,
                        .changed = task.changed,
                        .weights = weight.n * weight.k,
                        .note = task.note};
    TRY(!task.changed && !inputs_.fold.touches(task.place) ? copy(index, report) : write_rounded(index, report));
    done_bytes_ += weight.stored_bytes();
    if (hooks_.on_tensor) hooks_.on_tensor(report);
    note_done(std::move(report));
    return goes_on() ? Status() : Error{ErrorKind::cancelled, "stopped by a signal"};
  }

  /// As the source has it.
  Status copy(size_t index, TensorReport& report) {
    const HostWeight& weight = tasks_[index].tensor->weight;
    const auto made = std::make_shared<QuantizedMatrix>();
    TRY_ASSIGN(const HostWeight whole, made_of(weight, *made));
    TRY(check_side_data(whole));
    if (!whole.in_perm.empty())
      return bad_input(fmt::format("tensor {}: found inputs in another order (act-order), allowed are tensors that are "
                                   "compressed anew or lie in order",
                                   weight.name));
    if (is_dense(whole.format)) TRY(check_finite(whole, options_.threads));
    report.bytes = weight.stored_bytes();
    return writes_.push([this, index, whole, made]() -> Status {
      TRY(sink_->add(planned_[index], whole));
      drop_pages(tasks_[index].tensor->weight.bytes);  // of the file: what was made for the occasion lies elsewhere
      return {};
    });
  }

  Status write_rounded(size_t index, TensorReport& report) {
    const HostWeight& weight = tasks_[index].tensor->weight;
    if (!made_.contains(index)) TRY(round(index));
    const auto made = std::make_shared<RoundedTensor>(std::move(made_.at(index)));
    made_.erase(index);
    const HostWeight view = made->matrix.view(weight.name);
    report.bytes = view.stored_bytes();
    report.outliers = static_cast<int64_t>(made->matrix.outlier_column.size());
    report.error = made->error;
    report.plot = made->plot;
    if (!made->matrix.note.empty()) report.note += (report.note.empty() ? "" : "; ") + made->matrix.note;
    TRY(writes_.push([this, index, view, made]() -> Status {
      TRY(sink_->add(planned_[index], view));
      // GPTQ's layers have no use for them, and need the room.
      if (!options_.is_gptq()) rounder_->give_back(std::move(made->matrix.blocks));
      return {};
    }));
    drop_pages(weight.bytes);
    return {};
  }

  void note_done(TensorReport report) {
    report_.bytes += report.bytes;
    report_.tensors.push_back(std::move(report));
  }

  std::vector<TensorTask> tasks_;
  const ModelToQuantize model_;
  const QuantizeOptions& options_;
  Backend& backend_;
  const QuantizeHooks& hooks_;
  const SecondMoments moments_{model_};
  std::vector<PlannedTensor> planned_;
  WorkFolder* folder_ = nullptr;
  std::unique_ptr<ModelSink> sink_;
  TensorShares shares_;  ///< of auto_shares
  std::unique_ptr<WeightSolver> solver_;  ///< of gptq, where the backend has one
  std::optional<CalibrationRun> calibration_run_;
  std::unique_ptr<LayerCalibration> calibration_;
  LayerInputs inputs_;  ///< of the layer that is worked on
  std::optional<TensorRounder> rounder_;
  std::map<size_t, RoundedTensor> made_;  ///< and not written yet, by index of the task

  std::atomic<bool> saved_ = false;  ///< there is something to go on from
  uint64_t all_bytes_ = 0, done_bytes_ = 0;
  QuantizeReport report_;
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
  QuantizeHooks named = hooks;  // of a folder's tensors by the names that its owner knows, too
  if (view && hooks.on_warning) named.on_warning = [&](std::string_view message) { hooks.on_warning(view->with_source_names(message)); };
  auto made = Quantizer(seen, config, source, backend, options, named).run(destination);
  if (!made && view) return Error{made.error().kind, view->with_source_names(made.error().message)};
  return made;
}

}  // namespace quintet
