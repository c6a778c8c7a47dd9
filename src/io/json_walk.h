// Walks untrusted JSON value by value without building a tree, so that memory stays bounded by one string and
// the depth.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quintet {

/// A value, or the begin or end of a container.
struct JsonEvent {
  enum class Kind : uint8_t {
    begin_object,
    end_object,
    begin_array,
    end_array,
    string,
    unsigned_integer,
    number,
    boolean,
    null
  };

  Kind kind = Kind::null;
  std::span<const std::string>
      path;                 ///< keys from the root to this value; elements of an array have its path
  std::string_view string;  ///< of a string
  uint64_t integer = 0;     ///< of an integer of 0 or more; negative ones and fractions are `number`
  bool in_array = false;    ///< an element of an array, not the value of a key
};

/// "an object", "a string", ...
std::string_view json_kind_name(JsonEvent::Kind kind);

/// Calls `visit` in the order of the text; the first error, its own or of the syntax, ends the walk. `origin`
/// names the text in errors. Containers deeper than `max_depth` are an error.
Status walk_json(std::string_view text, std::string_view origin, int max_depth,
                 const std::function<Status(const JsonEvent&)>& visit);

}  // namespace quintet
