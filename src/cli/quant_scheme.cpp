// Counts formats and recognizes the mixes of k-quants.
#include "cli/quant_scheme.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace quintet {
namespace {

constexpr int64_t kSuperBlock_weights = 256;

bool is_k_quant(WeightFormat format) { return format >= WeightFormat::q2_k && format <= WeightFormat::q6_k; }

/// What a k-quant mix meant for a tensor whose rows its super-blocks cannot divide. `of_iq4`: the mix is IQ4_XS.
WeightFormat intended(const ModelTensor& tensor, bool of_iq4) {
  if (tensor.weight.k % kSuperBlock_weights == 0) return tensor.weight.format;
  switch (tensor.weight.format) {
    case WeightFormat::q4_0:
    case WeightFormat::iq4_nl: return of_iq4 ? WeightFormat::iq4_xs : WeightFormat::q3_k;
    case WeightFormat::q5_0: return WeightFormat::q4_k;
    case WeightFormat::q5_1: return WeightFormat::q5_k;
    case WeightFormat::q8_0: return WeightFormat::q6_k;
    default: return tensor.weight.format;
  }
}

using Counts = std::array<uint64_t, kWeightFormats>;

WeightFormat most(const Counts& counts) {
  return static_cast<WeightFormat>(std::max_element(counts.begin(), counts.end()) - counts.begin());
}

double share(const Counts& counts, std::initializer_list<WeightFormat> formats) {
  uint64_t all = 0, some = 0;
  for (uint64_t count : counts) all += count;
  for (WeightFormat format : formats) some += counts[static_cast<size_t>(format)];
  return all == 0 ? 0 : static_cast<double>(some) / static_cast<double>(all);
}

}  // namespace

std::string format_label(WeightFormat format) {
  std::string label(format_info(format).name);
  std::transform(label.begin(), label.end(), label.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return label;
}

std::vector<FormatShare> format_shares(const std::vector<ModelTensor>& tensors) {
  std::vector<FormatShare> shares;
  for (const auto& info : format_table()) {
    FormatShare share{.format = info.format};
    for (const auto& tensor : tensors) {
      if (tensor.weight.format != info.format) continue;
      ++share.tensors;
      share.parameters += static_cast<uint64_t>(tensor.weight.n) * static_cast<uint64_t>(tensor.weight.k);
      share.bytes += tensor.weight.stored_bytes();
    }
    if (share.tensors > 0) shares.push_back(share);
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return shares;
}

std::string quant_scheme(const std::vector<ModelTensor>& tensors) {
  Counts layers{}, down{}, everything{};
  const bool of_iq4 = std::any_of(tensors.begin(), tensors.end(),
                                  [](const auto& tensor) { return tensor.weight.format == WeightFormat::iq4_xs; });
  const bool mixes = of_iq4 || std::any_of(tensors.begin(), tensors.end(),
                                           [](const auto& tensor) { return is_k_quant(tensor.weight.format); });
  for (const auto& tensor : tensors) {
    if (tensor.shape.size() < 2) continue;  // norms and biases stay in f32 in every scheme
    const auto format = static_cast<size_t>(mixes ? intended(tensor, of_iq4) : tensor.weight.format);
    const auto weights = static_cast<uint64_t>(tensor.weight.n) * static_cast<uint64_t>(tensor.weight.k);
    everything[format] += weights;
    // Embedding and head are kept finer in many mixes: the layers name the scheme.
    if (!tensor.weight.name.starts_with("blk.")) continue;
    layers[format] += weights;
    if (tensor.weight.name.find("ffn_down") != std::string_view::npos) down[format] += weights;
  }
  if (share(everything, {most(everything)}) == 0) return "none";
  const WeightFormat base = most(share(layers, {most(layers)}) > 0 ? layers : everything);
  using enum WeightFormat;
  switch (base) {
    case q2_k: return share(down, {q3_k, q4_k}) > 0.5 ? "Q2_K" : "Q2_K_S";
    case q3_k:
      return share(down, {q5_k}) > 0.5 ? "Q3_K_L" : share(down, {q4_k, q5_k}) > 0.5 ? "Q3_K_M" : "Q3_K_S";
    case q4_k: return share(down, {q6_k}) > 0.25 ? "Q4_K_M" : "Q4_K_S";
    case q5_k: return share(down, {q6_k}) > 0.25 ? "Q5_K_M" : "Q5_K_S";
    default: return format_label(base);
  }
}

}  // namespace quintet
