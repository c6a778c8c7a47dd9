// How large a vocabulary may be, whichever file it comes from.
#pragma once

#include <cstddef>

namespace quintet {

/// Some times the largest there are (XLM-V: 901,629 tokens; Gemma: 514,906 merges). An entry takes a hundred
/// bytes in memory, and as few as eight in a file.
inline constexpr size_t kMaxVocabulary = size_t{1} << 20, kMaxMerges = size_t{1} << 21;

}  // namespace quintet
