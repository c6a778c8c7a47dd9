// What a few rows of a tensor say for all.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "quant/host_weight.h"

namespace quintet {

/// `rows` rows (at most weight.n), spread evenly over the weight: [rows, k].
Result<std::vector<float>> sample_rows(const HostWeight& weight, int64_t rows);

}  // namespace quintet
