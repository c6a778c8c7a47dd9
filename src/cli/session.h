// A model on a backend, loaded for a verb: with a progress bar for people and the load's time.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
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

Result<Session> open_session(const std::string& model_path, const CommonOptions& common, LoadOptions options);

}  // namespace quintet
