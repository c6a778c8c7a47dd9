// Everything but products and attention: embedding, norm, gate, residual, gather, sampling.
#include "backend/reference/reference_ops.h"

#include <cmath>
#include <vector>

#include "backend/reference/elements.h"
#include "backend/reference/reference_weight.h"

namespace quintet::reference {

TokenId ReferenceOps::token_of(const StepView& step, int32_t row) const {
  if (step.token[row] >= 0) return step.token[row];
  QUINTET_CHECK(sampled_, "row {} continues a previous step, but nothing was sampled yet", row);
  return sampled_[step.prev[row]].token;
}

void ReferenceOps::embed(const StepView& step, const EmbedArgs& args) {
  const ReferenceWeight& table = unwrap(*args.table);
  QUINTET_CHECK(args.out.rows == step.rows && args.out.cols == table.k,
                "embed: out is {} x {}, wanted {} x {}", args.out.rows, args.out.cols, step.rows, table.k);
  std::vector<float> row(static_cast<size_t>(table.k));
  for (int32_t r = 0; r < step.rows; ++r) {
    const TokenId token = token_of(step, r);
    QUINTET_CHECK(token >= 0 && token < args.table->n, "token {} of a vocabulary of {}", token,
                  args.table->n);
    table.decode_row(token, row.data());
    // The product is rounded to float once, as a float multiplication would.
    for (int64_t c = 0; c < table.k; ++c) store(args.out, r, c, static_cast<double>(row[c]) * args.scale);
  }
}

void ReferenceOps::rms_norm(ConstMatrixView x, const NormArgs& norm, MatrixView out) {
  QUINTET_CHECK(out.rows == x.rows && out.cols == x.cols, "rms_norm: {} x {} into {} x {}", x.rows, x.cols,
                out.rows, out.cols);
  const ReferenceWeight& packed = unwrap(*norm.weight);
  QUINTET_CHECK(packed.k == x.cols, "rms_norm: weight of {} for {} columns", packed.k, x.cols);
  std::vector<float> weight(static_cast<size_t>(packed.k));
  packed.decode_row(0, weight.data());
  for (int64_t r = 0; r < x.rows; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < x.cols; ++c) {
      const double value = load(x, r, c);
      squares += value * value;
    }
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.cols) + norm.eps);
    for (int64_t c = 0; c < x.cols; ++c) store(out, r, c, load(x, r, c) * scale * weight[c]);
  }
}

void ReferenceOps::gate(const GateArgs& args) {
  const int64_t n = args.out.cols;
  QUINTET_CHECK(args.gate_up.cols == 2 * n && args.gate_up.rows == args.out.rows,
                "gate: {} x {} into {} x {}", args.gate_up.rows, args.gate_up.cols, args.out.rows, n);
  const double sqrt_2_over_pi = 0.79788456080286535588;
  for (int64_t r = 0; r < args.out.rows; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      const double gate = load(args.gate_up, r, c);
      const double up = load(args.gate_up, r, n + c);
      const double active =
          args.activation == Activation::silu
              ? gate / (1 + std::exp(-gate))
              : 0.5 * gate * (1 + std::tanh(sqrt_2_over_pi * (gate + 0.044715 * gate * gate * gate)));
      store(args.out, r, c, active * up);
    }
  }
}

void ReferenceOps::add(ConstMatrixView x, MatrixView out) {
  QUINTET_CHECK(out.rows == x.rows && out.cols == x.cols, "add: {} x {} to {} x {}", x.rows, x.cols, out.rows,
                out.cols);
  for (int64_t r = 0; r < x.rows; ++r)
    for (int64_t c = 0; c < x.cols; ++c)
      store(out, r, c, static_cast<double>(load(out, r, c)) + load(x, r, c));
}

void ReferenceOps::gather(const StepView& step, ConstMatrixView x, MatrixView out) {
  QUINTET_CHECK(out.rows == step.logit_rows && out.cols == x.cols, "gather: out is {} x {}, wanted {} x {}",
                out.rows, out.cols, step.logit_rows, x.cols);
  for (int32_t i = 0; i < step.logit_rows; ++i) {
    QUINTET_CHECK(step.logit_row[i] >= 0 && step.logit_row[i] < x.rows, "logit row {} of {}",
                  step.logit_row[i], x.rows);
    for (int64_t c = 0; c < x.cols; ++c) store(out, i, c, load(x, step.logit_row[i], c));
  }
}

void ReferenceOps::sample(const StepView& step, const SampleArgs& args) {
  const int64_t vocabulary = args.logits.cols;
  QUINTET_CHECK(args.logits.rows == step.logit_rows && args.logits.type == DType::f32,
                "sample: {} rows of logits for {}", args.logits.rows, step.logit_rows);
  if (sampler_vocabulary_ != vocabulary) {
    sampler_ = std::make_unique<RowSampler>(static_cast<int32_t>(vocabulary));
    sampler_vocabulary_ = vocabulary;
  }
  std::vector<TokenId> own(static_cast<size_t>(step.logit_rows), -1);  // before the previous step's are written over
  if (step.token && step.logit_row)
    for (int32_t i = 0; i < step.logit_rows; ++i) own[static_cast<size_t>(i)] = token_of(step, step.logit_row[i]);
  for (int32_t i = 0; i < step.logit_rows; ++i) {
    const std::span<float> logits(args.logits.row<float>(i), static_cast<size_t>(vocabulary));
    args.out[i] = sampler_->sample(
        step, i, logits, args.alternatives ? args.alternatives + int64_t{i} * kAlternatives : nullptr, own[static_cast<size_t>(i)]);
  }
  sampled_ = args.out;
}

}  // namespace quintet::reference
