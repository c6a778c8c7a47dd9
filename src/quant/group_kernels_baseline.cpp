// The encoders' kernels for the target baseline; the build gives this file its instruction set.
#define QUINTET_TARGET encode_baseline
#include "quant/simd/groups-inl.h"
