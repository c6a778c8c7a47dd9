// Importance matrices come back as they were written; files that are none, or hold what cannot be, are named.
#include "compress/importance.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "io/gguf_writer.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Importance : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
  };
  std::string write(const std::string& name, const std::string& type,
                    const std::vector<Tensor>& tensors) const {
    GgufMetadata metadata;
    metadata.add("general.type", std::string_view(type));
    const std::vector<uint8_t> bytes = metadata.finish();
    const auto header = GgufFile::parse(bytes, name);
    std::vector<GgufTensorPlan> plans;
    for (const Tensor& tensor : tensors) plans.push_back({tensor.name, tensor.shape, WeightFormat::f32});
    auto writer = GgufWriter::create(path(name), *header, std::nullopt, plans);
    EXPECT_TRUE(writer.has_value());
    for (const Tensor& tensor : tensors)
      EXPECT_TRUE(writer->add(
          {reinterpret_cast<const uint8_t*>(tensor.values.data()), tensor.values.size() * sizeof(float)}));
    EXPECT_TRUE(writer->finish());
    return path(name);
  }

  std::string folder_ = ::testing::TempDir() + fmt::format("importance-{}", ::getpid());
};

TEST_F(Importance, ComesBack) {
  std::mt19937 random(std::random_device{}());
  std::exponential_distribution<float> size;
  ImportanceMatrix matrix;
  for (const int64_t k : {1, 33, 576}) {
    std::vector<float>& moments = matrix[fmt::format("blk.{}.ffn_up.weight", k)];
    for (int64_t i = 0; i < k; ++i) moments.push_back(i % 7 == 3 ? 0.0f : size(random));
  }
  ASSERT_TRUE(write_importance(path("m.gguf"), matrix, {.text = "a text", .samples = 3, .length = 7}));
  const auto back = read_importance(path("m.gguf"));
  ASSERT_TRUE(back) << back.error().message;
  ASSERT_EQ(back->size(), matrix.size());
  for (const auto& [name, moments] : matrix)
    for (size_t i = 0; i < moments.size(); ++i)  // 21 tokens: a product and a quotient are rounded
      EXPECT_NEAR(back->at(name)[i], moments[i], 0x1p-22f * moments[i]);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "nothing else is left";
}

TEST_F(Importance, WhatIsNoneIsNamed) {
  const auto expect = [&](const std::string& file, const std::string& part) {
    const auto matrix = read_importance(file);
    ASSERT_FALSE(matrix) << file;
    EXPECT_THAT(matrix.error().message, HasSubstr(part));
    EXPECT_THAT(matrix.error().message, HasSubstr(file));
  };
  const Tensor sums{"w.in_sum2", {1, 3}, {1, 2, 3}}, counts{"w.counts", {1, 1}, {4}};
  expect(write("model.gguf", "model", {sums, counts}), "allowed is 'imatrix'");
  expect(write("empty.gguf", "imatrix", {}), "NAME.in_sum2");
  expect(write("no-counts.gguf", "imatrix", {sums}), "no .counts");
  expect(write("experts.gguf", "imatrix",
               {{"w.in_sum2", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"w.counts", {2, 1}, {4, 4}}}),
         "experts");
  expect(write("negative.gguf", "imatrix", {{"w.in_sum2", {1, 3}, {1, -2, 3}}, counts}), "-2");
  // Each of them finite, but not what they come to.
  expect(write("overflow.gguf", "imatrix", {{"w.in_sum2", {1, 3}, {1, 3e38f, 3}}, {"w.counts", {1, 1}, {0.5f}}}), "finite quotient");
  expect(write("nan.gguf", "imatrix", {{"w.in_sum2", {1, 3}, {1, NAN, 3}}, counts}), "nan");
  expect(write("count.gguf", "imatrix", {sums, {"w.counts", {1, 1}, {INFINITY}}}), "inf");
  expect(write("unseen.gguf", "imatrix", {sums, {"w.counts", {1, 1}, {0}}}), "NAME.in_sum2");
  const auto good = read_importance(write("good.gguf", "imatrix", {sums, counts}));
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->at("w"), (std::vector<float>{0.25f, 0.5f, 0.75f}));
  EXPECT_FALSE(read_importance(path("absent.gguf")));
}

}  // namespace
}  // namespace quintet
