// Strict JSON: what the usual parsers let through is refused, by path.
#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "server/json_reader.h"

namespace quintet {
namespace {

struct Broken {
  std::string text;
  std::string param;
  std::string part;  ///< of the message
};

TEST(JsonReader, NamesWhatIsWrongAndWhere) {
  const Broken cases[] = {
      {"", "", "Invalid JSON at byte"},
      {"{", "", "Invalid JSON at byte"},
      {"{\"a\": 1} x", "", "Invalid JSON at byte"},
      {"{\"a\": 1,}", "a", "Invalid JSON at byte"},
      {"[1, 2", "[2]", "Invalid JSON at byte"},
      {"{\"a\": {\"b\": [1, {\"c\": tru}]}}", "a.b[1].c", "Invalid JSON at byte"},
      {"{\"a\": \"\xFF\"}", "a", "UTF-8"},
      {"{\"a\": \"\xC3\"}", "a", "UTF-8"},
      {"{\"a\": \"\xED\xA0\x80\"}", "a", "UTF-8"},
      {"{\"a\": \"\\ud800\"}", "a", "surrogate"},
      {"{\"a\": [\"\\udc00\"]}", "a[0]", "surrogate"},
      {"{\"a\": \"\\ud800\\u0041\"}", "a", "surrogate"},
      {"{\"a\": \"tab\tinside\"}", "a", "control character"},
      {"{\"a\": 1e999}", "a", "overflow"},
      {"{\"a\": -1e999}", "a", "overflow"},
      {"{\"a\": NaN}", "a", "Invalid JSON at byte"},
      {"{\"a\": 01}", "a", "Invalid JSON at byte"},
      {"{\"a\": 1, \"a\": 2}", "a", "Duplicate key 'a'"},
      {"{\"x\": [{\"b\": {\"a\": 1, \"a\": 2}}]}", "x[0].b.a", "Duplicate key 'a'"},
      {"{\"a\": 1, \"\\u0061\": 2}", "a", "Duplicate key 'a'"},
      {std::string("{\"a\": 1}\0 junk", 14), "", "NUL"},
      {"/* c */ {}", "", "Invalid JSON at byte"},
      {std::string("{\"a\": \"x\0y\"}", 12), "", "NUL"},
  };
  for (const auto& [text, param, part] : cases) {
    const auto got = parse_json(text, {});
    ASSERT_FALSE(got) << text;
    EXPECT_EQ(got.error().status, 400);
    EXPECT_EQ(got.error().param, param) << text;
    EXPECT_NE(got.error().message.find(part), std::string::npos) << text << ": " << got.error().message;
    EXPECT_LT(got.error().message.size(), 400u);
  }
}

TEST(JsonReader, KeepsValuesAndTheirOrder) {
  const std::string text = R"({"z":[1,-2,18446744073709551615,0.5,true,null],"a":{"é😀":"\n"},"m":[]})";
  const auto got = parse_json(text, {});
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->dump(), text);
}

TEST(JsonReader, BoundsDepthAndCount) {
  const JsonLimits limits{.depth = 5, .values = 100};
  EXPECT_TRUE(parse_json("[[[[[]]]]]", limits));
  EXPECT_TRUE(parse_json("[[[[[1]]]]]", limits)) << "a number is no level";
  const auto deep = parse_json("[[[[[[]]]]]]", limits);
  ASSERT_FALSE(deep);
  EXPECT_NE(deep.error().message.find("5 levels"), std::string::npos);
  std::string list = "[1";
  for (int i = 0; i < 98; ++i) list += ",1";
  EXPECT_TRUE(parse_json(list + "]", limits));
  EXPECT_FALSE(parse_json(list + ",1]", limits));
}

TEST(JsonReader, BombsAreCheap) {
  const std::string deep = std::string(4'000'000, '[');
  std::string keys = "{";
  for (int i = 0; i < 200'000; ++i) keys += "\"k" + std::to_string(i) + "\":0,";
  keys += "\"k5\":0}";
  std::string objects = std::string(3'000'000, ' ');
  for (size_t i = 0; i + 5 < objects.size(); i += 5) objects.replace(i, 5, "{\"a\":");
  for (const std::string& text : {deep, keys, objects}) {
    const std::clock_t before = std::clock();
    EXPECT_FALSE(parse_json(text, {}));
    // Milliseconds of the processor, where nothing is quadratic; the room is for sanitizers.
    EXPECT_LT(std::clock() - before, 5 * CLOCKS_PER_SEC);
  }
}

TEST(JsonReader, QuotesWholeCharactersOnly) {
  EXPECT_EQ(quote_text("short"), "short");
  std::string text(47, 'x');
  text += "é tail";
  EXPECT_EQ(quote_text(text), std::string(47, 'x') + "...");
  EXPECT_EQ(quote_json(nlohmann::ordered_json::array({1, 2})), "a list of 2");
}

}  // namespace
}  // namespace quintet
