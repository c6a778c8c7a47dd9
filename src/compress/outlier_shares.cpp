// The errors of a few shares, and the steps between them that save most a byte.
#include "compress/outlier_shares.h"

#include <array>
#include <cmath>

namespace quintet {
namespace {

constexpr std::array kShares = {0.0, 0.0002, 0.0005, 0.001, 0.002, 0.005, ShareChooser::kMostShare};
constexpr uint64_t kOutlierBytes = 4;  // column and value

}  // namespace

void ShareChooser::measure(const MatrixToQuantize& rows, int64_t all_rows, const IntegerFormat& format) {
  Tensor tensor{.name = std::string(rows.name)};
  const auto gain = [](const Step& from, const Step& to) {
    return (from.error - to.error) / static_cast<double>(to.bytes - from.bytes);
  };
  for (const double share : kShares) {
    const auto outliers = static_cast<uint64_t>(std::llround(share * static_cast<double>(all_rows * rows.k)));
    const Step step{
        .share = share,
        .error = output_error(rows, quantize_outlier(rows, format, {.share = share, .select = select_})).relative(),
        .bytes = outliers * kOutlierBytes};
    std::vector<Step>& steps = tensor.steps;
    if (!steps.empty() && (step.bytes == steps.back().bytes || step.error >= steps.back().error)) continue;
    while (steps.size() >= 2 && gain(steps.back(), step) >= gain(steps[steps.size() - 2], steps.back()))
      steps.pop_back();
    steps.push_back(step);
  }
  tensors_.push_back(std::move(tensor));
}

TensorShares ShareChooser::choose(uint64_t bytes) const {
  std::vector<size_t> at(tensors_.size());
  for (uint64_t left = bytes;;) {
    size_t best = tensors_.size();
    double most = 0;
    uint64_t cost = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const std::vector<Step>& steps = tensors_[i].steps;
      if (at[i] + 1 >= steps.size()) continue;
      const Step &now = steps[at[i]], &next = steps[at[i] + 1];
      const uint64_t more = next.bytes - now.bytes;
      const double gain = (now.error - next.error) / static_cast<double>(more);
      if (more <= left && gain > most) most = gain, best = i, cost = more;
    }
    if (best == tensors_.size()) break;
    ++at[best];
    left -= cost;
  }
  TensorShares shares;
  for (size_t i = 0; i < tensors_.size(); ++i) shares[tensors_[i].name] = tensors_[i].steps[at[i]].share;
  return shares;
}

}  // namespace quintet
