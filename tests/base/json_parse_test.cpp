// Trees of untrusted JSON: what is refused before nlohmann sees it.
#include "base/json_parse.h"

#include <gtest/gtest.h>

namespace quintet {
namespace {

std::string nested(int depth, std::string_view open = "[", std::string_view close = "]") {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  if (open != "[") text += "0";
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(JsonTree, DepthIsBounded) {
  EXPECT_FALSE(parse_json_tree(nested(kMostJsonDepth)).is_discarded());
  EXPECT_TRUE(parse_json_tree(nested(kMostJsonDepth + 1)).is_discarded());
  EXPECT_FALSE(parse_json_tree(nested(kMostJsonDepth, R"({"a":)", "}")).is_discarded());
  EXPECT_TRUE(parse_json_tree(nested(kMostJsonDepth + 1, R"({"a":)", "}")).is_discarded());
  EXPECT_TRUE(parse_json_tree(nested(1 << 20)).is_discarded());
}

TEST(JsonTree, BracketsBesideOrInStringsAreNotDepth) {
  std::string side_by_side = "[0";
  for (int i = 0; i < 2 * kMostJsonDepth; ++i) side_by_side += ",[{}]";
  EXPECT_FALSE(parse_json_tree(side_by_side + "]").is_discarded());
  const std::string text = R"(quote \" and )" + nested(2 * kMostJsonDepth) + R"( and \\)";
  const auto json = parse_json_tree(R"({")" + text + R"(":[")" + text + R"("]})");
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json.begin().value().size(), 1u);
  // A backslash that is escaped itself escapes nothing.
  EXPECT_FALSE(parse_json_tree(R"(["\\",)" + nested(kMostJsonDepth - 1) + "]").is_discarded());
  EXPECT_TRUE(parse_json_tree(R"(["\\",)" + nested(kMostJsonDepth) + "]").is_discarded());
  EXPECT_TRUE(parse_json_tree(std::string_view("[\0]", 3)).is_discarded());
}

}  // namespace
}  // namespace quintet
