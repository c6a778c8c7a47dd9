// Lines of questions, and what answers are worth.
#include "eval/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quintet {
namespace {

using testing::HasSubstr;

float score(TaskMetric metric, const std::vector<std::string>& answers, std::string_view text) {
  return score_answer({.answers = answers, .metric = metric}, text);
}

TEST(Tasks, LinesAreRead) {
  const auto questions = parse_tasks(
      "{\"prompt\": \"2+2?\", \"answer\": 4, \"metric\": \"number\", \"max_tokens\": 8, \"stop\": \"\\n\", \"id\": 7}\n\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Who?\"}], \"answer\": [\"Ada\", \"Lovelace\"], \"metric\": \"f1\", \"task\": "
      "\"names\", \"stop\": [\"a\", \"b\"]}\r\n",
      "x");
  ASSERT_TRUE(questions) << questions.error().message;
  ASSERT_EQ(questions->size(), 2u);
  EXPECT_EQ((*questions)[0].prompt, "2+2?");
  EXPECT_EQ((*questions)[0].answers, std::vector<std::string>{"4"});
  EXPECT_EQ((*questions)[0].max_tokens, 8);
  EXPECT_EQ((*questions)[0].stop, std::vector<std::string>{"\n"});
  EXPECT_EQ((*questions)[1].task, "names");
  EXPECT_EQ((*questions)[1].answers.size(), 2u);
  EXPECT_THAT((*questions)[1].messages_json, HasSubstr("Who?"));
}

TEST(Tasks, FaultsAreNamedByLineAndField) {
  const auto expect = [](const std::string& line, const std::vector<std::string>& parts) {
    const auto questions = parse_tasks("{\"prompt\": \"p\", \"answer\": \"a\"}\n" + line, "q.jsonl");
    ASSERT_FALSE(questions) << line;
    EXPECT_EQ(questions.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(questions.error().message, HasSubstr("q.jsonl: line 2")) << line;
    for (const std::string& part : parts) EXPECT_THAT(questions.error().message, HasSubstr(part)) << line;
  };
  expect("not json", {"no JSON"});
  expect("[1]", {"array", "object"});
  expect("{\"answer\": \"a\"}", {"neither", "one of them"});
  expect("{\"prompt\": \"p\", \"messages\": [], \"answer\": \"a\"}", {"both"});
  expect("{\"prompt\": \"\", \"answer\": \"a\"}", {"prompt", "empty"});
  expect("{\"prompt\": \"p\"}", {"answer", "nothing"});
  expect("{\"prompt\": \"p\", \"answer\": []}", {"answer", "empty list"});
  expect("{\"prompt\": \"p\", \"answer\": [null]}", {"answer", "null"});
  expect("{\"prompt\": \"p\", \"answer\": \"none\", \"metric\": \"number\"}", {"answer", "none", "number in it"});
  expect("{\"prompt\": \"p\", \"answer\": \"a\", \"metric\": \"bleu\"}", {"metric", "bleu", "exact, f1 or number"});
  expect("{\"prompt\": \"p\", \"answer\": \"a\", \"max_tokens\": 0}", {"max_tokens", "0"});
  expect("{\"prompt\": \"p\", \"answer\": \"a\", \"stop\": [\"\"]}", {"stop", "empty"});
  expect("{\"prompt\": \"p\", \"answer\": \"a\", \"anser\": 1}", {"anser", "not known"});
  EXPECT_FALSE(parse_tasks("\n \n", "empty"));
}

TEST(Tasks, ExactIsTheSameWords) {
  EXPECT_EQ(score(TaskMetric::exact, {"The Eiffel Tower"}, " eiffel tower.\n"), 1);
  EXPECT_EQ(score(TaskMetric::exact, {"Paris", "the city of Paris"}, "City of Paris"), 1);
  EXPECT_EQ(score(TaskMetric::exact, {"Paris"}, "in Paris"), 0);
  EXPECT_EQ(score(TaskMetric::exact, {"don't"}, "dont"), 1);
  EXPECT_EQ(score(TaskMetric::exact, {"\u5317\u4eac"}, "\u5317\u4eac\u3002"), 1);
}

TEST(Tasks, F1CountsCommonWords) {
  // 2 words common of 3 and 4: 2 * 2 / 7.
  EXPECT_NEAR(score(TaskMetric::f1, {"red green blue"}, "green blue blue yellow"), 4.0f / 7, 1e-6);
  EXPECT_EQ(score(TaskMetric::f1, {"red", "blue"}, "Blue!"), 1);
  EXPECT_EQ(score(TaskMetric::f1, {"red"}, ""), 0);
  EXPECT_NEAR(score(TaskMetric::f1, {"\u5317\u4eac"}, "\u5317\u4eac\u5e02"), 4.0f / 5, 1e-6);  // a character is a word
}

TEST(Tasks, TheLastNumberCounts) {
  const auto right = [](const std::string& answer, std::string_view text) { return score(TaskMetric::number, {answer}, text) == 1; };
  EXPECT_TRUE(right("#### 1,234", "First 7, then 1234 apples."));
  EXPECT_TRUE(right("72", "= 70 + 2 = 72."));
  EXPECT_FALSE(right("72", "72 of 100"));
  EXPECT_TRUE(right("-0.5", "it is -.5"));
  EXPECT_TRUE(right("0.3333333", "0.33333331"));
  EXPECT_FALSE(right("3", "3.5"));
  EXPECT_FALSE(right("3", "no number"));
  EXPECT_TRUE(right("1000000", "1,000,000"));
}

}  // namespace
}  // namespace quintet
