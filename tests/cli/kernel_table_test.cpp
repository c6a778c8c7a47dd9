// Kernel tables: what a file may say, and what it may not.
#include "cli/kernel_table_file.h"

#include <algorithm>

#include "cli/program.h"

namespace quintet::test {
namespace {

TEST(KernelTable, ComesBackAsItWasWritten) {
  KernelTable table = committed_kernel_table("Some GPU");
  int32_t value = 0;
  for (const KernelChoice& choice : kernel_choices()) table.*choice.value = std::clamp(++value, choice.low, choice.high);
  const auto read = parse_kernel_table(kernel_table_json(table), "x.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, table);
}

TEST(KernelTable, CommittedOnesAreWithinTheirRanges) {
  for (const std::string_view device : {"NVIDIA H200", "Some GPU", ""}) {
    const KernelTable table = committed_kernel_table(device);
    EXPECT_EQ(table.device, device);
    for (const KernelChoice& choice : kernel_choices()) {
      EXPECT_GE(table.*choice.value, choice.low) << choice.name;
      EXPECT_LE(table.*choice.value, choice.high) << choice.name;
    }
  }
}

TEST(KernelTable, WhatIsLeftOutIsCommitted) {
  const auto read = parse_kernel_table(R"({"device": "NVIDIA H200", "rows_of_16": 12})", "x.json");
  ASSERT_TRUE(read) << read.error().message;
  KernelTable wanted = committed_kernel_table("NVIDIA H200");
  wanted.rows_of_16 = 12;
  EXPECT_EQ(*read, wanted);
}

TEST(KernelTable, WhatCannotBeIsNamed) {
  const std::pair<const char*, const char*> kBad[] = {
      {"", "the file"},
      {"[]", "the file"},
      {R"({"rows_of_8": 8})", "device"},
      {R"({"device": 3})", "device"},
      {R"({"device": ""})", "device"},
      {R"({"device": "x", "rows_of_8": 9})", "rows_of_8: found 9, allowed are 0 to 8"},
      {R"({"device": "x", "rows_of_8": -1})", "rows_of_8: found -1"},
      {R"({"device": "x", "rows_of_8": 18446744073709551615})", "rows_of_8: found 18446744073709551615"},
      {R"({"device": "x", "rows_of_8": "8"})", "rows_of_8: found \"8\""},
      {R"({"device": "x", "attend_blocks": 2.5})", "attend_blocks: found 2.5"},
      {R"({"device": "x", "rows_of_8": 8, "rows_of_8": 4})", "'rows_of_8': found it twice"},
      {R"({"device": "x", "rows_of_8": 8, "device": "y"})", "'device': found it twice"},
      {R"({"device": "x", "stages": 3})", "'stages': found a name that no choice has, allowed are device, rows_of_8"},
  };
  for (const auto& [text, part] : kBad) {
    const auto read = parse_kernel_table(text, "x.json");
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().kind, ErrorKind::bad_input);
    EXPECT_NE(read.error().message.find("x.json"), std::string::npos) << read.error().message;
    EXPECT_NE(read.error().message.find(part), std::string::npos) << read.error().message;
  }
}

TEST(KernelTable, FlagsAreCheckedBeforeAnythingIsLoaded) {
  const TemporaryFolder folder;
  folder.write("bad.json", R"({"device": "x", "rows_of_8": 9})");
  folder.write("good.json", R"({"device": "x"})");
  const auto run_with = [&](const char* file) {
    return run({"run", "--shape", "tiny", "--device", "cpu", "-p", "x", "-n", "1", "--kernel-table", folder.path(file)});
  };
  expect_error(run_with("bad.json"), 2, {"--kernel-table", "bad.json", "rows_of_8", "0 to 8"});
  expect_error(run_with("none.json"), 2, {"--kernel-table", "none.json"});
  expect_error(run({"run", "--shape", "tiny", "--device", "cpu", "-p", "x", "-n", "1", "--kernel-table", ""}), 2, {"--kernel-table", "found nothing", "FILE"});
  const Outcome answer = run_with("good.json");
  EXPECT_EQ(answer.code, 0) << answer.err;
  expect_error(run({"bench", "--shape", "tiny", "--device", "cpu", "--tune", folder.path("out.json")}), 2, {"--tune", "cpu", "GPU"});
  EXPECT_FALSE(std::filesystem::exists(folder.path("out.json")));
}

}  // namespace
}  // namespace quintet::test
