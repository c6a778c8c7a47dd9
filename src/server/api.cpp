// Routes, access, and the way from a checked body to a submitted request.
#include "server/api.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "base/log.h"
#include "base/printable.h"
#include "server/errors.h"
#include "server/shapes.h"

namespace quintet {
namespace {

constexpr size_t kMaxNameBytes = 256;
constexpr size_t kContinuedTokens = 8;  ///< holds the longest character that a prompt may end inside of
constexpr int64_t kMinJsonValues = 1 << 18;

int64_t now_unix_s() {
  using namespace std::chrono;
  return duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
}

uint64_t random_bits() {
  thread_local std::mt19937_64 engine{(static_cast<uint64_t>(std::random_device{}()) << 32) ^
                                      std::random_device{}()};
  return engine();
}

std::string name_of_model(const Model& model, const std::string& alias) {
  if (!alias.empty()) return alias;
  std::filesystem::path path(model.path);
  if (!path.has_filename()) path = path.parent_path();  // "folder/"
  const std::string name = path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
  if (name.empty()) return "model";
  // It goes into JSON and log lines, and file names are any bytes.
  return one_line(name, kMaxNameBytes);
}

HttpResponse json_response(std::string json) {
  HttpResponse response;
  response.body = std::move(json);
  return response;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

/// Percent-decoding of a path segment: model ids may hold slashes.
std::string decode_path(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Adds the headers of the CORS protocol to whatever is answered.
class CorsExchange : public HttpExchange {
 public:
  CorsExchange(std::shared_ptr<HttpExchange> inner, std::string origin)
      : inner_(std::move(inner)), origin_(std::move(origin)) {}
  void respond(HttpResponse response) override { inner_->respond(with_origin(std::move(response))); }
  void begin_stream(HttpResponse head) override { inner_->begin_stream(with_origin(std::move(head))); }
  bool write(std::string_view bytes) override { return inner_->write(bytes); }
  void end() override { inner_->end(); }
  void on_leave(std::function<void()> callback) override { inner_->on_leave(std::move(callback)); }

 private:
  HttpResponse with_origin(HttpResponse response) const {
    response.headers.push_back({"Access-Control-Allow-Origin", origin_});
    if (origin_ != "*") response.headers.push_back({"Vary", "Origin"});
    return response;
  }
  const std::shared_ptr<HttpExchange> inner_;
  const std::string origin_;
};

}  // namespace

struct Api::Route {
  std::string_view method;
  std::string_view path;  ///< one that ends in '/' takes every path below it
  bool open;              ///< asks for no key
  void (Api::*handler)(const HttpRequest&, const std::shared_ptr<HttpExchange>&) const;

  bool matches(std::string_view wanted) const {
    return path.ends_with('/') ? wanted.starts_with(path) && wanted.size() > path.size() : wanted == path;
  }
};

const Api::Route Api::kRoutes[] = {
    {"GET", "/health", true, &Api::health},
    {"GET", "/v1/models", false, &Api::list_models},
    {"GET", "/v1/models/", false, &Api::show_model},
    {"POST", "/v1/chat/completions", false, &Api::chat},
    {"POST", "/v1/completions", false, &Api::complete},
};

Api::Api(EngineClient& engine, const Model& model, const ServerOptions& options, Frontend& frontend)
    : engine_(engine),
      model_(model),
      options_(options),
      frontend_(frontend),
      prompts_(model),
      takes_tools_(!model.chat_template || takes_tools(*model.chat_template)),
      model_id_(name_of_model(model, options.model_alias)),
      fingerprint_(fmt::format("fp_{:016x}", options.numerics_id)),
      started_unix_s_(now_unix_s()) {}

void Api::handle(HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) const {
  if (options_.cors_origin.empty()) return dispatch(request, exchange);
  const auto open = std::make_shared<CorsExchange>(exchange, options_.cors_origin);
  if (request.method != "OPTIONS") return dispatch(request, open);
  open->respond({.status = 204,
                 .content_type = "",
                 .headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                             {"Access-Control-Allow-Headers", "Authorization, Content-Type"},
                             {"Access-Control-Max-Age", "86400"}},
                 .body = ""});
}

void Api::dispatch(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) const {
  // A HEAD is a GET whose body the transport leaves out.
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  const Route* other_method = nullptr;
  for (const Route& route : kRoutes) {
    if (!route.matches(request.path)) continue;
    if (route.method != method) {
      other_method = &route;
      continue;
    }
    if (!route.open && !authorized(request))
      return refuse(exchange,
                    status_error(401, "Incorrect or missing API key: send \"Authorization: Bearer KEY\".",
                                 "invalid_api_key"));
    return (this->*route.handler)(request, exchange);
  }
  if (other_method != nullptr) {
    HttpResponse response = error_response(
        status_error(405,
                     fmt::format("Method {} is not allowed for {}, allowed is {}.",
                                 quote_text(request.method), request.path, other_method->method),
                     "method_not_allowed"));
    response.headers.push_back({"Allow", std::string(other_method->method)});
    return exchange->respond(std::move(response));
  }
  refuse(exchange,
         status_error(
             404, fmt::format("Unknown URL: {} {}.", quote_text(request.method), quote_text(request.path)),
             "unknown_url"));
}

bool Api::authorized(const HttpRequest& request) const {
  if (options_.api_key.empty()) return true;
  std::string_view given = request.header("Authorization");
  if (given.size() < 7 || lower(given.substr(0, 7)) != "bearer ") return false;
  given = trim(given.substr(7));
  // In constant time: how long a wrong key takes must not tell how much of it is right.
  return given.size() == options_.api_key.size() &&
         CRYPTO_memcmp(given.data(), options_.api_key.data(), given.size()) == 0;
}

std::optional<ApiError> Api::check_body_type(const HttpRequest& request) const {
  const std::string_view given = request.header("Content-Type");
  // Browsers send other types across sites without asking first; so this also keeps web pages out.
  if (lower(trim(given.substr(0, given.find(';')))) != "application/json")
    return status_error(
        415,
        fmt::format("Header 'Content-Type': found '{}', allowed is application/json.", quote_text(given)),
        "unsupported_media_type");
  if (const std::string_view encoding = request.header("Content-Encoding");
      !encoding.empty() && lower(encoding) != "identity")
    return status_error(
        415, fmt::format("Header 'Content-Encoding': found '{}', allowed is identity.", quote_text(encoding)),
        "unsupported_media_type");
  return {};
}

std::optional<ApiError> Api::check_model(const std::string& name) const {
  if (name.empty() || name == model_id_) return {};
  ApiError error = status_error(
      404, fmt::format("The model '{}' does not exist; this server has '{}'.", quote_text(name), model_id_),
      "model_not_found");
  error.param = "model";
  return error;
}

RequestRules Api::rules() const {
  RequestRules rules;
  rules.vocabulary = model_.config.vocabulary > 0 ? model_.config.vocabulary : model_.tokenizer->vocabulary();
  rules.json.depth = options_.limits.json_depth;
  rules.json.values = std::max<int64_t>(kMinJsonValues, 2 * static_cast<int64_t>(engine_.limits().context));
  return rules;
}

void Api::refuse(const std::shared_ptr<HttpExchange>& exchange, const ApiError& error) const {
  exchange->respond(error_response(error));
}

void Api::answer(const std::shared_ptr<HttpExchange>& exchange, std::string json) const {
  exchange->respond(json_response(std::move(json)));
}

void Api::health(const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) const {
  const EngineStats stats = engine_.stats();
  HttpResponse response = json_response(nlohmann::ordered_json{
      {"status", draining_ ? "stopping" : "ok"},
      {"model", model_id_},
      {"running", stats.running},
      {"waiting", stats.waiting},
      {"kv_blocks_free", stats.kv_blocks_free},
      {"kv_blocks_total",
       stats.kv_blocks_total}}.dump());
  if (draining_) response.status = 503;
  exchange->respond(std::move(response));
}

void Api::list_models(const HttpRequest&, const std::shared_ptr<HttpExchange>& exchange) const {
  answer(exchange, model_list_json({model_id_, started_unix_s_, engine_.limits().context}));
}

void Api::show_model(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) const {
  const std::string name =
      decode_path(std::string_view(request.path).substr(std::string_view("/v1/models/").size()));
  if (const auto error = check_model(name)) return refuse(exchange, *error);
  answer(exchange, model_json({model_id_, started_unix_s_, engine_.limits().context}));
}

void Api::chat(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) const {
  if (const auto error = check_body_type(request)) return refuse(exchange, *error);
  auto parsed = parse_chat_request(request.body, rules());
  if (!parsed) return refuse(exchange, parsed.error());
  if (const auto error = check_model(parsed->settings.model)) return refuse(exchange, *error);
  if (!parsed->tools_json.empty() && !takes_tools_)
    return refuse(
        exchange,
        field_error("tools",
                    "Unsupported parameter 'tools': the model's chat template takes no tools; leave them "
                    "out, or start the server with --chat-template FILE.",
                    "unsupported_parameter"));
  auto tokens = prompts_.conversation({parsed->messages_json, parsed->tools_json, parsed->extra_json},
                                      static_cast<size_t>(engine_.limits().context));
  if (!tokens) return refuse(exchange, api_error(tokens.error(), "messages"));
  submit(Endpoint::chat, std::move(parsed->settings), {std::move(*tokens), false}, exchange);
}

void Api::complete(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) const {
  if (const auto error = check_body_type(request)) return refuse(exchange, *error);
  auto parsed = parse_completion_request(request.body, rules());
  if (!parsed) return refuse(exchange, parsed.error());
  if (const auto error = check_model(parsed->settings.model)) return refuse(exchange, *error);
  auto tokens = parsed->prompt_tokens
                    ? std::move(*parsed->prompt_tokens)
                    : prompts_.raw(parsed->prompt, static_cast<size_t>(engine_.limits().context));
  submit(Endpoint::completions, std::move(parsed->settings), {std::move(tokens), true}, exchange);
}

ApiResult<int32_t> Api::room_for_answer(const GenerationSettings& settings, size_t prompt_tokens,
                                        Endpoint endpoint) const {
  const int64_t context = engine_.limits().context;
  const int64_t prompt = static_cast<int64_t>(prompt_tokens);
  const int64_t answer = settings.max_tokens.value_or(1);
  if (prompt + answer <= context) return static_cast<int32_t>(settings.max_tokens.value_or(0));
  const char* field = endpoint == Endpoint::chat ? "messages" : "prompt";
  if (prompt > context)  // it was not counted to its end
    return field_error(
        field,
        fmt::format("This model's maximum context length is {} tokens. However, the {} alone took "
                    "more. Please reduce the length of the {}.",
                    context, field, field),
        "context_length_exceeded");
  return field_error(
      field,
      fmt::format("This model's maximum context length is {} tokens. However, you requested {} tokens ({} in "
                  "the {}, {} in the completion). Please reduce the length of the {} or of the completion.",
                  context, prompt + answer, prompt, field, answer, field),
      "context_length_exceeded");
}

void Api::submit(Endpoint endpoint, GenerationSettings settings, Prompt prompt,
                 const std::shared_ptr<HttpExchange>& exchange) const {
  if (draining_) return refuse(exchange, status_error(503, "The server is stopping.", "stopping"));
  const char* prompt_name = endpoint == Endpoint::chat ? "messages" : "prompt";
  if (prompt.tokens.empty())
    return refuse(exchange,
                  field_error(prompt_name,
                              fmt::format("Invalid value for '{}': found no tokens, allowed is at least one.",
                                          prompt_name),
                              "invalid_value"));
  const auto room = room_for_answer(settings, prompt.tokens.size(), endpoint);
  if (!room) return refuse(exchange, room.error());

  AnswerOptions answer;
  answer.head.endpoint = endpoint;
  answer.head.id = fmt::format("{}-{:016x}{:08x}", endpoint == Endpoint::chat ? "chatcmpl" : "cmpl",
                               random_bits(), static_cast<uint32_t>(random_bits()));
  answer.head.model = model_id_;
  answer.head.fingerprint = fingerprint_;
  answer.head.created_unix_s = now_unix_s();
  answer.stream = settings.stream;
  answer.include_usage = settings.include_usage;
  answer.logprobs = settings.logprobs;
  answer.top_logprobs = settings.top_logprobs;
  answer.stop = std::move(settings.stop);
  answer.stop_ids = model_.stop_ids;
  if (prompt.continues_text)
    answer.continues.assign(
        prompt.tokens.end() - static_cast<ptrdiff_t>(std::min(prompt.tokens.size(), kContinuedTokens)),
        prompt.tokens.end());

  Request request;
  request.prompt = std::move(prompt.tokens);
  request.seed = settings.seed.value_or(random_bits());
  request.max_new_tokens = *room;
  request.stop_ids = model_.stop_ids;
  request.ignore_eos = settings.ignore_eos;
  const GenerationDefaults& defaults = model_.defaults;
  SampleParams& sampling = request.sampling;
  sampling.temperature = settings.temperature.value_or(defaults.temperature.value_or(1));
  sampling.top_k = settings.top_k.value_or(defaults.top_k.value_or(0));
  sampling.top_p = settings.top_p.value_or(defaults.top_p.value_or(1));
  sampling.min_p = settings.min_p.value_or(defaults.min_p.value_or(0));
  sampling.repeat_penalty = settings.repeat_penalty.value_or(defaults.repeat_penalty.value_or(1));
  sampling.presence_penalty = settings.presence_penalty;
  sampling.frequency_penalty = settings.frequency_penalty;
  sampling.logprobs = settings.top_logprobs;
  // OpenAI's penalties count the whole text, not a window of it.
  if (settings.presence_penalty != 0 || settings.frequency_penalty != 0) request.penalty_window = -1;
  request.bias = std::move(settings.bias);
  frontend_.submit(std::move(request), std::move(answer), exchange);
}

}  // namespace quintet
