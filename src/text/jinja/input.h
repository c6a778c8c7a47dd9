// JSON to values: what a conversation is before the template sees it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace quintet::jinja {

using TextRewrite = std::function<std::string(std::string)>;

/// Keeps the order of keys, the form of floats and integers of any size. `rewrite`, where there is one, is
/// put over every string and key. Fails with `what` and the place in the text.
Value parse_json(Heap& heap, std::string_view text, std::string_view what, const TextRewrite& rewrite);

}  // namespace quintet::jinja
