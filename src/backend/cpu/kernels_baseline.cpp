// The kernels for the target baseline; the build gives this file its instruction set.
#define QUINTET_TARGET baseline
#include "backend/cpu/simd/table-inl.h"
