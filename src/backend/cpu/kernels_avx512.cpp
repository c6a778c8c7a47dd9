// The kernels for the target avx512; the build gives this file its instruction set.
#define QUINTET_TARGET avx512
#include "backend/cpu/simd/table-inl.h"
