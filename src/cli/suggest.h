// "Did you mean ...?" for names that nobody knows.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace quintet {

/// The one of `known` that `name` was probably meant to be: one that contains the other (without dashes), or
/// that few edits make of it. Empty where none is near.
std::string nearest_name(std::string_view name, std::span<const std::string> known);

}  // namespace quintet
