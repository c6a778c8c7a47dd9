// The tables of filters and tests: names to functions.
#pragma once

#include <string_view>

#include "text/jinja/value.h"

namespace quintet::jinja {

class Interpreter;
struct Arguments;

using FilterFunction = Value (*)(Interpreter&, const Value& input, Arguments& args);
using TestFunction = bool (*)(Interpreter&, const Value& input, Arguments& args);

/// Index of a filter or test by name, -1 where there is none.
int find_filter(std::string_view name);
int find_test(std::string_view name);
FilterFunction filter_function(int id);
TestFunction test_function(int id);

}  // namespace quintet::jinja
