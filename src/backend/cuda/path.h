// Which set of kernels a device runs on.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/gptq.h"
#include "backend/cuda/kernels/launch.h"

namespace quintet::cuda {

/// The kernels of this build for a device, and the path that they take. bad_input where there are none, or none of the path that
/// is wanted, or the device has less shared memory than they ask for.
struct DeviceKernels {
  const Kernels* kernels;
  const GptqKernels* gptq;
  CudaPath path;
};
Result<DeviceKernels> device_kernels(CudaPath wanted, const cudaDeviceProp& properties);

/// Where launches on such a device go.
LaunchSite launch_site(const cudaDeviceProp& properties, const CudaOptions& options, cudaStream_t stream);

}  // namespace quintet::cuda
