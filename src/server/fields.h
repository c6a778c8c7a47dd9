// Reads the members of a JSON object one by one: checks types and ranges, keeps the first error, finds
// unknown members.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/errors.h"

namespace quintet {

/// A member that is null counts as absent. After the first error, in this reader or another with the same
/// slot, nothing more is read.
class Fields {
 public:
  using Json = nlohmann::ordered_json;

  /// `path` is where the object lies ("messages[0]"), empty at the top. Reports to `error` where `value` is
  /// no object.
  Fields(const Json& value, std::string path, std::optional<ApiError>& error);

  /// The member, or null where it is absent. It is known from then on.
  const Json* take(std::string_view name);
  /// Like take(), and an error where it is absent.
  const Json* require(std::string_view name);

  bool boolean(std::string_view name, bool fallback);
  std::optional<double> number(std::string_view name, double min, double max);
  std::optional<int64_t> integer(std::string_view name, int64_t min, int64_t max);
  std::optional<std::string> text(std::string_view name);

  /// These members may be there and change nothing.
  void ignore(std::initializer_list<std::string_view> names);
  /// An error where the member is there: it would change the answer and is not supported.
  void refuse(std::string_view name, std::string_view why);

  /// An error that names the first member that nobody took.
  void finish();

  std::string path_of(std::string_view name) const;
  void fail_type(const std::string& path, std::string_view wanted, const Json& found);
  void fail_value(const std::string& path, std::string message);
  void fail_unsupported(const std::string& path, std::string message);
  bool failed() const { return error_.has_value(); }

 private:
  void fail(const std::string& path, std::string message, std::string code);

  const Json& object_;
  std::string path_;
  std::optional<ApiError>& error_;
  std::vector<std::string_view> known_;
};

}  // namespace quintet
