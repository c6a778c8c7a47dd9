// Uploads and packs weights; decodes them back for tests.
#include "backend/cuda/weights.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace quintet::cuda {
namespace {

std::string allowed_formats(const Kernels& kernels) {
  std::string names;
  for (const FormatInfo& info : format_table())
    if (kernels.product(info.format)) names += fmt::format("{}{}", names.empty() ? "" : ", ", info.name);
  return names;
}

}  // namespace

Status WeightPacker::reserve_staging(size_t bytes) {
  if (bytes <= staging_bytes_) return {};
  staging_.reset();
  QUINTET_CUDA(cudaMalloc(staging_.out(), bytes));
  staging_bytes_ = bytes;
  return {};
}

Result<Weight> WeightPacker::prepare_vector(const HostWeight& part) {
  const int64_t count = part.n * part.k;
  std::vector<float> values(static_cast<size_t>(count));
  const FormatInfo& info = format_info(part.format);
  info.decode(part.bytes.data(), static_cast<size_t>(count / info.block_weights), values.data());
  for (float value : values)
    if (!std::isfinite(value)) return bad_input(fmt::format("tensor {}: found NaN or Inf, allowed are finite weights", part.name));
  auto packed = std::make_unique<CudaWeight>();
  TRY_ASSIGN(void* device, arena_.allocate(values.size() * sizeof(float)));
  packed->vector = static_cast<float*>(device);
  QUINTET_CUDA(cudaMemcpy(device, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
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
    if (!part.in_perm.empty())
      return bad_input(fmt::format("tensor {}: found inputs in another order (act-order), allowed on the GPU are weights that lie in order so far", part.name));
    if (!part.row_scales.empty())
      return bad_input(fmt::format("tensor {}: found {}, whose rows have scales, allowed on the GPU are {}", part.name, format_info(part.format).name, allowed_formats(kernels_)));
    if (!part.outliers.empty())
      return bad_input(fmt::format("tensor {}: found outliers kept apart, allowed on the GPU are weights without them so far", part.name));
    const ProductKernels* kernels = kernels_.product(part.format);
    if (!kernels)
      return bad_input(fmt::format("tensor {}: found format {}, allowed on the GPU are {}", part.name, format_info(part.format).name, allowed_formats(kernels_)));
    const int most_inputs = kernels_.row_inputs(site_.shared_bytes, role == WeightRole::gate_up);
    if (role != WeightRole::embedding && padded_inputs(static_cast<int>(part.k)) > most_inputs)
      return bad_input(fmt::format("tensor {}: found rows of {} weights, allowed on the GPU are up to {}", part.name, part.k, most_inputs));
    const bool alternate = role == WeightRole::gate_up;
    // Parts of one format share a segment, so that their product is one launch.
    if (packed.segments.empty() || packed.segments.back().kernels != kernels) {
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
  return bytes;
}

Result<Weight> WeightPacker::prepare(WeightRole role, std::span<const HostWeight> parts) {
  QUINTET_CHECK(!parts.empty(), "a weight of no parts");
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
    TRY_ASSIGN(void* device, arena_.allocate(segment.bytes()));
    segment.panels = static_cast<uint8_t*>(device);
    weight.bytes += segment.bytes();
  }
  bool done = false;
  while (!done) {
    TRY_ASSIGN(done, pack_parts(parts, *packed));
  }
  weight.packed = std::move(packed);
  return weight;
}

Result<bool> WeightPacker::pack_parts(std::span<const HostWeight> parts, CudaWeight& packed) {
  for (const Segment& segment : packed.segments) QUINTET_CUDA(cudaMemsetAsync(segment.panels, 0, segment.bytes(), site_.stream));
  bool done = true;
  for (size_t i = 0; i < parts.size(); ++i) {
    Segment& segment = packed.segments[static_cast<size_t>(packed.parts[i].segment)];
    TRY_ASSIGN(const PackFault fault, pack_part(parts[i], segment, packed.parts[i]));
    if (fault == PackFault::not_finite)
      return bad_input(fmt::format("tensor {}: found NaN or Inf in its weights or scales, allowed are finite ones", parts[i].name));
    if (fault == PackFault::none || !done) continue;
    segment.unit *= 256;
    done = false;
  }
  return done;
}

Result<PackFault> WeightPacker::pack_part(const HostWeight& part, const Segment& segment, const PartPlace& place) {
  const auto row_bytes = static_cast<size_t>(part.row_bytes());
  if (!flag_.get()) QUINTET_CUDA(cudaMalloc(flag_.out(), sizeof(PackFault)));
  QUINTET_CUDA(cudaMemsetAsync(flag_.get(), 0, sizeof(PackFault), site_.stream));
  // Whole pieces of 16 rows, so that no two chunks write one word.
  TRY(uploader_.send(part.bytes, 16 * row_bytes, site_.stream, [&](size_t offset, std::span<const uint8_t> chunk, cudaStream_t stream) {
    const auto row = static_cast<int>(offset / row_bytes);
    const PackParams params = {.file = chunk.data(), .panels = segment.panels, .n = static_cast<int>(chunk.size() / row_bytes),
                               .k = static_cast<int>(part.k), .pieces = segment.pieces, .place = place.rows,
                               .first_piece = place.rows.piece(place.first_row + row),
                               .unit = segment.unit, .fault = static_cast<PackFault*>(flag_.get())};
    return segment.kernels->pack(params, {.stream = stream, .multiprocessors = site_.multiprocessors, .dependent = false});
  }));
  PackFault fault = PackFault::none;
  QUINTET_CUDA(cudaMemcpyAsync(&fault, flag_.get(), sizeof(fault), cudaMemcpyDeviceToHost, site_.stream));
  QUINTET_CUDA(cudaStreamSynchronize(site_.stream));
  return fault;
}

Status WeightPacker::unpack(const Weight& weight, int64_t first, int64_t count, float* out) {
  const auto& packed = static_cast<const CudaWeight&>(*weight.packed);
  const auto total = static_cast<size_t>(count * weight.k);
  if (packed.vector) {
    QUINTET_CUDA(cudaMemcpy(out, packed.vector + first * weight.k, total * sizeof(float), cudaMemcpyDeviceToHost));
    return {};
  }
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
  QUINTET_CUDA(cudaMemcpyAsync(out, device, total * sizeof(float), cudaMemcpyDeviceToHost, site_.stream));
  QUINTET_CUDA(cudaStreamSynchronize(site_.stream));
  return {};
}

}  // namespace quintet::cuda
