// The names of a kernel table's numbers, and the committed tables.
#include "backend/kernel_table.h"

#include <array>

namespace quintet {
namespace {

constexpr std::array kChoices = {
    KernelChoice{"rows_of_8", &KernelTable::rows_of_8, 0, 8},       KernelChoice{"rows_of_16", &KernelTable::rows_of_16, 0, 16},
    KernelChoice{"rows_of_32", &KernelTable::rows_of_32, 0, 32},    KernelChoice{"rows_of_64", &KernelTable::rows_of_64, 0, 64},
    KernelChoice{"fresh_splits", &KernelTable::fresh_splits, 0, 4}, KernelChoice{"attend_blocks", &KernelTable::attend_blocks, 1, 32},
};

/// What measuring one kernel after another came to (docs/performance.md), which are the defaults too.
KernelTable h200() { return {.device = "NVIDIA H200"}; }

}  // namespace

std::span<const KernelChoice> kernel_choices() { return kChoices; }

KernelTable committed_kernel_table(std::string_view device) {
  for (const KernelTable& table : {h200()})
    if (table.device == device) return table;
  return {.device = std::string(device)};
}

}  // namespace quintet
