// A model on a backend, loaded for a verb: with a progress bar for people and the load's time.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "cli/model_source.h"
#include "cli/verb.h"
#include "engine/engine_client.h"
#include "model/model.h"

namespace quintet {

/// Destroyed in reverse order: engine, model, backend.
struct Session {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  std::unique_ptr<EngineClient> engine;  ///< null until start()
  double load_s = 0;

  Status start(const EngineOptions& options);
};

/// bad_input where --context asks for more than the model was made for.
Status check_context(int64_t context_tokens, const Model& model);

/// Puts the model on the device of --device. "auto" takes the GPU where the weights and an engine of `engine` fit, the
/// CPU otherwise, and says which and why where there was a choice. On a GPU nothing is allocated before it is clear that
/// everything fits. Limits of `engine` that only a loaded model can tell may be lower than those that start() gets.
Result<Session> open_session(const ModelSource& source, const CommonOptions& common, LoadOptions options,
                             const EngineOptions& engine);

}  // namespace quintet
