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
  return ModelExecutor(backend, model, std::move(workspace), std::move(pages), options);
}

ModelExecutor::ModelExecutor(Backend& backend, const Model& model, Workspace workspace, Buffer pages,
                             const Options& options)
    : backend_(&backend),
      model_(&model),
      workspace_(std::move(workspace)),
      pages_(std::move(pages)),
      kv_{.base = pages_.data(),
          .pages = options.pages,
          .layers = model.config.layers,
          .page = options.page} {}

Result<Buffer> ModelExecutor::allocate_staging(size_t bytes) {
  return backend_->allocate(bytes, BufferUse::staging);
}

ForwardArgs ModelExecutor::forward_args(const StepView& step) {
  return {.model = model_, .step = &step, .kv = kv_, .workspace = &workspace_};
}

void ModelExecutor::issue(const StepView& step) {
  forward(backend_->ops(), forward_args(step));
  // Alternatives cost nothing where no row asks for them, and a step that always has them is always the same step.
  if (step.logit_rows > 0) sample(backend_->ops(), forward_args(step), /*with_alternatives=*/true);
}

Status ModelExecutor::prepare() {
  return backend_->prepare_steps([this](const StepView& step) { issue(step); }, kv_.page.tokens);
}

Status ModelExecutor::launch(const StepInputs& inputs) {
  // Looked at here, where the parameters are host memory.
  wants_alternatives_ = std::any_of(inputs.view.sample, inputs.view.sample + inputs.view.logit_rows,
                                    [](const SampleParams& params) { return params.logprobs > 0; });
  return backend_->run(inputs, [this](const StepView& step) { issue(step); });
}

Status ModelExecutor::wait(std::span<Sampled> sampled, std::span<Alternative> alternatives) {
  TRY(backend_->finish(workspace_.sampled(), sampled));
  if (!wants_alternatives_) return {};
  return backend_->read(workspace_.alternatives(), {reinterpret_cast<uint8_t*>(alternatives.data()),
                                                    sampled.size() * kAlternatives * sizeof(Alternative)});
}

Status ModelExecutor::logits(const StepInputs& inputs, std::span<float> logits) {
  TRY_ASSIGN(const StepView step, backend_->stage(inputs));
  forward(backend_->ops(), forward_args(step));
  TRY(backend_->finish(workspace_.sampled(), {}));
  return backend_->read(workspace_.logits(step.logit_rows).data,
                        {reinterpret_cast<uint8_t*>(logits.data()), logits.size_bytes()});
}

}  // namespace quintet
