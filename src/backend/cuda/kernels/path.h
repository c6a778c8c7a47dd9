// Which set of kernels a translation unit belongs to. The sources under inst/ are compiled once for each set:
//
//   hopper  sm_90a: programmatic dependent launch, clusters, bulk copies, wgmma
//   sm80    sm_80 and everything later, by what sm_80 has alone: mma.sync and cp.async, whatever the target
//
// Both give the same bits. Kernels and launchers lie in a namespace of their set, so that both can be linked together.
#pragma once

#if QUINTET_CUDA_HOPPER
#define QUINTET_CUDA_PATH hopper
#else
#define QUINTET_CUDA_PATH sm80
#endif
