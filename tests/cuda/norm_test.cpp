// Norms on the GPU.
#include "cuda_fixture.h"

namespace quintet {
namespace {

class CudaNorm : public CudaTest {};

// By the norm alone and by the one before a product. FP32 holds numbers whose squares it does not.
TEST_F(CudaNorm, ARowWhoseSquaresOverflowIsNaNAlone) {
  constexpr int64_t kColumns = 2056, kOutputs = 64;
  const std::vector<float> norm_values = random_values(kColumns);
  const HostWeight norm_parts[] = {{.name = "norm", .format = WeightFormat::f32, .n = 1, .k = kColumns,
                                    .bytes = {reinterpret_cast<const uint8_t*>(norm_values.data()), norm_values.size() * sizeof(float)}}};
  const Weight norm = backend_->prepare(WeightRole::vector, norm_parts).value();
  const RandomWeight weight = random_weight(WeightFormat::f16, kOutputs, kColumns);
  const HostWeight parts[] = {weight.host};
  const Weight prepared = backend_->prepare(WeightRole::linear, parts).value();
  ASSERT_TRUE(backend_->reserve({.rows = 128, .seqs = 8, .logit_rows = 8, .context = 64, .hidden = kColumns, .max_k = kColumns, .max_n = 256,
                                 .vocabulary = 256, .max_heads = 8, .max_head_dim = 64}));
  const auto run = [&](const std::vector<float>& x, int64_t rows) {
    Matrix in = upload(x, rows, kColumns), normed = poisoned(rows, kColumns, DType::f32), out = poisoned(rows, kOutputs, DType::f32);
    backend_->ops().rms_norm(in.view, {.weight = &norm}, normed.view);
    backend_->ops().linear({.x = in.view, .w = &prepared, .out = out.view, .norm = {.weight = &norm}});
    return std::pair(download(normed.view), download(out.view));
  };
  for (const int64_t rows : {1, 3, 20, 40, 70}) {
    std::vector<float> x = random_values(static_cast<size_t>(rows * kColumns));
    const auto [normed, out] = run(x, rows);
    const int64_t bad = rows / 2;
    x[static_cast<size_t>(bad * kColumns + 7)] = 1e20f;
    const auto [bad_normed, bad_out] = run(x, rows);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < kColumns; ++i) {
        const auto at = static_cast<size_t>(row * kColumns + i);
        ASSERT_TRUE(row == bad ? std::isnan(bad_normed[at]) : bad_normed[at] == normed[at]) << rows << " rows, row " << row << ", column " << i << ": " << bad_normed[at];
      }
      for (int64_t i = 0; i < kOutputs; ++i) {
        const auto at = static_cast<size_t>(row * kOutputs + i);
        ASSERT_TRUE(row == bad ? std::isnan(bad_out[at]) : bad_out[at] == out[at]) << rows << " rows, row " << row << ", output " << i << ": " << bad_out[at];
      }
    }
  }
}

}  // namespace
}  // namespace quintet
