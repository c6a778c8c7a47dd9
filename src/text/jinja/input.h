// JSON to values: what a conversation is before the template sees it.
#pragma once

#include <string_view>

#include "text/jinja/value.h"

namespace quintet::jinja {

/// Keeps the order of keys, the form of floats and integers of any size. Fails with `what` and the place in
/// the text.
Value parse_json(Heap& heap, std::string_view text, std::string_view what);

}  // namespace quintet::jinja
