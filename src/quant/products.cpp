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

/// The same of rows [begin, begin + depth) and columns [first, first + count) of m's transpose.
void pack_transposed(const FloatMatrix& m, int64_t begin, int64_t depth, int64_t first, int64_t count, int64_t width,
                     float* out) {
  std::fill(out, out + depth * width, 0.0f);
  for (int64_t i = 0; i < count; ++i) {
    const float* row = m.row(first + i) + begin;
    for (int64_t t = 0; t < depth; ++t) out[t * width + i] = row[t];
  }
}

/// How the left factor lies, and which entries of c are wanted.
struct JobKind {
  bool transposed = true;  ///< a [t, m]: the factor is a^T; otherwise a [m, t] itself
  bool upper = false;      ///< entries with column < row stay as they are
};

/// One job: rows [row, row + rows) and columns [col, col + cols) of c.
void job(const FloatMatrix& a, const FloatMatrix& b, float sign, JobKind kind, int64_t row, int64_t rows, int64_t col,
         int64_t cols, const FloatMatrix& c) {
  std::vector<float> a_pack(static_cast<size_t>(kDepth * kTileRows)),
      b_pack(static_cast<size_t>(kDepth * kJobCols + kTileCols * kDepth));
  for (int64_t begin = 0; begin < b.rows; begin += kDepth) {
    const int64_t depth = std::min(kDepth, b.rows - begin);
    for (int64_t j = 0; j < cols; j += kTileCols)
      pack(b, begin, depth, col + j, std::min(kTileCols, cols - j), kTileCols, b_pack.data() + j * kDepth);
    for (int64_t i = 0; i < rows; i += kTileRows) {
      const int64_t high = std::min(kTileRows, rows - i);
      if (kind.transposed)
        pack(a, begin, depth, row + i, high, kTileRows, a_pack.data());
      else
        pack_transposed(a, begin, depth, row + i, high, kTileRows, a_pack.data());
      for (int64_t j = 0; j < cols; j += kTileCols) {
        const int64_t wide = std::min(kTileCols, cols - j);
        const int64_t below = kind.upper ? row + i - (col + j) : -kTileCols;  // of the tile's first row
        if (below >= wide) continue;  // high is at least 1: no entry of the first row counts, none of the others
        float* out = c.row(row + i) + col + j;
        if (high == kTileRows && wide == kTileCols && below + kTileRows <= 1) {
          tile(a_pack.data(), b_pack.data() + j * kDepth, depth, sign, out, c.stride);
          continue;
        }
        float edge[kTileRows * kTileCols] = {};
        tile(a_pack.data(), b_pack.data() + j * kDepth, depth, sign, edge, kTileCols);
        for (int64_t y = 0; y < high; ++y)
          for (int64_t x = std::max<int64_t>(0, below + y); x < wide; ++x)
            out[y * c.stride + x] += edge[y * kTileCols + x];
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

/// r = r^-1 of an upper triangular block, row by row from the last.
void small_inverse(const FloatMatrix& r) {
  std::vector<float> row(static_cast<size_t>(r.cols));
  for (int64_t i = r.rows - 1; i >= 0; --i) {
    std::fill(row.begin(), row.end(), 0.0f);
    for (int64_t t = i + 1; t < r.rows; ++t)
      for (int64_t j = t; j < r.cols; ++j) row[static_cast<size_t>(j)] -= r.row(i)[t] * r.row(t)[j];
    const float inverse = 1 / r.row(i)[i];
    for (int64_t j = i + 1; j < r.cols; ++j) r.row(i)[j] = row[static_cast<size_t>(j)] * inverse;
    r.row(i)[i] = inverse;
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
    job(a, b, sign, {.upper = upper}, row, rows, col, cols, c);
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

void invert_upper(const FloatMatrix& r, int threads) {
  std::vector<float> panel(static_cast<size_t>(r.rows * kBlock));
  for (int64_t begin = 0; begin < r.rows; begin += kBlock) {
    const int64_t size = std::min(kBlock, r.rows - begin);
    const FloatMatrix corner = r.block(begin, begin, size, size);
    small_inverse(corner);
    if (begin == 0) continue;
    // The columns above the corner: -s c d, with s the inverse of what lies before, c those columns, d the corner's.
    for (int64_t i = 0; i < begin; ++i)
      std::memcpy(panel.data() + i * size, r.row(i) + begin, static_cast<size_t>(size) * sizeof(float));
    const FloatMatrix columns{panel.data(), begin, size, size};
    parallel_for((begin + kBlock - 1) / kBlock, threads, [&](int64_t index) {
      const int64_t first = index * kBlock, rows = std::min(kBlock, begin - first);
      std::vector<float> sums(static_cast<size_t>(rows * size)), scaled(static_cast<size_t>(size));
      for (int64_t i = 0; i < rows; ++i)  // s is upper triangular: below its diagonal lies something else
        for (int64_t t = i; t < rows; ++t) {
          const float factor = r.row(first + i)[first + t];
          const float* from = columns.row(first + t);
          for (int64_t j = 0; j < size; ++j) sums[static_cast<size_t>(i * size + j)] += factor * from[j];
        }
      const FloatMatrix out{sums.data(), rows, size, size};
      const int64_t behind = first + rows;
      if (behind < begin)
        job(r.block(first, behind, rows, begin - behind), columns.block(behind, 0, begin - behind, size), 1,
            {.transposed = false}, 0, rows, 0, size, out);
      for (int64_t i = 0; i < rows; ++i) {
        std::fill(scaled.begin(), scaled.end(), 0.0f);
        for (int64_t t = 0; t < size; ++t) {
          const float factor = -out.row(i)[t];
          for (int64_t j = t; j < size; ++j) scaled[static_cast<size_t>(j)] += factor * corner.row(t)[j];
        }
        std::memcpy(r.row(first + i) + begin, scaled.data(), scaled.size() * sizeof(float));
      }
    });
  }
}

void permute_both(const FloatMatrix& m, std::span<const int64_t> order, int threads) {
  const auto row_bytes = static_cast<size_t>(m.cols) * sizeof(float);
  std::vector<float> first(static_cast<size_t>(m.cols));
  std::vector<bool> done(static_cast<size_t>(m.rows));
  for (int64_t start = 0; start < m.rows; ++start) {  // rows, cycle by cycle
    if (done[static_cast<size_t>(start)]) continue;
    std::memcpy(first.data(), m.row(start), row_bytes);
    for (int64_t at = start;;) {
      done[static_cast<size_t>(at)] = true;
      const int64_t from = order[static_cast<size_t>(at)];
      std::memcpy(m.row(at), from == start ? first.data() : m.row(from), row_bytes);
      if (from == start) break;
      at = from;
    }
  }
  parallel_for((m.rows + kBlock - 1) / kBlock, threads, [&](int64_t block) {
    std::vector<float> row(static_cast<size_t>(m.cols));
    for (int64_t i = block * kBlock; i < std::min(m.rows, (block + 1) * kBlock); ++i) {
      std::memcpy(row.data(), m.row(i), row_bytes);
      for (int64_t j = 0; j < m.cols; ++j) m.row(i)[j] = row[static_cast<size_t>(order[static_cast<size_t>(j)])];
    }
  });
}

void mirror(const FloatMatrix& m, bool from_upper, int threads) {
  // By squares, since one of both sides is read or written across rows. A square belongs to one turn.
  parallel_for((m.rows + kBlock - 1) / kBlock, threads, [&](int64_t block) {
    const int64_t begin = block * kBlock, end = std::min(m.rows, begin + kBlock);
    for (int64_t left = begin; left < m.cols; left += kBlock)
      for (int64_t i = begin; i < end; ++i)
        for (int64_t j = std::max(i + 1, left); j < std::min(m.cols, left + kBlock); ++j) {
          if (from_upper)
            m.row(j)[i] = m.row(i)[j];
          else
            m.row(i)[j] = m.row(j)[i];
        }
  });
}

}  // namespace quintet
