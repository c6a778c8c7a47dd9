// How the errors of a tensor in each format that may be chosen stand to each other.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "quant/quantize.h"

namespace quintet {

/// The formats that are tried for rows of k weights, from 3 bits to 8: the project's integers, in smaller groups where k is
/// no multiple of theirs, and those of GGUF's formats that say more in as many bits or have 5 or 6 of them. None twice.
std::vector<WeightFormat> candidate_formats(int64_t k);

/// The inputs of a tensor.
struct KnownInputs {
  std::span<const float> moments;    ///< [k]; empty: unknown
  const GptqInputs* gptq = nullptr;  ///< by which integers will be rounded; null: to nearest
};

/// Of each format the squared error of the whole tensor's output, measured on some of its rows that are spread over it. Errors
/// are of rounding to nearest in searched ranges, weighted by the moments; with `gptq`, those of formats that it cannot round
/// into are larger by what it saves of the error of `probe`, by the whole Hessian.
Result<std::vector<double>> format_errors(const HostWeight& weight, std::span<const WeightFormat> formats,
                                          const IntegerFormat& probe, const KnownInputs& inputs, int threads);

}  // namespace quintet
