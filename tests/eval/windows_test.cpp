// Every token that can be scored is scored once, with as much before it as stride and context promise.
#include "eval/windows.h"

#include <gtest/gtest.h>

namespace quintet {
namespace {

TEST(Windows, ScoreEachTokenOnceWithItsContext) {
  for (const bool bos : {false, true})
    for (const int32_t context : {2, 3, 8, 50})
      for (int32_t stride = 1; stride <= context; stride += 3)
        for (const int64_t tokens : {0, 1, 2, 7, 8, 49, 50, 51, 333}) {
          SCOPED_TRACE(testing::Message()
                       << tokens << " tokens, context " << context << ", stride " << stride);
          std::vector<int> scored(static_cast<size_t>(tokens));
          for (const Window& w : cut_windows(tokens, context, stride, bos)) {
            EXPECT_LE(0, w.begin);
            EXPECT_LE(w.end, tokens);
            EXPECT_LE(w.end - w.begin + bos, context);
            EXPECT_LT(w.scored, w.end);
            EXPECT_GE(w.scored + bos, w.begin + 1) << "nothing to predict it from";
            const int64_t room = context - bos;
            if (w.begin > 0 && stride < room) {
              EXPECT_GE(w.scored - w.begin, room - stride);
            }
            for (int64_t i = w.scored; i < w.end; ++i) ++scored[static_cast<size_t>(i)];
          }
          for (size_t i = 0; i < scored.size(); ++i) {
            // Without BOS, a window that shares nothing with the one before it cannot score its first token.
            const bool first =
                !bos && (i == 0 || (stride == context && i % static_cast<size_t>(context) == 0));
            EXPECT_EQ(scored[i], first ? 0 : 1) << "token " << i;
          }
        }
}

}  // namespace
}  // namespace quintet
