// Products, Cholesky factors and triangular inverses by blocks; the product does nearly all the work.
#include "quant/products.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"

// One version for each instruction set, chosen when the program starts.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define QUINTET_EACH_TARGET __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define QUINTET_EACH_TARGET
#endif

namespace quintet {
namespace {

constexpr int64_t kTileRows = 6, kTileCols = 32;  // of c, kept in registers: 6 x 2 vectors of 16 floats
constexpr int64_t kDepth = 256;                   // rows of a and b that pass through at a time
constexpr int64_t kJobRows = 96, kJobCols = 256;  // of c, the work of one turn
constexpr int64_t kBlock = 96;                    // of the factorizations

/// c [6, 32] += sign * a^T b of packed pieces: a [depth][6], b [depth][32].
QUINTET_EACH_TARGET void tile(const float* a, const float* b, int64_t depth, float sign, float* c,
                              int64_t stride) {
  float sum[kTileRows][kTileCols] = {};
  for (int64_t t = 0; t < depth; ++t)
#pragma GCC unroll 6
    for (int64_t i = 0; i < kTileRows; ++i)
#pragma GCC ivdep
      for (int64_t j = 0; j < kTileCols; ++j) sum[i][j] += a[t * kTileRows + i] * b[t * kTileCols + j];
  for (int64_t i = 0; i < kTileRows; ++i)
    for (int64_t j = 0; j < kTileCols; ++j) c[i * stride + j] += sign * sum[i][j];
}

/// Columns [first, first + count) of rows [begin, begin + depth) of m, as [depth][width], zeros beyond.
void pack(const FloatMatrix& m, int64_t begin, int64_t depth, int64_t first, int64_t count, int64_t width,
          float* out) {
  for (int64_t t = 0; t < depth; ++t) {
    std::memcpy(out + t * width, m.row(begin + t) + first, static_cast<size_t>(count) * sizeof(float));
    std::fill(out + t * width + count, out + (t + 1) * width, 0.0f);
  }
}

/// One job: rows [row, row + rows) and columns [col, col + cols) of c.
void job(const FloatMatrix& a, const FloatMatrix& b, float sign, int64_t row, int64_t rows, int64_t col,
         int64_t cols, const FloatMatrix& c) {
  std::vector<float> a_pack(static_cast<size_t>(kDepth * kTileRows)),
      b_pack(static_cast<size_t>(kDepth * kJobCols + kTileCols * kDepth));
  for (int64_t begin = 0; begin < a.rows; begin += kDepth) {
    const int64_t depth = std::min(kDepth, a.rows - begin);
    for (int64_t j = 0; j < cols; j += kTileCols)
      pack(b, begin, depth, col + j, std::min(kTileCols, cols - j), kTileCols, b_pack.data() + j * kDepth);
    for (int64_t i = 0; i < rows; i += kTileRows) {
      const int64_t high = std::min(kTileRows, rows - i);
      pack(a, begin, depth, row + i, high, kTileRows, a_pack.data());
      for (int64_t j = 0; j < cols; j += kTileCols) {
        const int64_t wide = std::min(kTileCols, cols - j);
        float* out = c.row(row + i) + col + j;
        if (high == kTileRows && wide == kTileCols) {
          tile(a_pack.data(), b_pack.data() + j * kDepth, depth, sign, out, c.stride);
          continue;
        }
        float edge[kTileRows * kTileCols] = {};
        tile(a_pack.data(), b_pack.data() + j * kDepth, depth, sign, edge, kTileCols);
        for (int64_t y = 0; y < high; ++y)
          for (int64_t x = 0; x < wide; ++x) out[y * c.stride + x] += edge[y * kTileCols + x];
      }
    }
  }
}

/// The block itself, row by row: r^T r = h.
bool small_cholesky(const FloatMatrix& h) {
  for (int64_t i = 0; i < h.rows; ++i) {
    const float pivot = h.row(i)[i];
    if (!(pivot > 0)) return false;
    const float root = std::sqrt(pivot);
    for (int64_t j = i; j < h.cols; ++j) h.row(i)[j] /= root;
    for (int64_t t = i + 1; t < h.rows; ++t)
      for (int64_t j = t; j < h.cols; ++j) h.row(t)[j] -= h.row(i)[t] * h.row(i)[j];
  }
  return true;
}

/// x = r^-T x for an upper triangular r [m, m] and x [m, n].
void solve_transposed(const FloatMatrix& r, const FloatMatrix& x) {
  for (int64_t i = 0; i < r.rows; ++i) {
    for (int64_t t = 0; t < i; ++t) {
      const float factor = r.row(t)[i];
      for (int64_t j = 0; j < x.cols; ++j) x.row(i)[j] -= factor * x.row(t)[j];
    }
    const float inverse = 1 / r.row(i)[i];
    for (int64_t j = 0; j < x.cols; ++j) x.row(i)[j] *= inverse;
  }
}

/// solve_transposed by stretches of columns, on all threads.
void solve_wide(const FloatMatrix& r, const FloatMatrix& x, int threads) {
  constexpr int64_t kStretch = 128;
  parallel_for((x.cols + kStretch - 1) / kStretch, threads, [&](int64_t s) {
    const int64_t begin = s * kStretch;
    solve_transposed(r, x.block(0, begin, x.rows, std::min(kStretch, x.cols - begin)));
  });
}

}  // namespace

void add_product(const FloatMatrix& a, const FloatMatrix& b, float sign, bool upper, int threads,
                 const FloatMatrix& c) {
  const int64_t down = (c.rows + kJobRows - 1) / kJobRows, across = (c.cols + kJobCols - 1) / kJobCols;
  parallel_for(down * across, threads, [&](int64_t index) {
    const int64_t row = index / across * kJobRows, col = index % across * kJobCols;
    const int64_t rows = std::min(kJobRows, c.rows - row), cols = std::min(kJobCols, c.cols - col);
    if (upper && col + cols <= row) return;
    job(a, b, sign, row, rows, col, cols, c);
  });
}

bool cholesky(const FloatMatrix& h, int threads) {
  for (int64_t begin = 0; begin < h.rows; begin += kBlock) {
    const int64_t size = std::min(kBlock, h.rows - begin), left = h.rows - begin - size;
    const FloatMatrix corner = h.block(begin, begin, size, size);
    if (!small_cholesky(corner)) return false;
    if (left == 0) continue;
    const FloatMatrix beside = h.block(begin, begin + size, size, left);
    solve_wide(corner, beside, threads);
    add_product(beside, beside, -1, true, threads, h.block(begin + size, begin + size, left, left));
  }
  return true;
}

void invert_transposed(const FloatMatrix& r, int threads, const FloatMatrix& y) {
  for (int64_t i = 0; i < y.rows; ++i) {
    std::fill_n(y.row(i), y.cols, 0.0f);
    y.row(i)[i] = 1;
  }
  for (int64_t begin = 0; begin < r.rows; begin += kBlock) {
    const int64_t size = std::min(kBlock, r.rows - begin), wide = begin + size;
    // Row block `begin` of r^T y = 1, from the blocks above it.
    const FloatMatrix rows = y.block(begin, 0, size, wide);
    if (begin > 0)
      add_product(r.block(0, begin, begin, size), y.block(0, 0, begin, begin), -1, false, threads,
                  y.block(begin, 0, size, begin));
    solve_wide(r.block(begin, begin, size, size), rows, threads);
  }
}

}  // namespace quintet
