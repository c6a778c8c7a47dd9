// Packing of whole weights on all threads, straight from the mapped file, whose pages are let go behind it.
#include "backend/cpu/weight.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "backend/cpu/pack_formats.h"
#include "base/check.h"

namespace quintet::cpu {

struct Arena::Chunk {
  uint8_t* data = nullptr;
  size_t bytes = 0;
  size_t used = 0;
  ~Chunk() { munmap(data, bytes); }
};

Arena::Block Arena::take(size_t bytes) {
  constexpr size_t kChunkBytes = size_t{64} << 20, kHugePage = size_t{2} << 20;
  bytes = (bytes + 127) / 128 * 128;
  if (!current_ || current_->bytes - current_->used < bytes) {
    const size_t wanted = std::max(kChunkBytes, (bytes + kHugePage - 1) / kHugePage * kHugePage);
    void* data = mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return {};
    madvise(data, wanted, MADV_HUGEPAGE);  // a hint: fewer faults at load, fewer TLB misses in every step
    auto chunk = std::make_shared<Chunk>();
    chunk->data = static_cast<uint8_t*>(data);
    chunk->bytes = wanted;
    current_ = std::move(chunk);
  }
  Block block{current_, current_->data + current_->used};
  current_->used += bytes;
  return block;
}

namespace {

/// Whether [begin, begin + bytes) lies in a read-only mapping of a file: only there may pages be dropped,
/// since they come back from the file. Asks the kernel each time, because an address may since mean something
/// else.
bool in_file_mapping(const uint8_t* begin, size_t bytes) {
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (!maps) return false;
  const auto low = reinterpret_cast<uintptr_t>(begin), high = low + bytes;
  char line[512];
  bool found = false, at_start = true;
  while (std::fgets(line, sizeof(line), maps)) {
    const bool whole = std::strchr(line, '\n') != nullptr;
    uintptr_t from = 0, to = 0;
    char access[5] = {};
    unsigned long inode = 0;
    if (at_start &&
        std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*x %*s %lu", &from, &to, access, &inode) == 4 &&
        from <= low && high <= to) {
      found = access[1] == '-' && inode != 0;
      break;
    }
    at_start = whole;
  }
  std::fclose(maps);
  return found;
}

/// Lets go the pages that [begin, end) touches. Those at its ends may still be wanted: they come back from
/// the file.
void drop_pages(const uint8_t* begin, const uint8_t* end) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t low = reinterpret_cast<uintptr_t>(begin) / page * page;
  const uintptr_t high = (reinterpret_cast<uintptr_t>(end) + page - 1) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(low), high - low, MADV_DONTNEED);
}

/// Packs tile `tile` of a part; returns the row of a value that is not finite, or -1.
int64_t pack_tile(const HostWeight& part, const Segment& segment, int64_t tile) {
  const LayoutInfo info = layout_info(segment.layout);
  const int step = pack_step(part.format);
  const FormatInfo& format = format_info(part.format);
  const auto row_bytes = static_cast<size_t>(part.row_bytes());
  const auto tile_size = static_cast<size_t>(tile_bytes(segment.layout, part.k));
  uint8_t* out = segment.data + static_cast<size_t>(tile) * tile_size;
  if ((tile + 1) * kTileRows > part.n) std::memset(out, 0, tile_size);  // rows that do not exist
  int64_t bad = -1;
  if (is_dense(segment.layout)) {
    const uint8_t* rows[kTileRows] = {};
    const auto count = static_cast<int>(std::min<int64_t>(kTileRows, part.n - tile * kTileRows));
    for (int row = 0; row < count; ++row)
      rows[row] = part.bytes.data() + static_cast<size_t>(tile * kTileRows + row) * row_bytes;
    if (pack_float_tile(part.format, rows, count, part.k, out)) return -1;
    for (int row = 0; row < count; ++row)
      if (!blocks_finite(part.format, rows[row], part.k)) return tile * kTileRows + row;
  }
  for (int row = 0; row < kTileRows; ++row) {
    const int64_t index = tile * kTileRows + row;
    if (index >= part.n) break;
    const uint8_t* source = part.bytes.data() + static_cast<size_t>(index) * row_bytes;
    uint8_t* unit = out;
    const float row_scale = part.row_scale(index);
    bool finite = true;
    for (int64_t k = 0; k < part.k; k += step) {
      finite &= pack_unit_row(part.format, source, row_scale, unit, row);
      source += step / format.block_weights * format.block_bytes;
      unit += step / info.unit_k * info.unit_bytes;
    }
    if (!finite && bad < 0) bad = index;
  }
  return bad;
}

/// Sorts a part's outliers by the tiles of its segment.
void add_outliers(const HostWeight& part, Segment& segment) {
  if (part.outliers.empty()) return;
  for (int64_t row = 0; row < part.n; ++row) {
    if (row % kTileRows == 0) segment.outlier_begin.push_back(static_cast<uint32_t>(segment.outliers.size()));
    for (uint32_t i = part.outliers.first_of(row); i < part.outliers.first_of(row + 1); ++i)
      segment.outliers.push_back({.value = part.outliers.value(i),
                                  .column = part.outliers.column(i),
                                  .row = static_cast<uint16_t>(row % kTileRows)});
  }
  segment.outlier_begin.push_back(static_cast<uint32_t>(segment.outliers.size()));
}

Error not_finite(const HostWeight& part, int64_t row) {
  return bad_input(
      fmt::format("tensor {}: row {} holds a {} that is NaN or infinite; every one must be finite", part.name,
                  row, is_dense(layout_of(part.format)) ? "value" : "scale"));
}

/// A row of a table that is not finite, or -1. Reads the mapped bytes once and lets them go.
int64_t first_bad_row(const HostWeight& part, Pool& pool) {
  const bool mapped = in_file_mapping(part.bytes.data(), part.bytes.size());
  const auto row_bytes = static_cast<size_t>(part.row_bytes());
  const int64_t blocks = part.k / format_info(part.format).block_weights;
  std::atomic<int64_t> bad{-1};
  pool.each_range(part.n, [&](int, Range range) {
    const uint8_t* begin = part.bytes.data() + static_cast<size_t>(range.begin) * row_bytes;
    const uint8_t* end = part.bytes.data() + static_cast<size_t>(range.end) * row_bytes;
    int64_t none = -1;
    for (int64_t row = range.begin; row < range.end && bad < 0; ++row)
      if (!blocks_finite(part.format, part.bytes.data() + static_cast<size_t>(row) * row_bytes, blocks))
        bad.compare_exchange_strong(none, row);
    if (mapped) drop_pages(begin, end);
  });
  return bad;
}

Status check_part(const HostWeight& part, int64_t k) {
  QUINTET_CHECK(part.k == k, "parts of one weight share k: {} and {}", k, part.k);
  QUINTET_CHECK(part.n > 0 && part.k > 0 && part.k % format_info(part.format).block_weights == 0,
                "{}: [{}, {}] {}", part.name, part.n, part.k, format_info(part.format).name);
  const auto wanted = static_cast<size_t>(part.n) * static_cast<size_t>(part.row_bytes());
  QUINTET_CHECK(part.bytes.size() >= wanted, "{}: {} bytes, not {}", part.name, part.bytes.size(), wanted);
  return {};
}

}  // namespace

Result<std::unique_ptr<CpuWeight>> pack_weight(WeightRole role, std::span<const HostWeight> parts,
                                               Arena& arena, Pool& pool) {
  QUINTET_CHECK(!parts.empty());
  auto weight = std::make_unique<CpuWeight>();
  weight->k = parts[0].k;
  for (const HostWeight& part : parts) {
    TRY(check_part(part, weight->k));
    if (!std::ranges::equal(part.in_perm, parts[0].in_perm))
      return bad_input(fmt::format("tensor {}: found another order of its inputs than that of tensor {}, allowed for "
                                   "parts of one weight is the same",
                                   part.name, parts[0].name));
  }
  weight->in_perm.assign(parts[0].in_perm.begin(), parts[0].in_perm.end());

  if (role == WeightRole::vector) {
    for (const HostWeight& part : parts) {
      std::vector<float> values(static_cast<size_t>(part.n * part.k));
      for (int64_t row = 0; row < part.n; ++row) decode_row(part, row, values.data() + row * part.k);
      for (size_t i = 0; i < values.size(); ++i)
        if (!(values[i] - values[i] == 0)) return not_finite(part, static_cast<int64_t>(i) / part.k);
      weight->vector.insert(weight->vector.end(), values.begin(), values.end());
    }
    return weight;
  }
  if (role == WeightRole::embedding && parts.size() == 1) {
    weight->table = parts[0];
    const int64_t bad = first_bad_row(parts[0], pool);
    if (bad >= 0) return not_finite(parts[0], bad);
    return weight;
  }

  size_t total = 0;
  int64_t first_row = 0, tiles = 0;
  for (const HostWeight& part : parts) {
    Segment segment{.layout = layout_of(part.format),
                    .format = part.format,
                    .n = part.n,
                    .tiles = (part.n + kTileRows - 1) / kTileRows,
                    .first_row = first_row};
    first_row += part.n;
    tiles += segment.tiles;
    total += static_cast<size_t>(segment.tiles * tile_bytes(segment.layout, part.k) + 127) / 128 * 128;
    const LayoutInfo info = layout_info(segment.layout);
    weight->reads_codes |= info.integer;
    weight->reads_sum16 |= info.integer && info.minimum && info.scale_every == 16;
    weight->reads_values |= !info.integer || !part.outliers.empty();
    add_outliers(part, segment);
    weight->outlier_bytes += segment.outliers.size() * sizeof(TileOutlier);
    weight->segments.push_back(std::move(segment));
  }
  weight->memory = arena.take(total);
  weight->memory_bytes = total;
  if (!weight->memory.data)
    return no_room(fmt::format("tensor {}: no memory for {} bytes", parts[0].name, total));
  uint8_t* data = weight->memory.data;
  for (Segment& segment : weight->segments) {
    segment.data = data;
    data += static_cast<size_t>(segment.tiles * tile_bytes(segment.layout, weight->k) + 127) / 128 * 128;
  }

  std::vector<char> mapped(parts.size());
  for (size_t i = 0; i < parts.size(); ++i)
    mapped[i] = in_file_mapping(parts[i].bytes.data(), parts[i].bytes.size());
  std::vector<std::atomic<int64_t>> bad(parts.size());
  for (auto& row : bad) row = -1;
  // Tiles [begin, end) of part i, read once: their pages are let go as soon as a megabyte lies behind.
  const auto pack_tiles = [&](size_t i, int64_t begin, int64_t end) {
    constexpr size_t kDropBytes = size_t{1} << 20;
    const HostWeight& part = parts[i];
    const auto source_at = [&](int64_t tile) {
      return part.bytes.data() + static_cast<size_t>(std::min(tile * kTileRows, part.n) * part.row_bytes());
    };
    const uint8_t* kept = source_at(begin);
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t row = pack_tile(part, weight->segments[i], tile);
      int64_t none = -1;
      if (row >= 0) bad[i].compare_exchange_strong(none, row);
      const uint8_t* read = source_at(tile + 1);
      if (mapped[i] && (static_cast<size_t>(read - kept) >= kDropBytes || tile + 1 == end)) {
        drop_pages(kept, read);
        kept = read;
      }
    }
  };
  pool.each_range(tiles, [&](int, Range range) {
    int64_t before = 0;
    for (size_t i = 0; i < parts.size(); before += weight->segments[i].tiles, ++i)
      pack_tiles(i, std::max<int64_t>(range.begin - before, 0),
                 std::min(range.end - before, weight->segments[i].tiles));
  });
  for (size_t i = 0; i < parts.size(); ++i)
    if (bad[i] >= 0) return not_finite(parts[i], bad[i]);
  return weight;
}

void unpack_row(const CpuWeight& weight, int64_t row, float* out) {
  if (!weight.vector.empty()) {
    std::memcpy(out, weight.vector.data() + row * weight.k, static_cast<size_t>(weight.k) * sizeof(float));
    return;
  }
  if (!weight.table.bytes.empty()) return decode_row(weight.table, row, out);
  for (const Segment& segment : weight.segments) {
    if (row >= segment.first_row + segment.n) continue;
    const LayoutInfo info = layout_info(segment.layout);
    const int64_t index = row - segment.first_row;
    const uint8_t* unit =
        segment.data + static_cast<size_t>(index / kTileRows * tile_bytes(segment.layout, weight.k));
    for (int64_t k = 0; k < weight.k; k += info.unit_k, unit += info.unit_bytes)
      unpack_unit_row(segment.layout, unit, static_cast<int>(index % kTileRows), out + k);
    if (!weight.in_perm.empty()) {
      const std::vector<float> stored(out, out + weight.k);
      for (size_t i = 0; i < stored.size(); ++i) out[weight.in_perm[i]] = stored[i];
    }
    for (const TileOutlier& outlier : segment.outliers_of(index / kTileRows))
      if (outlier.row == index % kTileRows) out[outlier.column] += outlier.value;
    return;
  }
}

}  // namespace quintet::cpu
