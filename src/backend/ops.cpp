// The coarse operations, composed from the fine ones.
#include "backend/ops.h"

namespace quintet {

void Ops::attn_in(const StepView&, const AttnInArgs& args) {
  linear({.x = args.x, .w = args.w, .out = args.qkv, .norm = args.norm, .bias = args.bias,
          .next_weight = args.next_weight});
}

void Ops::rope_store_attend(const StepView& step, const RopeStoreAttendArgs& args) {
  rope_store(step, {.qkv = args.qkv, .attention = args.attention, .q_norm = args.q_norm, .k_norm = args.k_norm,
                    .kv = args.kv});
  attend(step, {.qkv = args.qkv, .out = args.out, .attention = args.attention, .kv = args.kv});
}

void Ops::attn_out(const StepView&, const ProjectArgs& args) {
  if (!args.post_norm.weight) {
    linear({.x = args.x, .w = args.w, .out = args.residual, .bias = args.bias, .add_to_out = true,
            .next_weight = args.next_weight});
    return;
  }
  linear({.x = args.x, .w = args.w, .out = args.scratch, .bias = args.bias, .next_weight = args.next_weight});
  rms_norm(args.scratch, args.post_norm, args.scratch);
  add(args.scratch, args.residual);
}

void Ops::mlp_in(const StepView&, const MlpInArgs& args) {
  linear({.x = args.x, .w = args.w, .out = args.gate_up, .norm = args.norm, .next_weight = args.next_weight});
  gate({.gate_up = args.gate_up, .out = args.out, .activation = args.activation});
}

void Ops::mlp_out(const StepView& step, const ProjectArgs& args) { attn_out(step, args); }

void Ops::head(const StepView& step, const HeadArgs& args) {
  gather(step, args.x, args.gathered);
  linear({.x = args.gathered, .w = args.w, .out = args.logits, .norm = args.norm});
}

}  // namespace quintet
