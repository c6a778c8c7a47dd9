// Dense products and factors in float, for Hessians: cache-blocked, vectorized for the machine's instruction
// set.
#pragma once

#include <cstdint>
#include <span>
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

/// c += sign * a^T b, with a [t, m], b [t, n], c [m, n]. Where `upper`, only entries of c with column >= row are
/// changed. On all threads.
void add_product(const FloatMatrix& a, const FloatMatrix& b, float sign, bool upper, int threads,
                 const FloatMatrix& c);

/// h = r^T r with r upper triangular, in place in the upper half of h [k, k]; the lower half is neither read nor
/// written. False: not positive definite; the upper half holds nothing of use then.
bool cholesky(const FloatMatrix& h, int threads);

/// r = r^-1 in place, of an upper triangular r [k, k]; the lower half is neither read nor written.
void invert_upper(const FloatMatrix& r, int threads);

/// m[i][j] = m[order[i]][order[j]] in place, of m [k, k]; order is a permutation of 0 .. k - 1.
void permute_both(const FloatMatrix& m, std::span<const int64_t> order, int threads);

/// Copies the upper half into the lower one, or the other way round.
void mirror(const FloatMatrix& m, bool from_upper, int threads);

}  // namespace quintet
