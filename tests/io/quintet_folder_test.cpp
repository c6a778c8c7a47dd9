// Folders that `quintet quantize` writes: the writers give what the readers take, and wrong ones are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/file_builder.h"
#include "io/gguf_writer.h"
#include "io/model_files.h"
#include "io/quintet_config.h"
#include "io/safetensors_writer.h"

namespace quintet {
namespace {

using test::Bytes;
using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

Bytes ramp(size_t count) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + 1);
  return bytes;
}

TEST(SafetensorsWriter, WritesWhatTheReaderTakes) {
  const TempFolder folder;
  const std::string path = folder / "w.safetensors";
  {
    auto writer = SafetensorsWriter::create(path, 4, 20);
    ASSERT_TRUE(writer) << message_of(writer);
    ASSERT_TRUE(writer->add("a", "F32", {2, 3}, ramp(24)));
    ASSERT_TRUE(writer->add("quote\"\n\xC4\xA0", "U8", {5}, ramp(5)));
    ASSERT_TRUE(writer->add("none", "U16", {0}, {}));
    ASSERT_TRUE(writer->add("scalar", "F16", {}, ramp(2)));
    EXPECT_FALSE(SafetensorsFile::open(path)) << "not finished";
    ASSERT_TRUE(writer->finish());
  }
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << message_of(file);
  ASSERT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(file->find("a")->shape, (std::vector<int64_t>{2, 3}));
  const auto bytes = file->find("quote\"\n\xC4\xA0")->bytes;
  EXPECT_EQ(Bytes(bytes.begin(), bytes.end()), ramp(5));
  EXPECT_TRUE(file->find("scalar")->shape.empty());
  EXPECT_FALSE(SafetensorsWriter::create(path, 1, 1)) << "it exists";
  EXPECT_FALSE(SafetensorsWriter::create(folder / "no/such/folder", 1, 1));
}

TEST(GgufMetadata, EveryValueTravels) {
  const TempFolder folder;
  auto builder = test::sample_gguf();
  builder.value<uint16_t>("split.no", GgufType::u16, 0).value<uint16_t>("split.count", GgufType::u16, 1);
  const Bytes bytes = builder.build();
  const auto source = GgufFile::parse(bytes, "source");
  ASSERT_TRUE(source) << message_of(source);
  ASSERT_TRUE(write_gguf_metadata(folder / "m.gguf", *source));
  const auto copy = GgufFile::open(folder / "m.gguf");
  ASSERT_TRUE(copy) << message_of(copy);
  EXPECT_TRUE(copy->tensors().empty());
  EXPECT_EQ(copy->values().size() + 2, source->values().size());
  EXPECT_FALSE(copy->has("split.count"));
  for (const GgufValue& value : copy->values()) {
    const GgufValue* original = source->find(value.key);
    ASSERT_NE(original, nullptr) << value.key;
    EXPECT_EQ(value.type, original->type);
    EXPECT_EQ(value.count, original->count);
    EXPECT_EQ(Bytes(value.bytes.begin(), value.bytes.end()),
              Bytes(original->bytes.begin(), original->bytes.end()));
  }
}

TEST(QuintetConfig, IsReadOrNamed) {
  const auto read = [](std::string_view quantization) {
    return read_quintet_config("config.json",
                               fmt::format(R"({{"a": 1, "quantization_config": {}}})", quantization));
  };
  const auto good =
      read(R"({"quant_method": "quintet", "version": 1, "formats": {"w": "int4_g128", "v": "q8_0"}})");
  ASSERT_TRUE(good) << message_of(good);
  ASSERT_TRUE(*good);
  EXPECT_EQ((**good).size(), 2u);
  EXPECT_EQ((**good).at("w"), WeightFormat::int4_g128);
  EXPECT_FALSE(*read(R"({"quant_method": "gptq", "formats": {"w": 3}})"));
  EXPECT_FALSE(*read("null"));
  const auto says = [&](std::string_view quantization, std::string_view what) {
    const auto bad = read(quantization);
    ASSERT_FALSE(bad) << quantization;
    EXPECT_THAT(bad.error().message, HasSubstr(std::string(what)));
  };
  says(R"({"quant_method": "quintet"})", "version: found none, allowed is 1");
  says(R"({"quant_method": "quintet", "version": 2})", "version: found 2");
  says(R"({"quant_method": "quintet", "version": 1, "formats": {"w": "int5"}})",
       "formats: 'w': found 'int5'");
  says(R"({"quant_method": "quintet", "version": 1, "formats": {"w": 4}})", "formats: 'w'");
}

/// A folder of one compressed tensor "w" [2, 256] with one outlier, and a dense one.
class Folder {
 public:
  Folder() {
    config =
        R"({"quantization_config": {"quant_method": "quintet", "version": 1, "formats": {"w": "int4_g128"}}})";
    const uint32_t begin[3] = {0, 0, 1};
    rows.resize(sizeof begin);
    std::memcpy(rows.data(), begin, sizeof begin);
  }
  Result<ModelFiles> open() {
    std::filesystem::remove(folder / "model.safetensors");
    folder.write("config.json", config);
    auto writer = SafetensorsWriter::create(folder / "model.safetensors", 8, 40);
    EXPECT_TRUE(writer->add("w", "U8", {2, width}, ramp(static_cast<size_t>(2 * width))));
    if (!rows.empty()) {
      EXPECT_TRUE(writer->add("w.outlier_rows", "U32", {static_cast<int64_t>(rows.size() / 4)}, rows));
    }
    if (columns) {
      EXPECT_TRUE(writer->add("w.outlier_columns", "U16", {entries}, ramp(static_cast<size_t>(2 * entries))));
    }
    EXPECT_TRUE(writer->add("w.outlier_values", values_dtype, {1}, ramp(2)));
    EXPECT_TRUE(writer->add("norm", "F32", {4}, ramp(16)));
    EXPECT_TRUE(writer->finish());
    return ModelFiles::open(folder.path());
  }
  TempFolder folder;
  std::string config, values_dtype = "F16";
  Bytes rows;
  int64_t width = 132, entries = 1;
  bool columns = true;
};

TEST(QuintetFolder, TensorsHaveTheirFormatsAndOutliers) {
  Folder folder;
  const auto files = folder.open();
  ASSERT_TRUE(files) << message_of(files);
  EXPECT_TRUE(files->compressed());
  EXPECT_EQ(files->kind(), ModelFiles::Kind::huggingface);
  ASSERT_EQ(files->tensors().size(), 2u);
  const ModelTensor* w = files->find("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->weight.format, WeightFormat::int4_g128);
  EXPECT_EQ(w->weight.n, 2);
  EXPECT_EQ(w->weight.k, 256);
  EXPECT_EQ(w->weight.outliers.first_of(2), 1u);
  EXPECT_EQ(w->weight.outliers.column(0), 0x0801);
  EXPECT_EQ(w->weight.stored_bytes(), 264u + 12 + 2 + 2);
  EXPECT_EQ(files->find("norm")->weight.format, WeightFormat::f32);
}

TEST(QuintetFolder, MetadataOfAGgufMakesItOne) {
  Folder folder;
  const Bytes bytes = test::sample_gguf().build();
  ASSERT_TRUE(write_gguf_metadata(folder.folder / "metadata.gguf", *GgufFile::parse(bytes, "source")));
  const auto files = folder.open();
  ASSERT_TRUE(files) << message_of(files);
  EXPECT_EQ(files->kind(), ModelFiles::Kind::gguf);
  EXPECT_TRUE(files->gguf()->has("general.architecture"));
  EXPECT_NE(files->find("w"), nullptr);
}

TEST(QuintetFolder, FaultsAreNamed) {
  const auto says = [](auto&& damage, const std::vector<std::string>& parts) {
    Folder folder;
    damage(folder);
    const auto files = folder.open();
    ASSERT_FALSE(files) << parts.front();
    for (const auto& part : parts) EXPECT_THAT(files.error().message, HasSubstr(part));
  };
  says([](Folder& f) { f.width = 131; }, {"model.safetensors", "'w'", "multiple of 66", "int4_g128"});
  says([](Folder& f) { f.columns = false; }, {"'w.outlier_columns'", "found nothing"});
  says([](Folder& f) { f.values_dtype = "BF16"; }, {"'w.outlier_values'", "BF16", "F16"});
  // Parts of a fused tensor are cut before their values are checked.
  says([](Folder& f) { f.rows.resize(4); }, {"'w.outlier_rows'", "found 1 elements", "3"});
  says([](Folder& f) { f.rows.resize(16); }, {"'w.outlier_rows'", "found 4 elements", "3"});
  says([](Folder& f) { f.entries = 2; }, {"'w.outlier_values'", "found 1 elements", "2"});
  says(
      [](Folder& f) {
        f.config =
            R"({"quantization_config": {"quant_method": "quintet", "version": 1, "formats": {"w": "int4_g128", "x": "q8_0"}}})";
      },
      {"'x'", "config.json"});
}

}  // namespace
}  // namespace quintet
