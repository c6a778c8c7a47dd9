// The encoders' kernels for the target avx2; the build gives this file its instruction set.
#define QUINTET_TARGET encode_avx2
#include "quant/simd/groups-inl.h"
