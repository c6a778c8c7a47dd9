// A weight as the CPU backend holds it, and the way there from the bytes of a file and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/layout.h"
#include "backend/cpu/pool.h"
#include "backend/weight.h"
#include "base/result.h"

namespace quintet::cpu {

/// Memory in which packed weights lie: large mappings, handed out from the front, so that huge pages serve
/// them all.
class Arena {
 public:
  struct Chunk;
  struct Block {
    std::shared_ptr<Chunk> chunk;  ///< keeps the mapping
    uint8_t* data = nullptr;
  };
  /// `bytes` of memory, aligned to 128; data is null where the system refuses.
  Block take(size_t bytes);

 private:
  std::shared_ptr<Chunk> current_;
};

/// A weight kept apart from a tile's codes: added to the products of row `row` of the tile.
struct TileOutlier {
  float value = 0;
  uint16_t column = 0;
  uint16_t row = 0;
};

/// One part of a weight: tiles of 16 rows, the last one filled up with zeros.
struct Segment {
  Layout layout = Layout::f32;
  WeightFormat format = WeightFormat::f32;
  int64_t n = 0;
  int64_t tiles = 0;
  int64_t first_row = 0;    ///< in the whole weight
  uint8_t* data = nullptr;  ///< [tiles][tile_bytes]
  std::vector<TileOutlier> outliers;    ///< by tile, then row, then column; the order in which they are added
  std::vector<uint32_t> outlier_begin;  ///< [tiles + 1] first outlier of each tile; empty where there are none

  std::span<const TileOutlier> outliers_of(int64_t tile) const {
    if (outlier_begin.empty()) return {};
    const auto at = static_cast<size_t>(tile);
    return std::span(outliers).subspan(outlier_begin[at], outlier_begin[at + 1] - outlier_begin[at]);
  }
};

struct CpuWeight : PackedWeight {
  int64_t k = 0;
  std::vector<Segment> segments;  ///< linear roles
  std::vector<float> vector;      ///< role vector
  std::vector<int32_t> in_perm;   ///< as in HostWeight, of all segments; empty: none
  HostWeight table;               ///< role embedding: rows are decoded from the file as they are looked up
  Arena::Block memory;
  uint64_t memory_bytes = 0;
  uint64_t outlier_bytes = 0;
  /// What the segments' products read: codes and scales, sums of 16 codes, plain values.
  bool reads_codes = false, reads_sum16 = false, reads_values = false;
};

/// Packs `parts` for products. bad_input names the tensor that holds a value that is not finite.
Result<std::unique_ptr<CpuWeight>> pack_weight(WeightRole role, std::span<const HostWeight> parts,
                                               Arena& arena, Pool& pool);

/// Decodes one row of a packed weight, in logical order, exactly as the scalar codec of its format does.
void unpack_row(const CpuWeight& weight, int64_t row, float* out);

}  // namespace quintet::cpu
