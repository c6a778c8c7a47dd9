// What the methods of str share with the filters of the same names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/interpreter.h"

namespace quintet::jinja {

/// str.strip and its halves; `chars` null or none: white space.
Value strip_text(Interpreter& in, const Value& self, const Value* chars, bool left = true, bool right = true);
std::string capitalize_text(Interpreter& in, std::string_view text);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);
/// str.replace; a negative count means all.
std::string replace_text(Interpreter& in, std::string_view text, std::string_view old, std::string_view with,
                         int64_t count);
/// str.islower and str.isupper.
bool is_lower_text(std::string_view text);
bool is_upper_text(std::string_view text);

/// All methods of str by name, sorted; the second list is the part of them that asks and searches.
const std::vector<MethodEntry>& string_methods();
std::vector<MethodEntry> string_queries();

}  // namespace quintet::jinja
