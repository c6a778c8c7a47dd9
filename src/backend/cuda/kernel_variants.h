// What the products of a format take of a device, variant by variant: asked of the driver, not assumed.
#pragma once

#include <vector>

#include "backend/cuda/cuda.h"
#include "backend/kernel_table.h"
#include "quant/format.h"

namespace quintet {

/// Every variant of the product of a large weight; launches nothing. bad_input where the device has no kernels for the format.
Result<std::vector<KernelVariant>> cuda_kernel_variants(const CudaOptions& options, WeightFormat format);

}  // namespace quintet
