// Which of its formats each group of tensors gets, so that all fit into so many bytes and lose least.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quant/format.h"

namespace quintet {

/// A format of a group of tensors, and what it costs.
struct FormatOption {
  WeightFormat format = WeightFormat::f16;
  bool changed = false;  ///< false: the tensors stay as they are, whatever `format` says
  uint64_t bytes = 0;
  double kl = 0;
};

/// Leaves the options of which no other is smaller and no worse, and, of steps from one to the next, those whose gain a byte
/// falls: the lower convex hull, by bytes.
void keep_hull(std::vector<FormatOption>& options);

/// Of each group the index of an option: from the first of each on, the step that saves most loss a byte, among those that
/// there is room for, until there is none. `groups` as keep_hull() leaves them; the first ones must fit into `bytes`.
std::vector<size_t> spend_bytes(std::span<const std::vector<FormatOption>> groups, uint64_t bytes);

}  // namespace quintet
