// Stop strings cut at every place, against a search over the whole text.
#include "sampling/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace quintet {
namespace {

struct Outcome {
  std::string text;
  std::string matched;  ///< empty: none
  bool operator==(const Outcome&) const = default;
};

/// The definition: the first end of any stop string, of those that end there the longest.
Outcome by_search(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string longest;
    for (const std::string& stop : stops)
      if (stop.size() > longest.size() && text.substr(0, end).ends_with(stop)) longest = stop;
    if (!longest.empty()) return {text.substr(0, end - longest.size()), longest};
  }
  return {text, ""};
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"END", "\n\n"});
  EXPECT_EQ(matcher.push("one E"), "one ");
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("Ergy\n"), "ENErgy");
  EXPECT_EQ(matcher.push("x"), "\nx");
  EXPECT_EQ(matcher.push("yEEND tail"), "yE");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matched(), "END");
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, FinishGivesBackTheHeldText) {
  StopMatcher matcher({"stop"});
  EXPECT_EQ(matcher.push("a sto"), "a ");
  EXPECT_EQ(matcher.finish(), "sto");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, WithoutStopsEverythingPasses) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, OfStopsThatEndTogetherTheLongestCounts) {
  StopMatcher matcher({"bc", "abc"});
  EXPECT_EQ(matcher.push("xabc"), "x");
  EXPECT_EQ(matcher.matched(), "abc");
}

TEST(StopMatcher, AgreesWithTheSearchHoweverTheTextIsCut) {
  std::mt19937 random(std::random_device{}());
  const auto text_of = [&](size_t bytes, uint32_t letters) {
    std::string text;
    for (size_t i = 0; i < bytes; ++i) text += static_cast<char>('a' + random() % letters);
    return text;
  };
  for (int round = 0; round < 20000; ++round) {
    const uint32_t letters = 1 + random() % 3;
    std::vector<std::string> stops;
    for (uint32_t i = 0, n = random() % 4; i < n; ++i) stops.push_back(text_of(1 + random() % 6, letters));
    const std::string text = text_of(random() % 40, letters);
    StopMatcher matcher(stops);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = std::min<size_t>(1 + random() % 5, text.size() - at);
      out += matcher.push(std::string_view(text).substr(at, bytes));
      at += bytes;
      // Never a part of a stop string that may still come: what is out is a prefix of the right answer.
      ASSERT_TRUE(by_search(stops, text).text.starts_with(out)) << text;
    }
    out += matcher.finish();
    ASSERT_EQ((Outcome{out, matcher.stopped() ? matcher.matched() : ""}), by_search(stops, text)) << text;
  }
}

TEST(StopMatcher, IsLinearOnTheWorstText) {
  // 1 MB against a stop of the same letter with a different end: quadratic search would take minutes.
  StopMatcher matcher({std::string(1023, 'a') + "b"});
  std::string out;
  const std::string piece(64, 'a');
  for (int i = 0; i < (1 << 20) / 64; ++i) out += matcher.push(piece);
  EXPECT_EQ(out.size(), (1u << 20) - 1023);
}

}  // namespace
}  // namespace quintet
