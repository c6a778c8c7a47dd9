// Maps errors to statuses and to OpenAI's error object.
#include "server/errors.h"

#include <nlohmann/json.hpp>

namespace quintet {

ApiError field_error(std::string param, std::string message, std::string code) {
  return {400, std::move(message), "invalid_request_error", std::move(param), std::move(code)};
}

ApiError status_error(int status, std::string message, std::string code) {
  const char* type = "invalid_request_error";
  if (status >= 500) type = "server_error";
  return {status, std::move(message), type, "", std::move(code)};
}

ApiError api_error(const Error& error, std::string param) {
  ApiError result;
  switch (error.kind) {
    case ErrorKind::bad_input: result = status_error(400, error.message); break;
    case ErrorKind::not_found: result = status_error(404, error.message); break;
    case ErrorKind::no_room: result = status_error(503, error.message, "queue_full"); break;
    case ErrorKind::cancelled: result = status_error(503, error.message, "cancelled"); break;
    case ErrorKind::io:
    case ErrorKind::internal: result = status_error(500, error.message, "internal_error"); break;
  }
  result.param = std::move(param);
  return result;
}

std::string error_json(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::json() : nlohmann::json(text);
  };
  const nlohmann::ordered_json body = {{"error",
                                        {{"message", error.message},
                                         {"type", error.type},
                                         {"param", text_or_null(error.param)},
                                         {"code", text_or_null(error.code)}}}};
  // Messages quote requests, whose bytes need not be UTF-8.
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.body = error_json(error);
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (error.status == 503) response.headers.push_back({"Retry-After", "1"});
  return response;
}

}  // namespace quintet
