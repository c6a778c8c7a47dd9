// out = norm(x) . w^T + bias: each weight row is decoded once a call and meets up to sixteen rows of x at a
// time.
#include <algorithm>
#include <thread>
#include <vector>

#include "backend/reference/elements.h"
#include "backend/reference/reference_ops.h"
#include "backend/reference/reference_weight.h"

namespace quintet::reference {
namespace {

// Rows of x lie side by side ("lanes"), so that the compiler turns the innermost loop into vector
// instructions while every row keeps its own sum in ascending order of k: the same bits alone and among
// others.

/// x as [rows / kLanes][k][kLanes] doubles; lanes past the last row are zero.
template <int64_t kLanes>
std::vector<double> interleave(const ConstMatrixView& x, const int32_t* in_perm) {
  const int64_t groups = (x.rows + kLanes - 1) / kLanes;
  std::vector<double> out(static_cast<size_t>(groups * x.cols * kLanes));
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t c = 0; c < x.cols; ++c)
      out[static_cast<size_t>((r / kLanes * x.cols + c) * kLanes + r % kLanes)] =
          load(x, r, in_perm ? in_perm[c] : c);
  return out;
}

/// Outputs [first, last) of every row.
template <int64_t kLanes>
void multiply(const LinearArgs& args, const std::vector<double>& x, int64_t first, int64_t last) {
  const ReferenceWeight& weight = unwrap(*args.w);
  const int64_t k = weight.k;
  std::vector<float> row(static_cast<size_t>(k));
  std::vector<float> bias(args.bias ? static_cast<size_t>(args.w->n) : 0);
  if (args.bias) unwrap(*args.bias).decode_row(0, bias.data());

  for (int64_t n = first; n < last; ++n) {
    weight.decode_row(n, row.data());
    for (int64_t group = 0; group * kLanes < args.x.rows; ++group) {
      const double* lanes = x.data() + group * k * kLanes;
      double sum[kLanes] = {};
      for (int64_t c = 0; c < k; ++c, lanes += kLanes)
        for (int64_t lane = 0; lane < kLanes; ++lane) sum[lane] += static_cast<double>(row[c]) * lanes[lane];

      const int64_t rows = std::min(kLanes, args.x.rows - group * kLanes);
      for (int64_t lane = 0; lane < rows; ++lane) {
        const int64_t r = group * kLanes + lane;
        double value = sum[lane];
        if (args.bias) value += bias[n];
        if (args.add_to_out) value += load(args.out, r, n);
        store(args.out, r, n, value);
      }
    }
  }
}

/// The whole product, its outputs spread over threads.
template <int64_t kLanes>
void multiply_all(const LinearArgs& args) {
  const std::vector<double> x = interleave<kLanes>(args.x, args.in_perm);
  const int64_t n = args.w->n;
  const int64_t worth_a_thread = 1 << 20;  // multiplications
  const int64_t threads = std::clamp<int64_t>(n * args.w->k * args.x.rows / worth_a_thread, 1,
                                              std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> others;
  for (int64_t t = 1; t < threads; ++t)
    others.emplace_back([&, t] { multiply<kLanes>(args, x, n * t / threads, n * (t + 1) / threads); });
  multiply<kLanes>(args, x, 0, n / threads);
  for (std::thread& other : others) other.join();
}

}  // namespace

void ReferenceOps::linear(const LinearArgs& args) {
  const int64_t n = args.w->n, k = args.w->k;
  QUINTET_CHECK(args.x.cols == k && args.out.cols == n && args.out.rows == args.x.rows,
                "linear: {} x {} times {} x {} into {} x {}", args.x.rows, args.x.cols, n, k, args.out.rows,
                args.out.cols);
  QUINTET_CHECK(!args.bias || (args.bias->n == 1 && args.bias->k == n), "linear: bias of {} for {} outputs",
                args.bias ? args.bias->k : 0, n);
  LinearArgs product = args;
  std::vector<float> normed;
  if (args.norm.weight) {
    normed.resize(static_cast<size_t>(args.x.rows * k));
    const MatrixView out{normed.data(), DType::f32, args.x.rows, k, k};
    rms_norm(args.x, args.norm, out);
    product.x = out;
  }
  if (args.x.rows == 1) {
    multiply_all<1>(product);
  } else if (args.x.rows <= 4) {
    multiply_all<4>(product);
  } else {
    multiply_all<16>(product);
  }
}

}  // namespace quintet::reference
