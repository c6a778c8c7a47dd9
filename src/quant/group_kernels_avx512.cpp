// The encoders' kernels for the target avx512; the build gives this file its instruction set.
#define QUINTET_TARGET encode_avx512
#include "quant/simd/groups-inl.h"
