// The integer formats' kernels for the target baseline; the build gives this file its instruction set.
#define QUINTET_TARGET rows_baseline
#include "quant/simd/rows-inl.h"
