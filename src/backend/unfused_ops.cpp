// One operation after another, and what they hand each other.
#include "backend/unfused_ops.h"

#include "base/check.h"

namespace quintet {
namespace {

MatrixView first_rows(MatrixView view, int64_t rows) {
  QUINTET_CHECK(rows <= view.rows, "{} rows in scratch of {}", rows, view.rows);
  view.rows = rows;
  return view;
}

}  // namespace

void UnfusedOps::count(const ConstMatrixView& rows, int times) {
  extra_bytes_ += static_cast<uint64_t>(times * rows.rows * rows.cols) * dtype_bytes(rows.type);
}

void UnfusedOps::linear(const LinearArgs& args) {
  LinearArgs alone = args;
  alone.dequantize_first = true;
  if (args.norm.weight) {
    const MatrixView normed = first_rows(scratch_.normed, args.x.rows);
    rms_norm(args.x, args.norm, normed);
    alone.x = normed;
    alone.norm = {};
  }
  if (args.add_to_out) {
    alone.out = first_rows(scratch_.projected, args.out.rows);
    alone.add_to_out = false;
  }
  ops_.linear(alone);
  extra_bytes_ += 2 * ops_.dequantized_bytes(*args.w);
  count(alone.x);
  count(alone.out);
  if (args.add_to_out) add(alone.out, args.out);
}

void UnfusedOps::rms_norm(ConstMatrixView x, const NormArgs& norm, MatrixView out) {
  ops_.rms_norm(x, norm, out);
  count(x);
  count(out);
}

void UnfusedOps::rope_store(const StepView& step, const RopeStoreArgs& args) {
  ops_.rope_store(step, args);
  count(args.qkv, 2);  // in place
}

void UnfusedOps::attend(const StepView& step, const AttendArgs& args) {
  ops_.attend(step, args);
  count(args.qkv);
  count(args.out);
}

void UnfusedOps::gate(const GateArgs& args) {
  ops_.gate(args);
  count(args.gate_up);
  count(args.out);
}

void UnfusedOps::add(ConstMatrixView x, MatrixView out) {
  ops_.add(x, out);
  count(x);
  count(out, 2);
}

void UnfusedOps::gather(const StepView& step, ConstMatrixView x, MatrixView out) {
  ops_.gather(step, x, out);
  count(out, 2);
}

}  // namespace quintet
