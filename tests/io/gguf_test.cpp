// The GGUF reader: what it gives for right files and what it says about wrong ones.
#include "io/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "io/file_builder.h"

namespace quintet {
namespace {

using test::Bytes;
using test::GgufBuilder;
using test::message_of;
using test::sample_gguf;
using testing::ElementsAre;
using testing::HasSubstr;

Result<GgufFile> parse(const Bytes& bytes) { return GgufFile::parse(bytes, "file.gguf"); }

TEST(Gguf, ReadsEveryMetadataType) {
  for (const uint32_t version : {2u, 3u}) {
    auto builder = sample_gguf();
    builder.version = version;
    const auto bytes = builder.build();
    const auto file = parse(bytes);
    ASSERT_TRUE(file) << message_of(file);
    EXPECT_EQ(file->version(), version);
    EXPECT_EQ(file->file_bytes(), bytes.size());
    EXPECT_EQ(*file->get_string("general.architecture"), "llama");
    EXPECT_EQ(*file->get_string("empty"), "");
    EXPECT_EQ(*file->get_u64("u8"), 200u);
    EXPECT_EQ(*file->get_i64("i8"), -3);
    EXPECT_EQ(*file->get_u64("u16"), 65535u);
    EXPECT_EQ(*file->get_i64("i16"), -300);
    EXPECT_EQ(*file->get_u64("u32"), 0x80000000u);
    EXPECT_EQ(*file->get_i64("i32"), -70000);
    EXPECT_EQ(*file->get_u64("u64"), ~uint64_t{0});
    EXPECT_EQ(*file->get_i64("i64"), INT64_MIN);
    EXPECT_EQ(*file->get_f32("f32"), 1e-5f);
    EXPECT_EQ(*file->get_f32("f64"), 0.25f);
    EXPECT_TRUE(*file->get_bool("yes"));
    EXPECT_THAT(*file->get_strings("tokens"), ElementsAre("a", "", "\xC4\xA0t"));
    EXPECT_THAT(*file->get_f32s("scores"), ElementsAre(0.5f, -1.5f));
    EXPECT_THAT(*file->get_f32s("doubles"), ElementsAre(0.5f));
    EXPECT_THAT(*file->get_i64s("types"), ElementsAre(1, -2, 3));
    EXPECT_THAT(*file->get_bools("flags"), ElementsAre(false, true));
    EXPECT_THAT(*file->get_bytes("bytes"), ElementsAre(9, 8));
    EXPECT_TRUE(file->is_array("tokens"));
    EXPECT_FALSE(file->is_array("u8"));
    EXPECT_FALSE(file->has("nowhere"));
  }
}

TEST(Gguf, GettersNameFileKeyFoundAndAllowed) {
  const auto bytes = sample_gguf().build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file);
  EXPECT_EQ(message_of(file->get_string("u8")), "file.gguf: metadata 'u8': found u8, allowed is a string");
  EXPECT_EQ(message_of(file->get_u64("i8")),
            "file.gguf: metadata 'i8': found -3, allowed is an integer of 0 or more");
  EXPECT_EQ(
      message_of(file->get_i64("u64")),
      "file.gguf: metadata 'u64': found 18446744073709551615, allowed is an integer from -2^63 to 2^63 - 1");
  EXPECT_EQ(message_of(file->get_u64("f32")),
            "file.gguf: metadata 'f32': found f32, allowed is an integer of 0 or more");
  EXPECT_EQ(message_of(file->get_f32("u8")), "file.gguf: metadata 'u8': found u8, allowed is f32 or f64");
  EXPECT_EQ(message_of(file->get_bool("u8")), "file.gguf: metadata 'u8': found u8, allowed is a bool");
  EXPECT_EQ(message_of(file->get_strings("scores")),
            "file.gguf: metadata 'scores': found an array of 2 f32, allowed is an array of strings");
  EXPECT_EQ(message_of(file->get_strings("empty")),
            "file.gguf: metadata 'empty': found string, allowed is an array of strings");
  EXPECT_THAT(message_of(file->get_i64s("big")), HasSubstr("element 1: found 9223372036854775808"));
  EXPECT_EQ(message_of(file->get_u64("gone")),
            "file.gguf: metadata 'gone': found nothing, allowed is an integer of 0 or more");
  EXPECT_EQ(file->get_u64("gone").error().kind, ErrorKind::not_found);
  EXPECT_EQ(file->get_u64("empty").error().kind, ErrorKind::bad_input);
  for (const auto key : {"gone", "u8"}) {
    EXPECT_FALSE(file->get_i64s(key) || file->get_f32s(key) || file->get_bools(key) || file->get_bytes(key) ||
                 file->get_strings(key) || file->get_string(key) || file->get_f32(key) ||
                 file->get_bool(key));
  }

  EXPECT_EQ(*file->get_u64_or("gone", 7), 7u);
  EXPECT_EQ(*file->get_string_or("gone", "x"), "x");
  EXPECT_EQ(*file->get_f32_or("gone", 2), 2);
  EXPECT_EQ(*file->get_bool_or("gone", true), true);
  EXPECT_EQ(*file->get_u64_or("u8", 7), 200u);
  EXPECT_FALSE(file->get_u64_or("empty", 7)) << "a wrong type is an error, not absence";
  EXPECT_FALSE(file->get_bool_or("u8", true));
}

TEST(Gguf, BooleanBytesAreZeroOrOne) {
  const auto bytes = GgufBuilder()
                         .value<uint8_t>("b", GgufType::boolean, 2)
                         .array<uint8_t>("a", GgufType::boolean, {1, 3})
                         .build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file);
  EXPECT_EQ(message_of(file->get_bool("b")),
            "file.gguf: metadata 'b': found bool byte 2, allowed are the bytes 0 and 1");
  EXPECT_EQ(message_of(file->get_bools("a")),
            "file.gguf: metadata 'a': element 1: found the byte 3, allowed are 0 and 1");
}

TEST(Gguf, DescribesValuesForPeople) {
  auto builder = sample_gguf();
  builder.text("odd", std::string("a\n\x01\xC3\xA9\xFF", 6)).text("long", std::string(200, 'x'));
  builder.array<int32_t>("many", GgufType::i32, std::vector<int32_t>(20, 5));
  const auto bytes = builder.build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file);
  const auto described = [&](std::string_view key) { return file->describe(*file->find(key)); };
  EXPECT_EQ(described("odd"), "'a\\n\\x01\xC3\xA9\\xff'");
  EXPECT_EQ(described("long"), "'" + std::string(80, 'x') + "'...");
  EXPECT_EQ(described("many"), "[5, 5, 5, 5, 5, 5, 5, 5, ... 20 in all]");
  EXPECT_EQ(described("tokens"), "['a', '', '\xC4\xA0t']");
  EXPECT_EQ(described("yes"), "true");
  EXPECT_EQ(described("u64"), "18446744073709551615");
  EXPECT_EQ(described("f64"), "0.25");
}

TEST(Gguf, GivesTensorsTheirBytesAndShape) {
  const auto builder = sample_gguf();
  const auto bytes = builder.build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file) << message_of(file);
  ASSERT_EQ(file->tensors().size(), 4u);
  const auto* embedding = file->find_tensor("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->format, WeightFormat::q8_0);
  EXPECT_THAT(embedding->shape, ElementsAre(200, 64));
  EXPECT_EQ(embedding->bytes.size(), 200u * 68);
  const size_t data = (builder.header_bytes() + 31) / 32 * 32;
  EXPECT_EQ(embedding->bytes.data(), bytes.data() + data);
  EXPECT_THAT(file->find_tensor("cube")->shape, ElementsAre(2, 3, 4));
  EXPECT_EQ(file->find_tensor("ffn.weight")->bytes.data(), bytes.data() + data + 13920);
  EXPECT_EQ(file->find_tensor("ffn.weigh"), nullptr);
}

TEST(Gguf, HonoursAlignment) {
  GgufBuilder builder;
  builder.alignment = 4096;
  const auto bytes = builder.value<uint32_t>("general.alignment", GgufType::u32, 4096)
                         .tensor("a", {3}, 0, 0)
                         .tensor("b", {3}, 0, 4096)
                         .data(4108)
                         .build();
  const auto file = parse(bytes);
  ASSERT_TRUE(file) << message_of(file);
  EXPECT_EQ(file->find_tensor("b")->bytes.data(), bytes.data() + 8192);
}

TEST(Gguf, WalksNestedArraysToADepth) {
  const auto nested = [](int depth) {
    test::Writer value;
    value.number(static_cast<uint32_t>(GgufType::array));
    for (int i = 1; i < depth; ++i) value.number(static_cast<uint32_t>(GgufType::array)).number<uint64_t>(1);
    value.number(static_cast<uint32_t>(GgufType::u8)).number<uint64_t>(2).number<uint16_t>(0x0201);
    return GgufBuilder().raw_value("n", value.bytes).text("after", "x").build();
  };
  const auto four = nested(4);
  const auto file = parse(four);
  ASSERT_TRUE(file) << message_of(file);
  EXPECT_EQ(*file->get_string("after"), "x");
  EXPECT_THAT(message_of(file->get_i64s("n")),
              HasSubstr("found an array of 1 array, allowed is an array of integers"));
  EXPECT_EQ(file->describe(*file->find("n")), "[arrays]");
  EXPECT_EQ(message_of(parse(nested(5))),
            "file.gguf: metadata 'n': found arrays 5 deep, allowed is at most 4");
}

/// A wrong file and what its message must say.
struct BadCase {
  std::string name;
  std::function<Bytes()> make;
  std::vector<std::string> says;
};

Bytes with_tensor(const std::vector<uint64_t>& dimensions, uint32_t type, uint64_t offset) {
  return GgufBuilder().tensor("w", dimensions, type, offset).data(64).build();
}

std::vector<BadCase> bad_cases() {
  const auto raw = [](auto... numbers) {
    test::Writer out;
    (out.number(numbers), ...);
    return out.bytes;
  };
  const auto with_magic = [](std::string magic) {
    GgufBuilder b;
    b.magic = std::move(magic);
    return b.build();
  };
  const auto with_version = [](uint32_t version) {
    GgufBuilder b;
    b.version = version;
    return b.build();
  };
  const auto with_counts = [](uint64_t tensors, uint64_t keys) {
    GgufBuilder b;
    b.tensor_count = tensors, b.key_count = keys;
    return b.build();
  };
  constexpr uint32_t kString = 8, kArray = 9;
  return {
      {"empty", [] { return Bytes(); }, {"magic", "the end of the file 0 bytes behind byte 0", "4 bytes"}},
      {"magic", [=] { return with_magic("GGUX"); }, {"magic: found 'GGUX'", "'GGUF'"}},
      {"legacy ggml", [=] { return with_magic("lmgg"); }, {"a legacy GGML file", "convert the model again"}},
      {"legacy ggjt", [=] { return with_magic("tjgg"); }, {"a legacy GGML file"}},
      {"big-endian magic", [=] { return with_magic("FUGG"); }, {"a big-endian file"}},
      {"version 1", [=] { return with_version(1); }, {"version: found 1, allowed is 2 or 3"}},
      {"version 4", [=] { return with_version(4); }, {"version: found 4"}},
      {"big-endian version", [=] { return with_version(0x03000000); }, {"version", "a big-endian file"}},
      {"metadata count",
       [=] { return with_counts(0, 1000); },
       {"metadata count: found 1000", "at most 0 in the 8 bytes"}},
      {"metadata count overflows",
       [=] { return with_counts(0, ~uint64_t{0}); },
       {"metadata count: found 18446744073709551615"}},
      {"tensor count overflows",
       [=] { return with_counts(uint64_t{1} << 61, 0); },
       {"tensor count: found 2305843009213693952"}},
      {"key length",
       [=] {
         auto b = GgufBuilder();
         b.raw_value("k", raw(uint32_t{0}, uint64_t{0}));
         auto f = b.build();
         f[24 + 3] = 1;
         return f;
       },
       {"metadata key 1 of 1", "a length of 16777217 bytes", "1 to 65535"}},
      {"empty key",
       [=] { return GgufBuilder().text("", "x").build(); },
       {"metadata key 1 of 1", "a length of 0 bytes"}},
      {"same key",
       [=] { return GgufBuilder().text("k", "x").text("other", "y").text("k", "z").build(); },
       {"metadata 'k': found the key twice"}},
      {"value type",
       [=] { return GgufBuilder().raw_value("k", raw(uint32_t{13}, uint64_t{0})).build(); },
       {"metadata 'k': found the value type 13"}},
      {"string length",
       [=] { return GgufBuilder().raw_value("k", raw(kString, uint64_t{1} << 50)).build(); },
       {"metadata 'k'", "the end of the file", "1125899906842624 bytes"}},
      {"string length overflows",
       [=] { return GgufBuilder().raw_value("k", raw(kString, ~uint64_t{0})).build(); },
       {"metadata 'k'"}},
      {"array type",
       [=] { return GgufBuilder().raw_value("k", raw(kArray, uint32_t{14}, uint64_t{0})).build(); },
       {"the element type 14"}},
      {"array count",
       [=] { return GgufBuilder().raw_value("k", raw(kArray, uint32_t{10}, uint64_t{1} << 61)).build(); },
       {"an array of 2305843009213693952 u64", "at most 1 in the 15 bytes that follow"}},
      {"array of strings",
       [=] { return GgufBuilder().raw_value("k", raw(kArray, kString, uint64_t{1}, uint64_t{999})).build(); },
       {"metadata 'k': found the end of the file", "in element 0, allowed is 999 bytes there"}},
      {"alignment 0",
       [=] { return GgufBuilder().value<uint32_t>("general.alignment", GgufType::u32, 0).build(); },
       {"'general.alignment': found 0", "a power of two from 8"}},
      {"alignment 48",
       [=] { return GgufBuilder().value<uint32_t>("general.alignment", GgufType::u32, 48).build(); },
       {"found 48"}},
      {"alignment huge",
       [=] {
         return GgufBuilder().value<uint64_t>("general.alignment", GgufType::u64, uint64_t{1} << 63).build();
       },
       {"found 9223372036854775808"}},
      {"alignment text",
       [=] { return GgufBuilder().text("general.alignment", "32").build(); },
       {"found string, allowed is an integer"}},
      {"no dimensions",
       [=] { return with_tensor({}, 0, 0); },
       {"tensor 'w': found 0 dimensions, allowed is 1 to 4"}},
      {"many dimensions",
       [=] {
         return with_tensor({1, 1, 1, 1, 1}, 0, 0);
       },
       {"tensor 'w': found 5 dimensions"}},
      {"dimension 0",
       [=] {
         return with_tensor({4, 0}, 0, 0);
       },
       {"tensor 'w': found 0 in dimension 1"}},
      {"dimensions overflow",
       [=] {
         return with_tensor({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0);
       },
       {"tensor 'w': found 4294967296 in dimension 1"}},
      {"dimension negative",
       [=] { return with_tensor({~uint64_t{0}}, 0, 0); },
       {"tensor 'w': found 18446744073709551615 in dimension 0"}},
      {"bytes overflow",
       [=] { return with_tensor({uint64_t{1} << 62}, 0, 0); },
       {"tensor 'w': found 4611686018427387904 weights"}},
      {"known type",
       [=] { return with_tensor({256}, 39, 0); },
       {"tensor 'w': found the type mxfp4 (39)", "one of f32, f16, bf16, q4_0"}},
      {"unknown type", [=] { return with_tensor({256}, 12345, 0); }, {"the type the unknown number 12345"}},
      {"row and block",
       [=] { return with_tensor({48}, 2, 0); },
       {"rows of 48 weights", "a multiple of 32, the block of q4_0"}},
      {"offset unaligned", [=] { return with_tensor({8}, 0, 4); }, {"the offset 4", "a multiple of 32"}},
      {"offset past end",
       [=] { return with_tensor({8}, 0, 96); },
       {"32 bytes at offset 96", "the 64 bytes of data"}},
      {"offset overflows",
       [=] { return with_tensor({8}, 0, ~uint64_t{31}); },
       {"at offset 18446744073709551584"}},
      {"size past end", [=] { return with_tensor({17}, 0, 0); }, {"68 bytes at offset 0"}},
      {"overlap",
       [=] { return GgufBuilder().tensor("a", {16}, 0, 0).tensor("b", {8}, 0, 32).data(64).build(); },
       {"tensor 'b': found bytes that 'a' has too"}},
      {"same tensor",
       [=] { return GgufBuilder().tensor("a", {8}, 0, 0).tensor("a", {8}, 0, 32).data(64).build(); },
       {"tensor 'a': found the name twice"}},
  };
}

TEST(Gguf, NamesTheFaultOfWrongFiles) {
  for (const auto& bad : bad_cases()) {
    SCOPED_TRACE(bad.name);
    const auto bytes = bad.make();
    const auto file = parse(bytes);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(file.error().message, testing::StartsWith("file.gguf: "));
    EXPECT_THAT(file.error().message, HasSubstr("allowed is"));
    for (const auto& text : bad.says) EXPECT_THAT(file.error().message, HasSubstr(text));
  }
}

TEST(GgufSplit, OpensAllPartsThroughAny) {
  const test::TempFolder folder;
  const auto part = [](uint16_t number, uint16_t count) {
    GgufBuilder b;
    b.value<uint16_t>("split.no", GgufType::u16, number).value<uint16_t>("split.count", GgufType::u16, count);
    b.value<int32_t>("split.tensors.count", GgufType::i32, 2);
    return b;
  };
  folder.write("m-00001-of-00003.gguf", part(0, 3).text("general.architecture", "llama").build());
  folder.write("m-00002-of-00003.gguf", part(1, 3).tensor("a", {8}, 0, 0).data(32).build());
  folder.write("m-00003-of-00003.gguf", part(2, 3).tensor("b", {32}, 2, 0).data(32).build());
  for (const auto name : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    auto opened = GgufFile::open(folder / name);
    ASSERT_TRUE(opened) << message_of(opened);
    const GgufFile file = std::move(*opened);
    EXPECT_EQ(*file.get_string("general.architecture"), "llama") << "metadata are the first part's";
    ASSERT_EQ(file.paths().size(), 3u);
    ASSERT_EQ(file.tensors().size(), 2u);
    EXPECT_EQ(file.find_tensor("a")->part, 1);
    EXPECT_EQ(file.find_tensor("b")->part, 2);
    EXPECT_EQ(file.find_tensor("b")->bytes[1], 8) << "readable after the move";
  }

  const auto says = [&](std::string_view name) { return message_of(GgufFile::open(folder / name)); };
  const auto third = folder / "m-00003-of-00003.gguf";
  folder.write("m-00003-of-00003.gguf", part(2, 3).tensor("a", {8}, 0, 0).data(32).build());
  EXPECT_THAT(says("m-00001-of-00003.gguf"), HasSubstr("tensor 'a': found the name twice"));
  folder.write("m-00003-of-00003.gguf", part(2, 3).build());
  EXPECT_THAT(says("m-00001-of-00003.gguf"),
              HasSubstr("split.tensors.count: found 1 tensors in 3 parts, allowed is 2"));
  folder.write("m-00003-of-00003.gguf", part(1, 3).build());
  EXPECT_THAT(says("m-00001-of-00003.gguf"),
              HasSubstr("found split.no 1 of split.count 3, allowed is 2 of 3"));
  folder.write("m-00003-of-00003.gguf", GgufBuilder().build());
  EXPECT_THAT(says("m-00001-of-00003.gguf"), HasSubstr("'split.no': found nothing"));
  std::filesystem::remove(third);
  EXPECT_THAT(says("m-00001-of-00003.gguf"), HasSubstr("m-00003-of-00003.gguf: cannot open: No such file"));
  folder.write("other.gguf", part(0, 3).build());
  EXPECT_THAT(says("other.gguf"),
              HasSubstr("found another file name, allowed is <name>-00001-of-00003.gguf"));
  folder.write("m-00002-of-00009.gguf", part(1, 3).build());
  EXPECT_THAT(says("m-00002-of-00009.gguf"), HasSubstr("allowed is <name>-00002-of-00003.gguf"));
  folder.write("m-00009-of-00003.gguf", part(8, 3).build());
  EXPECT_THAT(says("m-00009-of-00003.gguf"), HasSubstr("split.no 8 of split.count 3"));
  folder.write("single.gguf", part(0, 1).tensor("a", {8}, 0, 0).data(32).build());
  EXPECT_EQ(says("single.gguf"), "no error") << "a set of one is a file like any other";
}

}  // namespace
}  // namespace quintet
