// Dense products and factors in float, for Hessians: cache-blocked, vectorized for the machine's instruction
// set.
#pragma once

#include <cstdint>
#include <vector>

namespace quintet {

/// A row-major matrix within a larger one.
struct FloatMatrix {
  float* data = nullptr;
  int64_t rows = 0, cols = 0;
  int64_t stride = 0;

  float* row(int64_t i) const { return data + i * stride; }
  FloatMatrix block(int64_t row, int64_t col, int64_t rows, int64_t cols) const {
    return {data + row * stride + col, rows, cols, stride};
  }
};

/// c += sign * a^T b, with a [t, m], b [t, n], c [m, n]. Where `upper`, only entries of c with column >= row
/// count (others may be written too). On all threads.
void add_product(const FloatMatrix& a, const FloatMatrix& b, float sign, bool upper, int threads,
                 const FloatMatrix& c);

/// h = r^T r with r upper triangular, in place in the upper half of h [k, k]. False: not positive definite.
bool cholesky(const FloatMatrix& h, int threads);

/// y = r^-T, lower triangular, of an upper triangular r [k, k]; both halves of y [k, k] are written.
void invert_transposed(const FloatMatrix& r, int threads, const FloatMatrix& y);

}  // namespace quintet
