// What a plot of a compressed tensor shows.
#pragma once

#include "compress/quantize_model.h"

namespace quintet {

WeightPlot plot_of(const MatrixToQuantize& matrix, const QuantizedMatrix& made, int32_t layer);

}  // namespace quintet
