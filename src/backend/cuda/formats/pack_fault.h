// What packing can meet in a weight of a file: told by kernels, read by host code.
#pragma once

#include <cstdint>

namespace quintet::cuda {

enum class PackFault : uint32_t { none, out_of_range, not_finite };  ///< out_of_range: the weight needs a larger unit (format.cuh)

}  // namespace quintet::cuda
