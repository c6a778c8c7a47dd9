// The point sets of the i-quants: an index in a block names a run of 8 (or 4) magnitudes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace quintet {

using GridRun8 = std::array<uint8_t, 8>;  ///< magnitudes out of {8, 25, 43}
using GridRun4 = std::array<uint8_t, 4>;

std::span<const GridRun8> iq2_xxs_grid();  ///< [256]
std::span<const GridRun8> iq2_xs_grid();   ///< [512]
std::span<const GridRun8> iq2_s_grid();    ///< [1024]
std::span<const GridRun4> iq3_xxs_grid();  ///< [256]
std::span<const GridRun4> iq3_s_grid();    ///< [512]

}  // namespace quintet
