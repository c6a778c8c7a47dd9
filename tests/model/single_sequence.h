// One sequence through forward() without an engine: pages in a scattered order, chunks of any size.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "base/check.h"
#include "model/decoder.h"

namespace quintet::testing {

class SingleSequence {
 public:
  SingleSequence(Backend& backend, const Model& model, int32_t context, int32_t most_rows)
      : backend_(backend), model_(model) {
    auto workspace = Workspace::make(
        backend, model.config, {.rows = most_rows, .seqs = 1, .logit_rows = most_rows, .context = context});
    QUINTET_CHECK(workspace.has_value(), "{}", workspace.error().message);
    workspace_ = std::move(workspace).value();
    const ModelConfig& config = model.config;
    kv_.page = backend.page_class(config.layers, config.kv_heads, config.head_dim, 16);
    kv_.layers = config.layers;
    const int32_t blocks = (context + kv_.page.tokens - 1) / kv_.page.tokens;
    kv_.pages = blocks + 1;
    auto pages = backend.allocate(static_cast<size_t>(kv_.pages * kv_.page.bytes), BufferUse::kv);
    QUINTET_CHECK(pages.has_value(), "{}", pages.error().message);
    pages_ = std::move(pages).value();
    kv_.base = pages_.data();
    for (int32_t i = 0; i < blocks; ++i)
      blocks_.push_back({.page = static_cast<uint32_t>(blocks - i)});  // backwards
  }

  int32_t length() const { return length_; }

  /// Feeds tokens as one step and gives the logits of its last `logit_rows` rows, [logit_rows, vocabulary].
  std::vector<float> feed(std::span<const TokenId> tokens, int32_t logit_rows) {
    const auto rows = static_cast<int32_t>(tokens.size());
    std::vector<int32_t> pos(tokens.size()), seq(tokens.size(), 0), row_begin = {0, rows},
                                                                    context = {length_ + rows};
    std::vector<int64_t> slot(tokens.size());
    std::vector<int32_t> logit_row(static_cast<size_t>(logit_rows));
    std::vector<SampleParams> sample(static_cast<size_t>(logit_rows));
    for (int32_t i = 0; i < rows; ++i) {
      pos[i] = length_ + i;
      slot[i] = int64_t{blocks_[pos[i] / kv_.page.tokens].page} * kv_.page.tokens + pos[i] % kv_.page.tokens;
    }
    std::iota(logit_row.begin(), logit_row.end(), rows - logit_rows);
    StepInputs inputs;
    inputs.view = {.rows = rows,
                   .seqs = 1,
                   .logit_rows = logit_rows,
                   .max_blocks = static_cast<int32_t>(blocks_.size()),
                   .token = tokens.data(),
                   .pos = pos.data(),
                   .seq = seq.data(),
                   .kv_slot = slot.data(),
                   .row_begin = row_begin.data(),
                   .context = context.data(),
                   .block_refs = blocks_.data(),
                   .logit_row = logit_row.data(),
                   .sample = sample.data(),
                   .step_id = ++step_};
    auto staged = backend_.stage(inputs);
    QUINTET_CHECK(staged.has_value(), "{}", staged.error().message);
    const StepView view = std::move(staged).value();
    forward(backend_.ops(), {.model = &model_, .step = &view, .kv = kv_, .workspace = &workspace_});
    length_ += rows;

    const MatrixView logits = workspace_.logits(logit_rows);
    std::vector<float> out(static_cast<size_t>(logits.rows * logits.cols));
    QUINTET_CHECK(logits.stride == logits.cols, "logits with a gap between rows");
    const Status read =
        backend_.read(logits.data, {reinterpret_cast<uint8_t*>(out.data()), out.size() * sizeof(float)});
    QUINTET_CHECK(read.has_value(), "{}", read.error().message);
    return out;
  }

  /// Logits of every token, in steps of `chunk` rows.
  std::vector<float> feed_all(std::span<const TokenId> tokens, int32_t chunk) {
    std::vector<float> all;
    for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(chunk)) {
      const auto part =
          tokens.subspan(begin, std::min<size_t>(static_cast<size_t>(chunk), tokens.size() - begin));
      const std::vector<float> logits = feed(part, static_cast<int32_t>(part.size()));
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

 private:
  Backend& backend_;
  const Model& model_;
  Workspace workspace_;
  KvView kv_;
  Buffer pages_;
  std::vector<BlockRef> blocks_;
  int32_t length_ = 0;
  uint64_t step_ = 0;
};

}  // namespace quintet::testing
