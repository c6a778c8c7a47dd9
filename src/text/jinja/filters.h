// The filters by group; each group's table goes into the registry.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/registry.h"

namespace quintet::jinja {

struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};

std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> value_filters();
std::span<const FilterEntry> sequence_filters();

}  // namespace quintet::jinja
