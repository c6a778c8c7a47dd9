// The real models: every tensor's bytes decode to what the reference package reads from the same file, bit
// for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "io/file_builder.h"
#include "io/model_files.h"
#include "quant/python_reference.h"

namespace quintet {
namespace {

class RealFile : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = std::string(QUINTET_SOURCE_DIR) + "/models/" + GetParam();
    if (!std::filesystem::exists(path_))
      GTEST_SKIP() << "no models/" << GetParam() << ": run `make models-all`";
  }
  std::string path_;
};

TEST_P(RealFile, SampledRowsOfEveryTensorEqualTheReference) {
  if (!test::have_python()) GTEST_SKIP() << "no .venv/bin/python: run `make test`";
  const auto seed = test::fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const auto records = test::reference_output("model " + path_ + " --rows 2 --seed " + std::to_string(seed));
  ASSERT_FALSE(records.empty()) << "tools/reference_decode.py failed";
  const auto files = ModelFiles::open(path_);
  ASSERT_TRUE(files) << test::message_of(files);
  test::RecordReader reader(records);
  std::set<std::string> seen;
  while (!reader.done()) {
    const auto length = reader.take<uint32_t>();
    const std::string name(reinterpret_cast<const char*>(reader.take_bytes(length)), length);
    const auto row = reader.take<uint64_t>(), values = reader.take<uint64_t>();
    SCOPED_TRACE(name + " row " + std::to_string(row));
    const auto* tensor = files->find(name);
    ASSERT_NE(tensor, nullptr);
    ASSERT_EQ(tensor->weight.k, static_cast<int64_t>(values));
    ASSERT_LT(static_cast<int64_t>(row), tensor->weight.n);
    const auto& info = format_info(tensor->weight.format);
    std::vector<float> out(values);
    info.decode(tensor->weight.slice_rows(static_cast<int64_t>(row), 1).bytes.data(),
                values / static_cast<uint64_t>(info.block_weights), out.data());
    ASSERT_EQ(std::memcmp(out.data(), reader.take_bytes(values * sizeof(float)), values * sizeof(float)), 0);
    seen.insert(name);
  }
  EXPECT_EQ(seen.size(), files->tensors().size()) << "each tensor was compared";
}

TEST_P(RealFile, OpensQuicklyWithoutReadingTheWeights) {
  const int64_t begin_us = test::cpu_us();
  const auto files = ModelFiles::open(path_);
  ASSERT_TRUE(files) << test::message_of(files);
  EXPECT_LT(test::cpu_us() - begin_us, 1'000'000);
  uint64_t sum = 0;
  for (const auto& tensor : files->tensors()) {
    EXPECT_EQ(
        tensor.weight.bytes.size(),
        format_bytes_of(tensor.weight.format, static_cast<uint64_t>(tensor.weight.n * tensor.weight.k)));
    sum += tensor.weight.bytes.size();
  }
  EXPECT_LE(sum, files->file_bytes());
  EXPECT_GT(sum, files->file_bytes() * 9 / 10);
}

INSTANTIATE_TEST_SUITE_P(
    Models, RealFile,
    testing::Values("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m.Q4_K_M.gguf",
                    "qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf"),
    [](const auto& info) {
      return std::string(info.param).substr(0, std::string(info.param).find_first_of("-."));
    });

TEST(Vocabularies, OpenWithTheirTexts) {
  const std::string folder = std::string(QUINTET_SOURCE_DIR) + "/.cache/vocab";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no .cache/vocab: run `make vocab`";
  int opened = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    SCOPED_TRACE(entry.path());
    const auto files = ModelFiles::open(entry.path(), {.weights = false});
    ASSERT_TRUE(files) << test::message_of(files);
    EXPECT_TRUE(files->tensors().empty());
    const auto tokens = files->gguf()->get_strings("tokenizer.ggml.tokens");
    ASSERT_TRUE(tokens) << test::message_of(tokens);
    EXPECT_GT(tokens->size(), 1000u);
    ++opened;
  }
  EXPECT_GT(opened, 5);
}

/// Bytes of this process's resident pages that belong to files.
uint64_t resident_file_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  uint64_t kib = 0;
  while (status >> word)
    if (word == "RssFile:") status >> kib;
  return kib * 1024;
}

TEST(MappedFile, DroppedPagesLeaveMemoryAndComeBack) {
  const test::TempFolder folder;
  constexpr size_t kBytes = 32 << 20;
  std::string content(kBytes, 'a');
  for (size_t i = 0; i < kBytes; i += 4096) content[i] = static_cast<char>('a' + i / 4096 % 26);
  const auto mapped = MappedFile::open(folder.write("big", content));
  ASSERT_TRUE(mapped) << test::message_of(mapped);
  const auto bytes = mapped->bytes();
  read_ahead(bytes);
  ASSERT_EQ(std::memcmp(bytes.data(), content.data(), kBytes), 0);
  const auto full = resident_file_bytes();
  drop_pages(bytes.subspan(4096 * 10 + 5, kBytes - 4096 * 20));
  EXPECT_LT(resident_file_bytes() + kBytes * 3 / 4, full);
  EXPECT_EQ(std::memcmp(bytes.data(), content.data(), kBytes), 0);
  read_ahead({});
  drop_pages({});
}

TEST(MappedFile, ReadsSmallAndEmptyFiles) {
  const test::TempFolder folder;
  auto empty = MappedFile::open(folder.write("empty", ""));
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->bytes().empty());
  auto other = MappedFile::open(folder.write("other", "xyz"));
  ASSERT_TRUE(other);
  *empty = std::move(*other);
  EXPECT_EQ(empty->bytes().size(), 3u);
  EXPECT_EQ(empty->path(), folder / "other");
  EXPECT_EQ(*read_text_file(folder / "other", 3), "xyz");
  EXPECT_THAT(test::message_of(read_text_file(folder / "other", 2)),
              testing::HasSubstr("found 3 bytes, allowed are at most 2"));
  EXPECT_EQ(read_text_file(folder / "gone", 2).error().kind, ErrorKind::not_found);
}

}  // namespace
}  // namespace quintet
