// The order of calls into a backend that makes a step.
#include "engine/model_executor.h"

#include <algorithm>
#include <utility>

#include "backend/sampler.h"
#include "base/check.h"

namespace quintet {

Result<ModelExecutor> ModelExecutor::make(Backend& backend, const Model& model, const Options& options) {
  TRY_ASSIGN(Workspace workspace, Workspace::make(backend, model.config, options.limits));
  TRY_ASSIGN(Buffer pages,
             backend.allocate(static_cast<size_t>(options.pages * options.page.bytes), BufferUse::kv));
  std::array<Turn, 2> turns;
  for (Turn& turn : turns) {
    TRY_ASSIGN(turn.sampled,
               backend.allocate(static_cast<size_t>(options.limits.logit_rows) * sizeof(Sampled), BufferUse::staging));
  }
  return ModelExecutor(backend, model, std::move(workspace), std::move(pages), std::move(turns), options);
}

ModelExecutor::ModelExecutor(Backend& backend, const Model& model, Workspace workspace, Buffer pages,
                             std::array<Turn, 2> turns, const Options& options)
    : backend_(&backend),
      model_(&model),
      workspace_(std::move(workspace)),
      pages_(std::move(pages)),
      kv_{.base = pages_.data(),
          .pages = options.pages,
          .layers = model.config.layers,
          .page = options.page},
      turns_(std::move(turns)) {
  if (options.limits.unfused) unfused_ops_.emplace(backend.ops(), workspace_.unfused());
}

Result<Buffer> ModelExecutor::allocate_staging(size_t bytes) {
  return backend_->allocate(bytes, BufferUse::staging);
}

ForwardArgs ModelExecutor::forward_args(const StepView& step) {
  return {.model = model_, .step = &step, .kv = kv_, .workspace = &workspace_};
}

void ModelExecutor::set_unfused(bool unfused) {
  QUINTET_CHECK(!unfused || unfused_ops_, "an executor without room for unfused steps");
  unfused_ = unfused;
}

void ModelExecutor::issue(const StepView& step) {
  forward(ops(), forward_args(step));
  // Alternatives cost nothing where no row asks for them, and a step that always has them is always the same step.
  if (step.logit_rows > 0) sample(ops(), forward_args(step), /*with_alternatives=*/true);
}

Status ModelExecutor::prepare() {
  return backend_->prepare_steps([this](const StepView& step) { issue(step); }, kv_.page.tokens);
}

Status ModelExecutor::launch(const StepInputs& inputs) {
  QUINTET_CHECK(launched_ - waited_ < turns_.size(), "{} steps are in flight", launched_ - waited_);
  const size_t turn = launched_++ % turns_.size();
  // Looked at here, where the parameters are host memory.
  turns_[turn].wants_alternatives = std::any_of(inputs.view.sample, inputs.view.sample + inputs.view.logit_rows,
                                    [](const SampleParams& params) { return params.logprobs > 0; });
  if (unfused_) {
    TRY_ASSIGN(const StepView step, backend_->stage(inputs));  // not run(), which may replay the fused step
    issue(step);
  } else {
    TRY(backend_->run(inputs, [this](const StepView& step) { issue(step); }));
  }
  return backend_->post(workspace_.sampled(),
                        {turns_[turn].sampled.as<Sampled>(), static_cast<size_t>(inputs.view.logit_rows)},
                        static_cast<int>(turn));
}

Status ModelExecutor::wait(std::span<Sampled> sampled, std::span<Alternative> alternatives) {
  QUINTET_CHECK(waited_ < launched_, "no step is in flight");
  const size_t index = waited_++ % turns_.size();
  Turn& turn = turns_[index];
  TRY(backend_->await(static_cast<int>(index)));
  std::copy_n(turn.sampled.as<Sampled>(), sampled.size(), sampled.begin());
  if (!turn.wants_alternatives) return {};
  QUINTET_CHECK(waited_ == launched_, "the next step has overwritten the alternatives");
  return backend_->read(workspace_.alternatives(), {reinterpret_cast<uint8_t*>(alternatives.data()),
                                                    sampled.size() * kAlternatives * sizeof(Alternative)});
}

Status ModelExecutor::logits(const StepInputs& inputs, std::span<float> logits) {
  TRY_ASSIGN(const StepView step, backend_->stage(inputs));
  forward(ops(), forward_args(step));
  TRY(backend_->finish(workspace_.sampled(), {}));
  return backend_->read(workspace_.logits(step.logit_rows).data,
                        {reinterpret_cast<uint8_t*>(logits.data()), logits.size_bytes()});
}

}  // namespace quintet
