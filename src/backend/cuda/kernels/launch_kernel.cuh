// One launch with all attributes: on Hopper dependent on the kernel before it and in a cluster; with dynamic shared memory.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/kernels/launchers.h"

namespace quintet::cuda::QUINTET_CUDA_PATH {

struct LaunchShape {
  dim3 grid, block;
  size_t shared_bytes = 0;
  int cluster_x = 1;
};

/// An error where a multiprocessor holds not one block of it.
template <class Params>
cudaError_t measure_use(void (*kernel)(Params), const LaunchShape& shape, std::vector<KernelUse>& uses) {
  cudaFuncAttributes attributes;
  if (const cudaError_t code = cudaFuncGetAttributes(&attributes, kernel); code != cudaSuccess) return code;
  KernelUse use = {.threads = static_cast<int>(shape.block.x * shape.block.y * shape.block.z), .registers = attributes.numRegs,
                   .local_bytes = attributes.localSizeBytes, .shared_bytes = attributes.sharedSizeBytes + shape.shared_bytes};
  const cudaError_t code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&use.blocks, kernel, use.threads, shape.shared_bytes);
  uses.push_back(use);
  return code == cudaSuccess && use.blocks == 0 ? cudaErrorLaunchOutOfResources : code;
}

template <class Params>
cudaError_t launch_kernel(void (*kernel)(Params), const Params& params, const LaunchShape& shape, const LaunchSite& site) {
  if (site.uses) return measure_use(kernel, shape, *site.uses);
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = site.stream;
#if QUINTET_CUDA_HOPPER
  cudaLaunchAttribute attributes[2];
  config.attrs = attributes;
  if (site.dependent) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster_x > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs].val.clusterDim.x = static_cast<unsigned>(shape.cluster_x);
    attributes[config.numAttrs].val.clusterDim.y = attributes[config.numAttrs].val.clusterDim.z = 1;
    ++config.numAttrs;
  }
#endif
  return cudaLaunchKernelEx(&config, kernel, params);
}

/// Shared memory beyond 48 KiB, static included, must be asked for once a kernel; asking again is harmless and cheap.
template <class Params>
cudaError_t allow_shared(void (*kernel)(Params), size_t bytes) {
  if (bytes <= 32 * 1024) return cudaSuccess;
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
