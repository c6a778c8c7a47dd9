// Lets SingleSequence, whose inputs are separate vectors, run on a GPU: copies them into one piece of staging memory.
#pragma once

#include <cstring>

#include "backend/backend.h"

namespace quintet::testing {

/// Forwards everything to `inner`; stage() flattens the inputs first.
class FlatInputs : public Backend {
 public:
  explicit FlatInputs(Backend& inner) : inner_(inner) {}
  BackendInfo info() const override { return inner_.info(); }
  Numerics numerics() const override { return inner_.numerics(); }
  Ops& ops() override { return inner_.ops(); }
  Result<Buffer> allocate(size_t bytes, BufferUse use) override { return inner_.allocate(bytes, use); }
  Result<Weight> prepare(WeightRole role, std::span<const HostWeight> parts) override { return inner_.prepare(role, parts); }
  Status unpack(const Weight& weight, int64_t first, int64_t count, float* out) override { return inner_.unpack(weight, first, count, out); }
  PageClass page_class(int32_t layers, int32_t kv_heads, int32_t head_dim, int32_t tokens) const override {
    return inner_.page_class(layers, kv_heads, head_dim, tokens);
  }
  Status reserve(const StepLimits& limits) override { return inner_.reserve(limits); }
  Status finish(const Sampled* sampled, std::span<Sampled> out) override { return inner_.finish(sampled, out); }
  Status read(const void* device, std::span<uint8_t> out) override { return inner_.read(device, out); }
  Status write(std::span<const uint8_t> bytes, void* device) override { return inner_.write(bytes, device); }

  Result<StepView> stage(const StepInputs& inputs) override {
    StepView view = inputs.view;
    if (!staging_.data()) {
      auto made = inner_.allocate(size_t{1} << 22, BufferUse::staging);
      if (!made) return made.error();
      staging_ = std::move(made).value();
    }
    size_t used = 0;
    const auto flat = [&](auto*& pointer, int64_t count) {
      if (!pointer) return;
      const size_t bytes = static_cast<size_t>(count) * sizeof(*pointer);
      QUINTET_CHECK(used + bytes <= staging_.bytes(), "test inputs of {} bytes", used + bytes);
      std::memcpy(staging_.as<uint8_t>() + used, pointer, bytes);
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(staging_.as<uint8_t>() + used);
      used += (bytes + 15) / 16 * 16;
    };
    flat(view.token, view.rows), flat(view.prev, view.rows), flat(view.pos, view.rows), flat(view.seq, view.rows), flat(view.kv_slot, view.rows);
    flat(view.row_begin, view.seqs + 1), flat(view.context, view.seqs), flat(view.block_refs, int64_t{view.seqs} * view.max_blocks);
    flat(view.logit_row, view.logit_rows), flat(view.sample, view.logit_rows);
    view.history = nullptr, view.bias_token = nullptr, view.bias_value = nullptr, view.mask = nullptr;
    return inner_.stage({.view = view, .bytes = {staging_.as<uint8_t>(), used}});
  }

 private:
  Backend& inner_;
  Buffer staging_;
};

}  // namespace quintet::testing
