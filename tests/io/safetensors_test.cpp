// The safetensors reader: what it gives for right files and what it says about wrong ones.
#include "io/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/file_builder.h"

namespace quintet {
namespace {

using test::message_of;
using test::safetensors_of;
using testing::ElementsAre;
using testing::HasSubstr;

Result<SafetensorsFile> parse(const test::Bytes& bytes) {
  return SafetensorsFile::parse(bytes, "m.safetensors");
}

TEST(Safetensors, GivesTensorsInOrderOfTheirBytes) {
  const auto bytes = safetensors_of(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},)"
      R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"none":{"dtype":"I8","shape":[0,9],"data_offsets":[32,32]},)"
      R"("s":{"data_offsets":[32,34],"shape":[],"dtype":"F16"}}   )",
      34);
  const auto file = parse(bytes);
  ASSERT_TRUE(file) << message_of(file);
  ASSERT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_EQ(file->tensors()[1].name, "b");
  const auto* a = file->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, "F32");
  EXPECT_THAT(a->shape, ElementsAre(2, 3));
  EXPECT_EQ(a->bytes.data(), bytes.data() + bytes.size() - 34);
  EXPECT_EQ(a->bytes.size(), 24u);
  EXPECT_TRUE(file->find("s")->shape.empty());
  EXPECT_EQ(file->find("none")->bytes.size(), 0u);
  EXPECT_EQ(file->find("c"), nullptr);
  EXPECT_EQ(file->file_bytes(), bytes.size());
}

TEST(Safetensors, KnowsTheSizeOfEachDtype) {
  EXPECT_EQ(safetensors_dtype_bytes("F64"), 8u);
  EXPECT_EQ(safetensors_dtype_bytes("BF16"), 2u);
  EXPECT_EQ(safetensors_dtype_bytes("F8_E4M3"), 1u);
  EXPECT_EQ(safetensors_dtype_bytes("f32"), 0u);
}

TEST(Safetensors, NamesTheFaultOfWrongFiles) {
  struct BadCase {
    std::string header;
    size_t data_bytes;
    std::vector<std::string> says;
  };
  const std::vector<BadCase> cases = {
      {"", 0, {"header length: found 0"}},
      {"[]", 0, {"header: found '[', allowed is '{'"}},
      {R"({"a":})", 0, {"header: byte 6", "allowed is JSON"}},
      {"{\"\xFF\":1}", 0, {"header: byte", "allowed is JSON"}},
      {R"({"a":5})", 0, {"tensor 'a': found an integer, allowed is an object"}},
      {R"({"a":[]})", 0, {"tensor 'a': found an array"}},
      {R"({"a":{"b":{"c":{}}}})", 0, {"found the key 'b', allowed is dtype, shape and data_offsets"}},
      {R"({"__metadata__":[]})", 0, {"__metadata__: found an array, allowed is an object of strings"}},
      {R"({"__metadata__":{"a":1}})", 0, {"__metadata__: found an integer"}},
      {R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1,
       {"tensor name: found a length of 0 bytes"}},
      {R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, {"tensor 'a': found no dtype"}},
      {R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, {"tensor 'a': found no shape"}},
      {R"({"a":{"dtype":"U8","shape":[1]}})", 1, {"tensor 'a': found no data_offsets"}},
      {R"({"a":{"dtype":"Q4","shape":[1],"data_offsets":[0,1]}})",
       1,
       {"tensor 'a': 'dtype': found 'Q4', allowed is one of F64, F32"}},
      {R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})",
       1,
       {"'dtype': found an integer, allowed is a string"}},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})",
       1,
       {"'shape': found a number that is negative"}},
      {R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, {"'shape': found a number"}},
      {R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})", 1, {"'shape': found a string"}},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}})",
       1,
       {"'shape': found 9223372036854775808"}},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
       1,
       {"'shape': found more numbers, allowed is at most 8"}},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,1]}})",
       1,
       {"a shape below 2^63 bytes"}},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})",
       1,
       {"'data_offsets': found 1 numbers, allowed is 2"}},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})",
       1,
       {"'data_offsets': found more numbers, allowed is 2"}},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, {"data_offsets: found 1 to 0"}},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       1,
       {"found 0 to 2, allowed is a range within the 1 bytes"}},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}})",
       1,
       {"found 18446744073709551615"}},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
       4,
       {"data_offsets: found 4 bytes, allowed is 8 by dtype and shape"}},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, {"a hole, allowed is 0"}},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3,
       {"tensor 'b'", "an overlap, allowed is 2"}},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2, {"data: found 2 bytes, allowed is 1"}},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       0,
       {"tensor 'a': found the name twice"}},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1,
       {"'dtype': found it twice"}},
      {R"({"a":{"dtype":"U8","shape":[],"shape":[1],"data_offsets":[0,1]}})", 1, {"'shape': found it twice"}},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.header);
    const auto file = parse(safetensors_of(bad.header, bad.data_bytes));
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(file.error().message, testing::StartsWith("m.safetensors: "));
    for (const auto& text : bad.says) EXPECT_THAT(file.error().message, HasSubstr(text));
  }
  EXPECT_THAT(message_of(parse({1, 2, 3})),
              HasSubstr("header length: found a file of 3 bytes, allowed is 8 bytes and more"));
  test::Writer huge;
  huge.number(~uint64_t{0}).raw("{}");
  EXPECT_THAT(message_of(parse(huge.bytes)),
              HasSubstr("header length: found 18446744073709551615, allowed is 2 to 2"));
}

TEST(Safetensors, OpensAMappedFile) {
  const test::TempFolder folder;
  const auto path = folder.write(
      "m.safetensors", safetensors_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3));
  auto opened = SafetensorsFile::open(path);
  ASSERT_TRUE(opened) << message_of(opened);
  const SafetensorsFile file = std::move(*opened);
  EXPECT_THAT(file.find("a")->bytes, ElementsAre(3, 8, 13));
  EXPECT_EQ(SafetensorsFile::open(folder / "gone").error().kind, ErrorKind::not_found);
  EXPECT_THAT(message_of(SafetensorsFile::open(folder.path())),
              HasSubstr("found a folder, allowed is a regular file"));
}

}  // namespace
}  // namespace quintet
