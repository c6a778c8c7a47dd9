// Walks the plan of weights: one at a time, so that the peak is the prepared weights and little more.
#include "model/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "base/units.h"
#include "base/workers.h"
#include "model/on_load.h"
#include "model/weight_map.h"
#include "quant/quantize.h"

namespace quintet {
namespace {

/// The parts of a vector one after the other, as floats. They need not be of equal length, as rows of a
/// matrix must.
Result<std::vector<float>> decode_vector(const PlannedWeight& planned, std::span<const HostWeight> parts) {
  std::vector<float> values;
  for (const HostWeight& part : parts) {
    const FormatInfo& format = format_info(part.format);
    if (part.k % format.block_weights != 0) {
      return bad_input(fmt::format("tensor '{}': {} values are not a whole number of {} blocks", part.name, part.k,
                                   format.name));
    }
    const size_t begin = values.size();
    values.resize(begin + static_cast<size_t>(part.k));
    format.decode(part.bytes.data(), static_cast<size_t>(part.k / format.block_weights),
                  values.data() + begin);
  }
  if (planned.plus_one)
    for (float& value : values) value += 1;
  return values;
}

Error with_file(const std::string& path, Error error) {
  if (error.kind == ErrorKind::bad_input) error.message = fmt::format("{}: {}", path, error.message);
  return error;
}

}  // namespace

Result<Weight> prepare_weight(const std::string& origin, const PlannedWeight& planned, std::span<const HostWeight> parts,
                              std::vector<std::vector<float>>& vectors, Backend& backend, OnLoad compress) {
  std::vector<HostWeight> prepared(parts.begin(), parts.end());
  std::vector<QuantizedMatrix> made(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    TRY_ASSIGN(prepared[i], made_of(parts[i], made[i]));
    const auto format = format_on_load(compress, planned.role, prepared[i]);
    if (!format) continue;
    Result<QuantizedMatrix> compressed = compress_on_load(compress, *format, prepared[i]);
    if (!compressed) return with_file(origin, compressed.error());
    made[i] = std::move(compressed).value();
    prepared[i] = made[i].view(parts[i].name);
  }
  for (const HostWeight& part : prepared)
    if (const Status checked = check_side_data(part); !checked) return with_file(origin, checked.error());
  if (planned.role == WeightRole::vector) {
    Result<std::vector<float>> values = decode_vector(planned, prepared);
    if (!values) return with_file(origin, values.error());
    vectors.push_back(std::move(values).value());
    const std::vector<float>& kept = vectors.back();
    prepared = {{.name = parts[0].name,
                 .format = WeightFormat::f32,
                 .n = 1,
                 .k = static_cast<int64_t>(kept.size()),
                 .bytes = {reinterpret_cast<const uint8_t*>(kept.data()), kept.size() * sizeof(float)}}};
  }
  Result<Weight> weight = backend.prepare(planned.role, prepared);
  if (!weight) return with_file(origin, weight.error());
  return weight;
}

Result<ModelWeights> load_weights(WeightSource& source, const ModelConfig& config, Backend& backend,
                                  const LoadOptions& options) {
  const Architecture* architecture = find_architecture(config.architecture);
  QUINTET_CHECK(architecture, "no architecture '{}'", config.architecture);
  ModelWeights weights;
  TRY_ASSIGN(const std::vector<PlannedWeight> plan,
             plan_weights(source.files, *architecture, config, weights));
  uint64_t total_bytes = 0, done_bytes = 0;
  for (const PlannedWeight& planned : plan)
    for (const HostWeight& part : planned.parts) total_bytes += part.stored_bytes();

  if (options.admit) {
    ModelNeeds needs{.config = config};
    for (const PlannedWeight& planned : plan) {
      std::vector<HostWeight> parts = planned.parts;
      for (HostWeight& part : parts)
        if (const auto format = format_on_load(options.compress, planned.role, part)) {
          part.format = *format;
          part.bytes = {};
        }
      const Result<uint64_t> bytes = backend.packed_bytes(planned.role, parts);
      if (!bytes) return with_file(source.files.path(), bytes.error());
      needs.weights_bytes += *bytes;
    }
    TRY(options.admit(needs));
  }

  const auto is_compressed = [&](const PlannedWeight& planned) {
    return std::ranges::any_of(planned.parts, [&](const HostWeight& part) { return format_on_load(options.compress, planned.role, part).has_value(); });
  };
  if (options.compress != OnLoad::none && std::ranges::none_of(plan, is_compressed))
    LOG_WARN("{}: nothing is compressed while it is loaded: no linear layer has dense weights whose rows the format divides", source.files.path());

  const int64_t begin_us = now_us();
  // Pages of a large weight are given back while the next one is prepared: it takes as long as half of what a GPU's bus needs for the bytes.
  constexpr uint64_t kDroppedBeside = uint64_t{16} << 20;
  Workers workers;
  const PlannedWeight* kept = nullptr;
  const auto drop = [](const PlannedWeight& planned) {
    for (const HostWeight& part : planned.parts) drop_pages(part.bytes);
  };
  for (const PlannedWeight& planned : plan) {
    std::optional<Result<Weight>> weight;
    workers.run(kept ? 2 : 1, [&](int i) {
      if (i == 0) weight = prepare_weight(source.files.path(), planned, planned.parts, source.vectors, backend, options.compress);
      else drop(*kept);
    });
    TRY_ASSIGN(*planned.target, std::move(*weight));
    weights.bytes += planned.target->bytes;

    uint64_t bytes = 0;
    for (const HostWeight& part : planned.parts) bytes += part.stored_bytes();
    kept = bytes >= kDroppedBeside ? &planned : nullptr;
    if (!kept) drop(planned);
    done_bytes += bytes;
    for (const HostWeight& part : planned.parts)
      LOG_DEBUG("{}: {} x {} {}, {}", part.name, part.n, part.k, format_info(part.format).name,
                format_bytes(part.stored_bytes()));
    if (options.progress) options.progress(done_bytes, total_bytes);
  }
  if (kept) drop(*kept);
  weights.stored_bytes = total_bytes;
  weights.load_s = std::max(1e-6, static_cast<double>(now_us() - begin_us) * 1e-6);
  LOG_INFO("{}: {} of weights in {:.2f} s, {}/s; {} in memory", source.files.path(),
           format_bytes(total_bytes), weights.load_s,
           format_bytes(static_cast<uint64_t>(static_cast<double>(total_bytes) / weights.load_s)),
           format_bytes(weights.bytes));
  return weights;
}

}  // namespace quintet
