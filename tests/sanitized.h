// Sanitizers watch accesses, not figures, and take ten times as long: long comparisons show them a part of what they do.
#pragma once

namespace quintet {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kPart = 4;  ///< a quarter of it
#else
inline constexpr int kPart = 1;
#endif

}  // namespace quintet
