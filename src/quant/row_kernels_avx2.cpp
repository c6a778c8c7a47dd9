// The integer formats' kernels for the target avx2; the build gives this file its instruction set.
#define QUINTET_TARGET rows_avx2
#include "quant/simd/rows-inl.h"
