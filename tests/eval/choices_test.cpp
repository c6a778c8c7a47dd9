// Folders of multiple choice: CSV, the two published forms, prompts, and answers by the likeliest letter.
#include "eval/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "backend/reference/reference.h"
#include "engine/engine_client.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

struct Folder {
  std::string path = (fs::temp_directory_path() / "quintet-choices-XXXXXX").string();
  Folder() {
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
    fs::create_directories(path + "/dev");
    fs::create_directories(path + "/test");
  }
  ~Folder() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path + "/" + name, std::ios::binary) << text; }
};

TEST(Csv, QuotesHoldCommasQuotesAndLines) {
  const auto lines = parse_csv("a,b,\"c, \"\"d\"\"\ne\"\r\n\n1,,3", "x.csv");
  ASSERT_TRUE(lines);
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_THAT((*lines)[0], ElementsAre("a", "b", "c, \"d\"\ne"));
  EXPECT_THAT((*lines)[1], ElementsAre("1", "", "3"));
  const auto open = parse_csv("a\n\"b\nc", "x.csv");
  ASSERT_FALSE(open);
  EXPECT_THAT(open.error().message, HasSubstr("x.csv: line 2: found a quote that does not end"));
}

TEST(Choices, BothPublishedFormsAreRead) {
  const Folder mmlu;
  mmlu.write("dev/world_history_dev.csv", "Who?,a,b,c,d,B\n");
  mmlu.write("test/world_history_test.csv", "\"When, then?\",1,2,3,4,D\nWhere?,w,x,y,z,A\n");
  const auto set = read_choices(mmlu.path);
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_FALSE(set->chinese);
  ASSERT_EQ(set->subjects.size(), 1u);
  const ChoiceSubject& subject = set->subjects[0];
  EXPECT_EQ(subject.name, "world_history");
  ASSERT_EQ(subject.questions.size(), 2u);
  EXPECT_EQ(subject.questions[0].answer, 3);
  EXPECT_EQ(choice_prompt(*set, subject, subject.questions[0], 5),
            "The following are multiple choice questions (with answers) about world history.\n\n"
            "Who?\nA. a\nB. b\nC. c\nD. d\nAnswer: B\n\n"
            "When, then?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:");

  const Folder cmmlu;
  cmmlu.write("dev/anatomy.csv", ",Question,A,B,C,D,Answer\n0,谁？,甲,乙,丙,丁,A\n");
  cmmlu.write("test/anatomy.csv", "\xEF\xBB\xBF,Question,A,B,C,D,Answer\n0,几？,一,二,三,四,C\n");
  const auto chinese = read_choices(cmmlu.path);
  ASSERT_TRUE(chinese) << chinese.error().message;
  EXPECT_TRUE(chinese->chinese);
  EXPECT_EQ(choice_prompt(*chinese, chinese->subjects[0], chinese->subjects[0].questions[0], 1),
            "以下是关于anatomy的单项选择题，请直接给出正确答案的选项。\n\n"
            "题目：谁？\nA. 甲\nB. 乙\nC. 丙\nD. 丁\n答案是：A\n\n"
            "题目：几？\nA. 一\nB. 二\nC. 三\nD. 四\n答案是：");
}

TEST(Choices, WrongFilesAreNamed) {
  const Folder folder;
  const auto says = [&] {
    const auto set = read_choices(folder.path);
    return set ? std::string("no error") : set.error().message;
  };
  EXPECT_THAT(says(), HasSubstr("dev: found no .csv files"));
  folder.write("dev/a_dev.csv", "q,1,2,3,4,A\n");
  folder.write("test/a_test.csv", "q,1,2,3,4,E\n");
  EXPECT_THAT(says(), HasSubstr("a_test.csv: entry 1: found the answer 'E', allowed is A, B, C or D"));
  folder.write("test/a_test.csv", "q,1,2,3\n");
  EXPECT_THAT(says(), HasSubstr("found 4 fields, allowed is at least 6"));
  for (const std::string empty : {"", ",Question,A,B,C,D,Answer\n"}) {
    folder.write("test/a_test.csv", empty);
    EXPECT_THAT(says(), HasSubstr("a_test.csv: found no questions, allowed are one and more"));
  }
  folder.write("test/a_test.csv", "q,1,2,3,4,A\n");
  folder.write("dev/a_dev.csv", "");
  EXPECT_THAT(says(), HasSubstr("no error"));  // no answered questions to show
}

TEST(Choices, TheLikeliestLetterIsTheAnswer) {
  const auto backend = make_reference_backend();
  const auto model = load_model(std::string(QUINTET_SOURCE_DIR) + "/tests/golden/data/tiny/qwen2", *backend, {});
  ASSERT_TRUE(model) << model.error().message;
  ChoiceSet set;
  set.subjects.push_back({.name = "x", .questions = {{"Why?", {"a", "b", "c", "d"}, 0}, {"How?", {"1", "2", "3", "4"}, 0}}});
  // What the model itself finds likeliest, computed apart from it.
  for (ChoiceQuestion& question : set.subjects[0].questions) {
    const auto ids = (*model)->tokenizer->encode(choice_prompt(set, set.subjects[0], question, 0), {});
    std::vector<float> last;
    ASSERT_TRUE(prompt_logits(*backend, **model, ids, 32, [&](int32_t, int32_t rows, const float* logits) {
      const int32_t vocabulary = (*model)->config.vocabulary;
      last.assign(logits + (rows - 1) * vocabulary, logits + rows * vocabulary);
      return Status();
    }));
    for (int i = 1; i < 4; ++i) {
      const auto id = [&](int letter) {
        return static_cast<size_t>((*model)->tokenizer->encode(std::string("Answer: ") + static_cast<char>('A' + letter), {.add_bos = false}).back());
      };
      if (last[id(i)] > last[id(question.answer)]) question.answer = i;
    }
  }
  auto scores = score_choices(*backend, **model, set, {.shots = 0});
  ASSERT_TRUE(scores) << scores.error().message;
  EXPECT_THAT((*scores)[0].right, ElementsAre(1.0f, 1.0f));
  set.subjects[0].questions[1].answer = (set.subjects[0].questions[1].answer + 1) % 4;
  scores = score_choices(*backend, **model, set, {.shots = 0});
  EXPECT_THAT((*scores)[0].right, ElementsAre(1.0f, 0.0f));
}

}  // namespace
}  // namespace quintet
