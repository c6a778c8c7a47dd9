// The kernels for the target avx2; the build gives this file its instruction set.
#define QUINTET_TARGET avx2
#include "backend/cpu/simd/table-inl.h"
