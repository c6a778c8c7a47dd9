// Decode steps, and the ends of short prompts, as CUDA graphs: recorded before the first step, replayed with one launch each.
//
// A graph is keyed by numbers that host code knows: whether its rows are as many sequences or one prompt, the rows, padded to a
// size of a short list, and a bucket of the longest context, from which attention's splits are sized. Everything else that a step
// is told lies in device memory, at places that the key fixes. Padding rows have position -1 and no slot: they store nothing and
// attend to nothing, and a row's bits never depend on the rows beside it.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/ops.h"
#include "backend/cuda/rt/arena.h"

namespace quintet::cuda {

class StepGraphs {
 public:
  StepGraphs(CudaOps& ops, LaunchSite site) : ops_(ops), site_(site) {}

  /// Records a graph for every key within the limits; `issue` runs a few times on padding alone. Waits.
  Status prepare(const StepLimits& limits, int32_t block_tokens, const IssueStep& issue);

  /// True: the step is on its way. False: no graph serves it (prompts beside other sequences or without a sampled row, masks, more
  /// rows than are recorded, very many penalised tokens), and it is to be issued operation by operation.
  Result<bool> replay(const StepInputs& inputs);

 private:
  /// seqs: as many as rows (decode), or 1 (a prompt); one row of each is sampled.
  struct Key {
    int32_t rows = 0, seqs = 0, context = 0;
  };
  /// Keys that differ in their context alone.
  struct Group {
    int32_t rows = 0, seqs = 0;
    std::vector<int32_t> contexts;  ///< rising

    Key key(int32_t context) const { return {.rows = rows, .seqs = seqs, .context = context}; }
  };
  struct Recorded {
    Key key;
    GraphExec graph;
  };
  /// Offsets in bytes of a key's inputs.
  struct Layout;
  struct Staging {
    Handle<void*, cudaFreeHost> memory;
    Event copied;
  };

  Layout layout(const Key& key) const;
  /// Writes a step's inputs, padded to the layout's rows; returns the bytes to copy.
  static size_t write(const StepView& step, const Layout& layout, uint8_t* to);
  static StepView view(const Layout& layout, const uint8_t* base);
  void begin(const Key& key);
  Status record(const Key& key, const IssueStep& issue);
  Status issue_padding(const Key& key, const IssueStep& issue);
  /// The smallest graph that the step fits into, or null.
  const Recorded* find(const StepView& step) const;
  Status upload(const StepView& step, const Layout& layout);

  CudaOps& ops_;
  LaunchSite site_;
  int32_t block_tokens_ = 0;
  std::vector<Recorded> decode_, prompts_;  ///< by rising rows, then rising context
  std::array<Staging, 2> staging_;  ///< in turns, so that one step can be written while the last one is copied
  size_t turn_ = 0;
  Handle<void*, cudaFree> inputs_;
};

}  // namespace quintet::cuda
