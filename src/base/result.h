// A value or an error: what every call that can fail on untrusted input, I/O or lack of room returns.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"

namespace quintet {

/// Why a call failed; the command line maps it to an exit code, the server to an HTTP status.
enum class ErrorKind {
  bad_input,  ///< the caller's bytes, flags or request are wrong (exit 2, HTTP 400)
  not_found,  ///< a named thing does not exist (exit 2, HTTP 404)
  no_room,    ///< memory, disk, queue or context is too small (exit 1, HTTP 503 or 400)
  io,         ///< the operating system refused (exit 1, HTTP 500)
  cancelled,  ///< somebody asked for it to stop
  internal,   ///< a fault of this program or its device (exit 1, HTTP 500)
};

/// What went wrong, in one sentence for the person who can mend it: names the file or field, what was found
/// and what is allowed.
struct Error {
  ErrorKind kind = ErrorKind::internal;
  std::string message;
};

inline Error bad_input(std::string message) { return {ErrorKind::bad_input, std::move(message)}; }
inline Error not_found(std::string message) { return {ErrorKind::not_found, std::move(message)}; }
inline Error no_room(std::string message) { return {ErrorKind::no_room, std::move(message)}; }
inline Error io_error(std::string message) { return {ErrorKind::io, std::move(message)}; }
inline Error internal_error(std::string message) { return {ErrorKind::internal, std::move(message)}; }

/// A subset of std::expected<T, Error> (C++23): a value or an Error, never both, never neither.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit by design

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & { QUINTET_CHECK(has_value(), "value() of an error: {}", error().message); return std::get<0>(state_); }
  const T& value() const& { QUINTET_CHECK(has_value(), "value() of an error: {}", error().message); return std::get<0>(state_); }
  T&& value() && { QUINTET_CHECK(has_value(), "value() of an error: {}", error().message); return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design

  bool has_value() const { return !error_; }
  explicit operator bool() const { return has_value(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace quintet

#define QUINTET_CONCAT_(a, b) a##b
#define QUINTET_CONCAT(a, b) QUINTET_CONCAT_(a, b)

/// TRY(expression): returns its error from the enclosing function, if it is one.
#define TRY(...)                                                             \
  do {                                                                       \
    if (auto&& try_result_ = (__VA_ARGS__); !try_result_.has_value())        \
      return std::forward<decltype(try_result_)>(try_result_).error();       \
  } while (false)

/// TRY_ASSIGN(auto x, expression): declares x from its value, or returns its error.
#define TRY_ASSIGN(declaration, ...) TRY_ASSIGN_(QUINTET_CONCAT(try_result_, __LINE__), declaration, __VA_ARGS__)
#define TRY_ASSIGN_(temporary, declaration, ...)       \
  auto temporary = (__VA_ARGS__);                      \
  if (!temporary.has_value()) return std::move(temporary).error(); \
  declaration = std::move(temporary).value()
