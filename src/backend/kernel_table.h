// Choices among a GPU's kernels that give the same bits, so that only their speed decides: measured on a device by `bench --tune`,
// written down in a table that later runs read (--kernel-table).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quintet {

struct KernelTable {
  std::string device;  ///< the name of the device that it was measured on
  // Rows up to which products go by tiles of 8, 16, 32 and 64 rows, each at most the tile's size; more take the next, or the prompts'.
  int32_t rows_of_8 = 8, rows_of_16 = 16, rows_of_32 = 32, rows_of_64 = 64;
  /// Splits of a context (of 256 tokens) up to which attention of one row a sequence forms q, K and V itself, where a step has more than one
  /// row or the set of kernels no better one for one; 0: never.
  int32_t fresh_splits = 4;
  /// Blocks a multiprocessor that split attention is spread over before a block takes more than one split.
  int32_t attend_blocks = 4;

  bool operator==(const KernelTable&) const = default;
};

/// A number of the table, by its name in the file.
struct KernelChoice {
  std::string_view name;
  int32_t KernelTable::* value;
  int32_t low, high;  ///< allowed, both included
};
std::span<const KernelChoice> kernel_choices();

/// What a variant of the product takes of a device, as its driver says.
struct KernelVariant {
  int32_t tile_rows = 0;    ///< rows of a tile; 1: the kernel of one row; 128: that of prompts
  std::string_view result;  ///< what it leaves: "slices", "sums" or "gated"
  int32_t threads = 0, registers = 0;         ///< of a block, of a thread
  uint64_t local_bytes = 0, shared_bytes = 0;  ///< of a thread (registers that did not fit), of a block
  int32_t blocks = 0;                          ///< that a multiprocessor holds at once; 0: it cannot run
};

/// The committed table of a device of this name, or the defaults.
KernelTable committed_kernel_table(std::string_view device);

}  // namespace quintet
