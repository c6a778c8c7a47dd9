// The routes: who may call what, and what a request of each becomes.
#pragma once

#include <memory>
#include <string>

#include "engine/engine_client.h"
#include "model/model.h"
#include "server/frontend.h"
#include "server/http.h"
#include "server/openai.h"
#include "server/prompt.h"
#include "server/server.h"

namespace quintet {

/// What a checked request asks the engine to go on from.
struct Prompt {
  std::vector<TokenId> tokens;
  bool continues_text = false;  ///< the answer goes on in the middle of a text
};

/// Immutable but for the frontend that it submits to; safe for many threads.
class Api {
 public:
  Api(EngineClient& engine, const Model& model, const ServerOptions& options, Frontend& frontend);

  void handle(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) const;
  const std::string& model_id() const { return model_id_; }
  /// The server stops: nothing new is begun.
  void drain() { draining_ = true; }

 private:
  struct Route;
  static const Route kRoutes[];

  void dispatch(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) const;
  void health(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) const;
  void list_models(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) const;
  void show_model(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) const;
  void chat(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) const;
  void complete(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) const;

  bool authorized(const HttpRequest& request) const;
  std::optional<ApiError> check_body_type(const HttpRequest& request) const;
  std::optional<ApiError> check_model(const std::string& name) const;
  ApiResult<int32_t> room_for_answer(const GenerationSettings& settings, size_t prompt_tokens,
                                     Endpoint endpoint) const;
  void submit(Endpoint endpoint, GenerationSettings settings, Prompt prompt,
              const std::shared_ptr<HttpExchange>& exchange) const;
  void refuse(const std::shared_ptr<HttpExchange>& exchange, const ApiError& error) const;
  void answer(const std::shared_ptr<HttpExchange>& exchange, std::string json) const;
  RequestRules rules() const;

  EngineClient& engine_;
  const Model& model_;
  const ServerOptions options_;
  Frontend& frontend_;
  const PromptBuilder prompts_;
  const bool takes_tools_;  ///< what the template does with tools
  const std::string model_id_;
  const std::string fingerprint_;
  const int64_t started_unix_s_;
  std::atomic<bool> draining_{false};
};

}  // namespace quintet
