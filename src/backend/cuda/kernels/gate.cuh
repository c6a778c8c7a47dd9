// Gate and up from the partial sums of their product: slices added in order, activation(gate) * up, as operand B of the
// product after. 8 outputs of gate and 8 of up alternate in the columns.
#pragma once

#include "backend/cuda/kernels/activation_function.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/path.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/slices.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// grid: x = chunks of 256 outputs, y = rows; 128 threads of two outputs.
__global__ void __launch_bounds__(128) gate_rows(const __grid_constant__ GateParams p) {
  launch_dependents();
  wait_for_previous();
  const int row = blockIdx.y, n = (blockIdx.x * 128 + threadIdx.x) * 2;
  if (n >= p.layout.k_padded) return;
  if (n >= p.n) {  // the padding may hold another layout's numbers
    *reinterpret_cast<half2*>(p.out + p.layout.index(row, n)) = __float2half2_rn(0.f);
    return;
  }
  const size_t gate_at = static_cast<size_t>(n / 8) * 16 + n % 8;
  const float* from = p.partial + static_cast<size_t>(row) * p.stride + gate_at;
  const float2 gate = add_slices<float2>(from, p.slice_stride, p.slices), up = add_slices<float2>(from + 8, p.slice_stride, p.slices);
  *reinterpret_cast<half2*>(p.out + p.layout.index(row, n)) =
      __floats2half2_rn(activate(p.activation, gate.x) * up.x, activate(p.activation, gate.y) * up.y);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
