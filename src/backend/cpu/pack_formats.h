// From the blocks of a model file to the records of a packed tile, and back: one row of one unit at a time.
#pragma once

#include <cstdint>

#include "backend/cpu/layout.h"
#include "quant/format.h"

namespace quintet::cpu {

/// The packed layout of a format. All are exact: unpacking gives what the scalar codec gives.
Layout layout_of(WeightFormat format);

/// Inputs that one call of pack_unit_row takes: whole blocks of the format and whole units of its layout.
int pack_step(WeightFormat format);

/// Packs `count` rows of k values of a float format into a tile. False: a value is not finite.
bool pack_float_tile(WeightFormat format, const uint8_t* const* rows, int count, int64_t k, uint8_t* tile);

/// Writes row `row` of the units at `units` from the source blocks of pack_step(format) inputs of a
/// compressed format, `row_scale` being HostWeight::row_scale(). False: a scale (or a value of E4M3) is not finite.
bool pack_unit_row(WeightFormat format, const uint8_t* source, float row_scale, uint8_t* units, int row);

/// Whether the scales (of a float format: the values) of `count` source blocks are finite.
bool blocks_finite(WeightFormat format, const uint8_t* source, int64_t count);

/// Decodes row `row` of one unit into out [unit_k].
void unpack_unit_row(Layout layout, const uint8_t* unit, int row, float* out);

}  // namespace quintet::cpu
