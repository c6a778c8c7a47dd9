// Errors as OpenAI's clients expect them: {"error": {"message", "type", "param", "code"}} under the right
// status.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/result.h"
#include "server/http.h"

namespace quintet {

/// `param` names the field of the request that is at fault, `code` is for programs; both may be empty (null).
struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;
  std::string code;
};

/// A value or the error that the client is told.
template <class T>
class [[nodiscard]] ApiResult {
 public:
  ApiResult(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  ApiResult(ApiError error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit by design
  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& operator*() { return std::get<0>(state_); }
  const T& operator*() const { return std::get<0>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const ApiError& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, ApiError> state_;
};

/// 400 for a field of the request.
ApiError field_error(std::string param, std::string message, std::string code = "");
/// An error of the parts below; `param` is the field that it is about, if any.
ApiError api_error(const Error& error, std::string param = "");
/// An error of the transport, or of a route: 401, 404, 405, 408, 413, 415, 431, 500, 503.
ApiError status_error(int status, std::string message, std::string code = "");

std::string error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);

}  // namespace quintet
