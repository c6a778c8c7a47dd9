// Cuts texts into windows.
#include "eval/windows.h"

#include <algorithm>

#include "base/check.h"

namespace quintet {

std::vector<Window> cut_windows(int64_t tokens, int32_t context, int32_t stride, bool bos) {
  QUINTET_CHECK(context >= 2 && stride >= 1 && stride <= context, "windows of {} tokens, {} apart", context,
                stride);
  const int64_t room = context - (bos ? 1 : 0);
  const int64_t step = std::min<int64_t>(stride, room);
  std::vector<Window> windows;
  int64_t reached = 0;
  for (int64_t begin = 0; reached < tokens; begin += step) {
    Window window{.begin = begin, .end = std::min(begin + room, tokens)};
    window.scored = std::max(reached, begin + (bos ? 0 : 1));
    reached = window.end;
    if (window.scored < window.end) windows.push_back(window);
  }
  return windows;
}

int64_t ScoredText::scored_tokens() const {
  int64_t sum = 0;
  for (const Window& window : windows) sum += window.end - window.scored;
  return sum;
}

}  // namespace quintet
