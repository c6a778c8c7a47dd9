// The integer formats' kernels for the target avx512; the build gives this file its instruction set.
#define QUINTET_TARGET rows_avx512
#include "quant/simd/rows-inl.h"
