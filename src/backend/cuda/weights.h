// Weights on the device: uploaded once as they lie in the file, packed into panels there.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/rt/arena.h"
#include "backend/cuda/upload.h"
#include "backend/weight.h"

namespace quintet::cuda {

/// A run of outputs in one format. Merged parts share a segment; gate and up of one format alternate by 8 rows.
struct Segment {
  const ProductKernels* kernels = nullptr;
  uint8_t* panels = nullptr;
  int n = 0;         ///< padded to whole units of every kernel variant
  int pieces = 0;    ///< a row
  float unit = 1;    ///< products multiply by it (formats/format.cuh)
  int first_column = 0;  ///< where its outputs begin among the weight's padded outputs

  size_t bytes() const { return static_cast<size_t>(n / 16) * static_cast<size_t>(pieces) * static_cast<size_t>(kernels->piece_bytes); }
};

struct PartPlace {
  int segment = 0;
  int first_row = 0;  ///< of the segment; 0 where rows alternate
  PieceRows rows;
  int n = 0;
};

struct CudaWeight : PackedWeight {
  std::vector<Segment> segments;
  std::vector<PartPlace> parts;
  float* vector = nullptr;  ///< role vector
  int columns = 0;          ///< padded outputs of all segments: the stride of partial sums
  OutlierSide outliers = {};  ///< by padded output
  const int* in_perm = nullptr;  ///< [k] on the device, or null: HostWeight::in_perm of all parts
  std::vector<int32_t> host_in_perm;
  std::vector<std::shared_ptr<const void>> memory;  ///< the slabs in which it lies

  /// Whether its product of one row can be part of a larger kernel: inputs made there, what is kept apart added there.
  bool joins_row() const { return !in_perm && (!outliers.begin || std::ranges::all_of(segments, [](const Segment& segment) { return segment.kernels->chains_outliers; })); }
  /// Whether its partial products by tiles of `tile_rows` rows add what is kept apart themselves.
  bool joins_outliers(int tile_rows) const { return std::ranges::all_of(segments, [&](const Segment& segment) { return tile_rows <= segment.kernels->outlier_rows; }); }
  /// Column of the padded outputs where row `row` of a part lies.
  int column_of(const PartPlace& place, int row) const {
    const int first = segments[static_cast<size_t>(place.segment)].first_column;
    const int own = place.first_row + row;
    return first + place.rows.piece(own) * 16 + place.rows.local(own);
  }
};

/// Outputs of a segment are padded to this many, the widest unit of a kernel variant.
inline constexpr int kUnitOutputs = 256;

class WeightPacker {
 public:
  WeightPacker(const Kernels& kernels, Arena& arena, LaunchSite site) : kernels_(kernels), arena_(arena), site_(site) {}
  /// See Backend::packed_bytes.
  Result<uint64_t> packed_bytes(WeightRole role, std::span<const HostWeight> parts) const;
  Result<Weight> prepare(WeightRole role, std::span<const HostWeight> parts);
  Status unpack(const Weight& weight, int64_t first, int64_t count, float* out);
  /// Once no more weights come: gives back what preparing them needed.
  void release() { uploader_.release(); }

 private:
  /// Segments and places of the parts, without memory.
  Result<CudaWeight> lay_out(WeightRole role, std::span<const HostWeight> parts) const;
  Result<Weight> prepare_vector(const HostWeight& part);
  /// Packs all parts; false: a segment needs a larger unit, which it has now.
  Result<bool> pack_parts(std::span<const HostWeight> parts, CudaWeight& packed);
  /// The way of a part's blocks into its segment's panels. `beside`: on the device, what they need beside them; `fault`: there, what was found.
  Uploader::Source pack_part(const HostWeight& part, const Segment& segment, const PartPlace& place, const uint8_t* beside, PackFault* fault) const;
  /// Outliers and the order of inputs onto the device.
  Status prepare_sides(std::span<const HostWeight> parts, CudaWeight& packed);
  /// What unpack() has to add to `count` rows of the panels, in place.
  Status add_sides(const CudaWeight& packed, int64_t k, int64_t first, int64_t count, float* out) const;
  /// `bytes` of the arena that stay as long as `packed` does.
  Result<void*> allocate(size_t bytes, CudaWeight& packed);
  /// `values` in such memory.
  template <class T>
  Result<T*> keep(std::span<const T> values, CudaWeight& packed);
  /// `count` elements back from the device; waits.
  template <class T>
  Status fetch(const T* device, T* out, size_t count) const;
  Status reserve_staging(size_t bytes);

  const Kernels& kernels_;
  Arena& arena_;
  LaunchSite site_;
  Uploader uploader_;
  Handle<void*, cudaFree> staging_;
  size_t staging_bytes_ = 0;
};

}  // namespace quintet::cuda
