// The kernels of one target as a table. A kernels_<target>.cpp defines QUINTET_TARGET and includes this file
// alone.
#define HWY_COMPILE_ONLY_STATIC 1
#include "backend/cpu/kernels.h"

// The vectors first, then what is written on them.
#include "quant/blocks.h"
// clang-format off
#include "backend/cpu/simd/vector-inl.h"
#include "backend/cpu/simd/formats-inl.h"
#include "backend/cpu/simd/product-inl.h"
#include "backend/cpu/simd/rows-inl.h"
#include "backend/cpu/simd/attend-inl.h"
// clang-format on

#define QUINTET_STRING_(x) #x
#define QUINTET_STRING(x) QUINTET_STRING_(x)

namespace quintet::cpu::QUINTET_TARGET {

const Kernels& kernels() {
#if HWY_NATIVE_FMA
  constexpr bool kFused = true;
#else
  constexpr bool kFused = false;
#endif
  static constexpr Kernels table = {
      .name = QUINTET_STRING(QUINTET_TARGET),
      .fused_multiply_add = kFused,
      .group_sizes = kGroupSizes,
      .direct_rows = kDirectRows,
      .max_queries = kMaxQueries,
      .pack_row = pack_row,
      .norm_row = norm_row,
      .unpack_panel = unpack_panel,
      .product = product,
      .gate = gate,
      .add = add_row,
      .attend = attend,
      .merge = merge,
      .to_f16 = to_f16,
  };
  return table;
}

}  // namespace quintet::cpu::QUINTET_TARGET
