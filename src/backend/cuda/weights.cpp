// Uploads and packs weights; decodes them back for tests.
#include "backend/cuda/weights.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "quant/grids.h"

namespace quintet::cuda {
namespace {

std::string allowed_formats(const Kernels& kernels) {
  std::string names;
  for (const FormatInfo& info : format_table())
    if (kernels.product(info.format)) names += fmt::format("{}{}", names.empty() ? "" : ", ", info.name);
  return names;
}

template <class Run>
std::span<const uint8_t> bytes_of(std::span<const Run> grid) { return {grid.data()->data(), grid.size_bytes()}; }

/// The grid that a format's numbers name runs of; usually none.
std::span<const uint8_t> grid_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::iq2_xxs: return bytes_of(iq2_xxs_grid());
    case WeightFormat::iq2_xs: return bytes_of(iq2_xs_grid());
    case WeightFormat::iq2_s: return bytes_of(iq2_s_grid());
    case WeightFormat::iq3_xxs: return bytes_of(iq3_xxs_grid());
    case WeightFormat::iq3_s: return bytes_of(iq3_s_grid());
    default: return {};
  }
}

/// What the device needs beside a part's blocks.
std::span<const uint8_t> beside(const HostWeight& part) {
  const std::span<const uint8_t> grid = grid_of(part.format);
  return grid.empty() ? part.row_scales : grid;
}

bool have_outliers(std::span<const HostWeight> parts) {
  return std::ranges::any_of(parts, [](const HostWeight& part) { return !part.outliers.empty(); });
}
/// Of all rows of a part, which may be a slice of those that the entries are of.
uint64_t outlier_count(const HostWeight& part) {
  return part.outliers.empty() ? 0 : part.outliers.first_of(part.n) - part.outliers.first_of(0);
}
/// Memory of what lies beside the panels.
uint64_t side_bytes(std::span<const HostWeight> parts, const CudaWeight& packed) {
  uint64_t bytes = parts[0].in_perm.size() * sizeof(int32_t);
  if (have_outliers(parts)) bytes += (static_cast<uint64_t>(packed.columns) + 1) * sizeof(uint32_t);
  for (const HostWeight& part : parts) bytes += outlier_count(part) * sizeof(uint32_t);
  return bytes;
}

}  // namespace

Status WeightPacker::reserve_staging(size_t bytes) {
  if (bytes <= staging_bytes_) return {};
  staging_.reset();
  QUINTET_CUDA(cudaMalloc(staging_.out(), bytes));
  staging_bytes_ = bytes;
  return {};
}

Result<void*> WeightPacker::allocate(size_t bytes, CudaWeight& packed) {
  TRY_ASSIGN(void* device, arena_.allocate(bytes));
  packed.memory.push_back(arena_.hold());
  return device;
}

template <class T>
Result<T*> WeightPacker::keep(std::span<const T> values, CudaWeight& packed) {
  TRY_ASSIGN(void* device, allocate(values.size_bytes(), packed));
  // On the stream of what reads it: the plain copy may return before the device has the bytes, and this stream does not wait for it.
  QUINTET_CUDA(cudaMemcpyAsync(device, values.data(), values.size_bytes(), cudaMemcpyHostToDevice, site_.stream));
  return static_cast<T*>(device);
}

Result<Weight> WeightPacker::prepare_vector(const HostWeight& part) {
  const int64_t count = part.n * part.k;
  std::vector<float> values(static_cast<size_t>(count));
  const FormatInfo& info = format_info(part.format);
  info.decode(part.bytes.data(), static_cast<size_t>(count / info.block_weights), values.data());
  for (float value : values)
    if (!std::isfinite(value)) return bad_input(fmt::format("tensor {}: found NaN or Inf, allowed are finite weights", part.name));
  auto packed = std::make_unique<CudaWeight>();
  TRY_ASSIGN(packed->vector, keep(std::span<const float>(values), *packed));
  Weight weight;
  weight.role = WeightRole::vector;
  weight.n = part.n;
  weight.k = part.k;
  weight.part_rows = {part.n};
  weight.bytes = values.size() * sizeof(float);
  weight.packed = std::move(packed);
  return weight;
}

Result<CudaWeight> WeightPacker::lay_out(WeightRole role, std::span<const HostWeight> parts) const {
  CudaWeight packed;
  for (const HostWeight& part : parts) {
    if (!std::ranges::equal(part.in_perm, parts[0].in_perm))
      return bad_input(fmt::format("tensor {}: found another order of its inputs than that of tensor {}, allowed for parts of one weight is the same", part.name, parts[0].name));
    if (!part.in_perm.empty() && (role == WeightRole::embedding || role == WeightRole::embedding_and_head))
      return bad_input(fmt::format("tensor {}: found columns in another order, allowed on the GPU are tables in order", part.name));
    const ProductKernels* kernels = kernels_.product(part.format);
    if (!kernels)
      return bad_input(fmt::format("tensor {}: found format {}, allowed on the GPU are {}", part.name, format_info(part.format).name, allowed_formats(kernels_)));
    const int most_inputs = kernels_.row_inputs(site_.shared_bytes - kernels->static_bytes, role == WeightRole::gate_up);
    if (role != WeightRole::embedding && padded_inputs(static_cast<int>(part.k)) > most_inputs)
      return bad_input(fmt::format("tensor {}: found rows of {} weights, allowed on the GPU are up to {}", part.name, part.k, most_inputs));
    const bool alternate = role == WeightRole::gate_up;
    // Parts of one format share a segment, so that their product is one launch.
    if (packed.segments.empty() || packed.segments.back().kernels != kernels) {
      // Heads are read one behind the other: no padding may lie between two of them.
      if (role == WeightRole::qkv && !packed.segments.empty() && packed.segments.back().n % kUnitOutputs)
        return bad_input(fmt::format("tensor {}: found another format behind {} rows of q and k, allowed on the GPU are multiples of {}", part.name,
                                     packed.segments.back().n, kUnitOutputs));
      packed.segments.push_back({.kernels = kernels, .pieces = padded_inputs(static_cast<int>(part.k)) / kernels->piece_k, .unit = kernels->unit});
    }
    Segment& segment = packed.segments.back();
    const int index = static_cast<int>(packed.parts.size());
    packed.parts.push_back({.segment = static_cast<int>(packed.segments.size()) - 1, .first_row = alternate ? 0 : segment.n,
                            .rows = alternate ? PieceRows{.rows = 8, .first = index * 8} : PieceRows{}, .n = static_cast<int>(part.n)});
    if (!alternate && part.n % 16 && &part != &parts.back())
      return bad_input(fmt::format("tensor {}: found {} rows, allowed on the GPU are multiples of 16", part.name, part.n));
    segment.n += static_cast<int>(part.n);
  }
  if (role == WeightRole::gate_up && packed.segments.size() != 1)
    return bad_input(fmt::format("tensors {} and {}: found two formats, allowed on the GPU is one for gate and up", parts[0].name, parts[1].name));
  for (Segment& segment : packed.segments) {
    segment.n = (segment.n + kUnitOutputs - 1) / kUnitOutputs * kUnitOutputs;
    segment.first_column = packed.columns;
    packed.columns += segment.n;
  }
  return packed;
}

Result<uint64_t> WeightPacker::packed_bytes(WeightRole role, std::span<const HostWeight> parts) const {
  uint64_t bytes = 0;
  if (role == WeightRole::vector) {
    for (const HostWeight& part : parts) bytes += static_cast<uint64_t>(part.n * part.k) * sizeof(float);
    return bytes;
  }
  TRY_ASSIGN(const CudaWeight packed, lay_out(role, parts));
  for (const Segment& segment : packed.segments) bytes += segment.bytes();
  return bytes + side_bytes(parts, packed);
}

Result<Weight> WeightPacker::prepare(WeightRole role, std::span<const HostWeight> parts) {
  QUINTET_CHECK(!parts.empty(), "a weight of no parts");
  arena_.release_unheld();  // calibration prepares one layer after the other
  if (role == WeightRole::vector) return prepare_vector(parts[0]);
  TRY_ASSIGN(CudaWeight layout, lay_out(role, parts));
  auto packed = std::make_unique<CudaWeight>(std::move(layout));
  Weight weight;
  weight.role = role;
  weight.k = parts[0].k;
  for (const HostWeight& part : parts) {
    weight.part_rows.push_back(part.n);
    weight.n += part.n;
  }
  for (Segment& segment : packed->segments) {
    TRY_ASSIGN(void* device, allocate(segment.bytes(), *packed));
    segment.panels = static_cast<uint8_t*>(device);
    weight.bytes += segment.bytes();
  }
  bool done = false;
  while (!done) {
    TRY_ASSIGN(done, pack_parts(parts, *packed));
  }
  TRY(prepare_sides(parts, *packed));
  weight.bytes += side_bytes(parts, *packed);
  weight.packed = std::move(packed);
  return weight;
}

Result<bool> WeightPacker::pack_parts(std::span<const HostWeight> parts, CudaWeight& packed) {
  for (const Segment& segment : packed.segments) QUINTET_CUDA(cudaMemsetAsync(segment.panels, 0, segment.bytes(), site_.stream));
  // What lies beside the blocks of each part, then a fault a part.
  size_t staged_bytes = 0;
  for (const HostWeight& part : parts) staged_bytes += Arena::padded(beside(part).size());
  TRY(reserve_staging(staged_bytes + parts.size() * sizeof(PackFault)));
  auto* staged = static_cast<uint8_t*>(staging_.get());
  auto* faults = reinterpret_cast<PackFault*>(staged + staged_bytes);
  QUINTET_CUDA(cudaMemsetAsync(faults, 0, parts.size() * sizeof(PackFault), site_.stream));
  std::vector<Uploader::Source> sources;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::span<const uint8_t> bytes = beside(parts[i]);
    if (!bytes.empty()) QUINTET_CUDA(cudaMemcpyAsync(staged, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, site_.stream));
    const PartPlace& place = packed.parts[i];
    sources.push_back(pack_part(parts[i], packed.segments[static_cast<size_t>(place.segment)], place, staged, faults + i));
    staged += Arena::padded(bytes.size());
  }
  // Gate and up have rows of the same pieces, and so write the same words: in turn.
  const size_t together = packed.parts[0].rows.rows < 16 ? 1 : sources.size();
  for (size_t i = 0; i < sources.size(); i += together) TRY(uploader_.send(std::span(sources).subspan(i, together), site_.stream));
  std::vector<PackFault> found(parts.size());
  TRY(fetch(faults, found.data(), found.size()));
  bool done = true;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (found[i] == PackFault::not_finite)
      return bad_input(fmt::format("tensor {}: found NaN or Inf in its weights or scales, allowed are finite ones", parts[i].name));
    if (found[i] == PackFault::none || !done) continue;
    packed.segments[static_cast<size_t>(packed.parts[i].segment)].unit *= 16;
    done = false;
  }
  return done;
}

Status WeightPacker::prepare_sides(std::span<const HostWeight> parts, CudaWeight& packed) {
  if (!parts[0].in_perm.empty()) {
    TRY_ASSIGN(packed.in_perm, keep(parts[0].in_perm, packed));
    packed.host_in_perm.assign(parts[0].in_perm.begin(), parts[0].in_perm.end());
  }
  if (!have_outliers(parts)) return {};
  std::vector<uint32_t> begin(static_cast<size_t>(packed.columns) + 1, 0);
  const auto each_row = [&](auto&& visit) {
    for (size_t i = 0; i < parts.size(); ++i)
      for (int64_t row = 0; !parts[i].outliers.empty() && row < parts[i].n; ++row)
        visit(static_cast<size_t>(packed.column_of(packed.parts[i], static_cast<int>(row))), parts[i].outliers, parts[i].outliers.first_of(row),
              parts[i].outliers.first_of(row + 1));
  };
  each_row([&](size_t column, const Outliers&, uint32_t first, uint32_t last) { begin[column + 1] = last - first; });
  for (size_t column = 0; column + 1 < begin.size(); ++column) begin[column + 1] += begin[column];
  std::vector<uint32_t> entries(std::max<size_t>(begin.back(), 1));
  each_row([&](size_t column, const Outliers& outliers, uint32_t first, uint32_t last) {
    for (uint32_t i = first; i < last; ++i)
      entries[begin[column] + (i - first)] = outliers.column(i) | static_cast<uint32_t>(load_u16(outliers.values.data() + 2 * size_t{i})) << 16;
  });
  TRY_ASSIGN(packed.outliers.begin, keep(std::span<const uint32_t>(begin), packed));
  TRY_ASSIGN(packed.outliers.entries, keep(std::span<const uint32_t>(entries), packed));
  return {};
}

Uploader::Source WeightPacker::pack_part(const HostWeight& part, const Segment& segment, const PartPlace& place, const uint8_t* beside, PackFault* fault) const {
  const auto row_bytes = static_cast<size_t>(part.row_bytes());
  const PackParams of_part = {.file = nullptr, .row_scales = part.row_scales.empty() ? nullptr : reinterpret_cast<const float*>(beside),
                              .grid = grid_of(part.format).empty() ? nullptr : beside, .panels = segment.panels, .n = 0, .k = static_cast<int>(part.k),
                              .pieces = segment.pieces, .place = place.rows, .first_piece = 0, .unit = segment.unit, .fault = fault};
  const auto pack = [=, this, kernel = segment.kernels->pack, first_row = place.first_row](size_t offset, std::span<const uint8_t> chunk, cudaStream_t stream) {
    const auto row = static_cast<int>(offset / row_bytes);
    PackParams params = of_part;
    params.file = chunk.data(), params.n = static_cast<int>(chunk.size() / row_bytes), params.first_piece = params.place.piece(first_row + row);
    if (params.row_scales) params.row_scales += row;
    return kernel(params, {.stream = stream, .multiprocessors = site_.multiprocessors, .dependent = false});
  };
  // Whole pieces of 16 rows, so that no two chunks write one word.
  return {.bytes = part.bytes, .unit = 16 * row_bytes, .consume = pack};
}

template <class T>
Status WeightPacker::fetch(const T* device, T* out, size_t count) const {
  QUINTET_CUDA(cudaMemcpyAsync(out, device, count * sizeof(T), cudaMemcpyDeviceToHost, site_.stream));
  QUINTET_CUDA(cudaStreamSynchronize(site_.stream));
  return {};
}

Status WeightPacker::unpack(const Weight& weight, int64_t first, int64_t count, float* out) {
  const auto& packed = static_cast<const CudaWeight&>(*weight.packed);
  const auto total = static_cast<size_t>(count * weight.k);
  if (packed.vector) return fetch(packed.vector + first * weight.k, out, total);
  TRY(reserve_staging(total * sizeof(float)));
  auto* device = static_cast<float*>(staging_.get());
  int64_t part_first = 0, done = 0;
  for (const PartPlace& place : packed.parts) {
    const int64_t from = std::max(first, part_first), to = std::min(first + count, part_first + place.n);
    if (from < to) {
      const Segment& segment = packed.segments[static_cast<size_t>(place.segment)];
      const int64_t local = from - part_first + place.first_row;
      const UnpackParams params = {.panels = segment.panels, .out = device + done * weight.k, .first = static_cast<int>(local),
                                   .count = static_cast<int>(to - from), .k = static_cast<int>(weight.k), .pieces = segment.pieces,
                                   .first_piece = 0, .place = place.rows, .unit = segment.unit};
      QUINTET_CUDA(segment.kernels->unpack(params, site_));
      done += to - from;
    }
    part_first += place.n;
  }
  TRY(fetch(device, out, total));
  return add_sides(packed, weight.k, first, count, out);
}

Status WeightPacker::add_sides(const CudaWeight& packed, int64_t k, int64_t first, int64_t count, float* out) const {
  if (packed.in_perm)
    for (int64_t row = 0; row < count; ++row) {
      const std::vector<float> stored(out + row * k, out + (row + 1) * k);
      for (size_t i = 0; i < stored.size(); ++i) out[row * k + packed.host_in_perm[i]] = stored[i];
    }
  if (!packed.outliers.begin) return {};
  std::vector<uint32_t> begin(static_cast<size_t>(packed.columns) + 1);
  TRY(fetch(packed.outliers.begin, begin.data(), begin.size()));
  std::vector<uint32_t> entries(begin.back());
  TRY(fetch(packed.outliers.entries, entries.data(), entries.size()));
  int64_t part_first = 0;
  for (const PartPlace& place : packed.parts) {
    for (int64_t row = std::max(first, part_first); row < std::min(first + count, part_first + place.n); ++row) {
      const auto column = static_cast<size_t>(packed.column_of(place, static_cast<int>(row - part_first)));
      for (uint32_t i = begin[column]; i < begin[column + 1]; ++i) out[(row - first) * k + (entries[i] & 0xffff)] += f16_to_f32(static_cast<uint16_t>(entries[i] >> 16));
    }
    part_first += place.n;
  }
  return {};
}

}  // namespace quintet::cuda
