// Right files, damaged in every place: each gives an error or a file that can be read whole, quickly and in
// little memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <new>
#include <random>

#include "io/file_builder.h"
#include "io/gguf.h"
#include "io/safetensors.h"

// This program counts what it allocates, so that a test can see that a count in a file asks for no memory.
namespace {
std::atomic<size_t> live_bytes{0}, peak_bytes{0};

void* counted(void* block) {
  if (!block) return nullptr;
  const size_t now = live_bytes += malloc_usable_size(block);
  size_t peak = peak_bytes;
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
  }
  return block;
}
void* counted_or_throw(void* block) {
  if (!block) throw std::bad_alloc();
  return counted(block);
}
void release(void* block) {
  if (block) live_bytes -= malloc_usable_size(block);
  std::free(block);
}
}  // namespace

void* operator new(size_t bytes) { return counted_or_throw(std::malloc(bytes)); }
void* operator new[](size_t bytes) { return counted_or_throw(std::malloc(bytes)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted(std::malloc(bytes)); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return counted(std::malloc(bytes)); }
void operator delete(void* block) noexcept { release(block); }
void operator delete[](void* block) noexcept { release(block); }
void operator delete(void* block, size_t) noexcept { release(block); }
void operator delete[](void* block, size_t) noexcept { release(block); }

namespace quintet {
namespace {

using test::Bytes;

/// Messages, the index and the name under test take this much whatever the file's size.
constexpr size_t kSlackBytes = 64 << 10;

/// Most bytes that `work` had allocated at once.
template <class Work>
size_t peak_of(Work&& work) {
  peak_bytes = live_bytes.load();
  const size_t before = live_bytes;
  work();
  return peak_bytes - before;
}

/// Reads everything that the file offers; false where it is refused.
bool read_gguf(std::span<const uint8_t> bytes) {
  const auto file = GgufFile::parse(bytes, "damaged.gguf");
  if (!file) {
    EXPECT_THAT(file.error().message, testing::StartsWith("damaged.gguf: "));
    EXPECT_THAT(file.error().message, testing::HasSubstr("found "));
    EXPECT_THAT(file.error().message, testing::HasSubstr("allowed "));
    EXPECT_EQ(file.error().kind, ErrorKind::bad_input);
    return false;
  }
  for (const auto& value : file->values()) EXPECT_FALSE(file->describe(value).empty());
  for (const auto& tensor : file->tensors()) {
    const auto& info = format_info(tensor.format);
    std::vector<float> block(static_cast<size_t>(info.block_weights));
    info.decode(tensor.bytes.data() + tensor.bytes.size() - static_cast<size_t>(info.block_bytes), 1,
                block.data());
  }
  return true;
}

bool read_safetensors(std::span<const uint8_t> bytes) {
  const auto file = SafetensorsFile::parse(bytes, "damaged.safetensors");
  if (!file) {
    EXPECT_THAT(file.error().message, testing::StartsWith("damaged.safetensors: "));
    EXPECT_THAT(file.error().message, testing::HasSubstr("found "));
    EXPECT_THAT(file.error().message, testing::HasSubstr("allowed "));
    EXPECT_EQ(file.error().kind, ErrorKind::bad_input);
    return false;
  }
  unsigned sum = 0;
  for (const auto& tensor : file->tensors())
    for (const auto byte : tensor.bytes) sum += byte;
  return sum + 1 > 0;
}

/// A copy of exact size in memory of its own, so that a sanitizer sees a read past the end.
Bytes cut(const Bytes& bytes, size_t size) {
  Bytes part(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
  part.shrink_to_fit();
  return part;
}

const std::string kHeader =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[20,50],"data_offsets":[0,4000]},)"
    R"("b":{"dtype":"BF16","shape":[40,100],"data_offsets":[4000,12000]}})";

TEST(Damage, GgufCutAnywhereIsRefused) {
  const auto builder = test::sample_gguf();
  const auto whole = builder.build();
  ASSERT_TRUE(read_gguf(whole));
  for (size_t size = 0; size < builder.header_bytes(); ++size)
    EXPECT_FALSE(read_gguf(cut(whole, size))) << size;
  for (size_t size = 0; size < whole.size(); size += 4096) EXPECT_FALSE(read_gguf(cut(whole, size))) << size;
  EXPECT_FALSE(read_gguf(cut(whole, whole.size() - 1)));
}

TEST(Damage, GgufWithAnyHeaderBitFlippedIsReadOrRefused) {
  const auto builder = test::sample_gguf();
  auto bytes = builder.build();
  size_t refused = 0;
  const size_t bits = builder.header_bytes() * 8;
  for (size_t bit = 0; bit < bits; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    refused += !read_gguf(bytes);
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  // Half of the header are counts, lengths, types and offsets, in which most bits matter.
  EXPECT_GT(refused, bits / 3);
}

TEST(Damage, GgufNumbersOverwrittenAskForNoMemory) {
  const auto builder = test::sample_gguf();
  const auto whole = builder.build();
  const size_t normal = peak_of([&] { read_gguf(whole); });
  EXPECT_LT(normal, whole.size() + kSlackBytes);
  const int64_t begin_us = test::cpu_us();
  for (const uint64_t number : {uint64_t{0}, uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{1} << 62,
                                uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{31}}) {
    for (size_t at = 0; at + 8 <= builder.header_bytes(); ++at) {
      auto bytes = whole;
      std::memcpy(bytes.data() + at, &number, sizeof number);
      const size_t peak = peak_of([&] { read_gguf(bytes); });
      ASSERT_LT(peak, whole.size() + kSlackBytes) << number << " at byte " << at;
    }
  }
  // Several thousand files; each alone is allowed a second.
  EXPECT_LT(test::cpu_us() - begin_us, 30'000'000);
}

TEST(Damage, GgufOfRandomHeadersIsReadOrRefused) {
  std::mt19937 random(std::random_device{}());
  const auto whole = test::sample_gguf().build();
  for (int round = 0; round < 3000; ++round) {
    auto bytes = whole;
    for (int i = 0; i < 4; ++i) bytes[random() % 900] = static_cast<uint8_t>(random());
    read_gguf(cut(bytes, 1 + random() % bytes.size()));
  }
}

/// A file whose only fault is how much it holds: many small entries, and a fault at the end.
TEST(Damage, GgufFullOfSmallEntriesIsRefusedQuickly) {
  test::GgufBuilder keys;
  for (int i = 0; i < 60000; ++i) keys.value<uint8_t>(std::to_string(i), GgufType::u8, 0);
  keys.value<uint8_t>("7", GgufType::u8, 0);
  test::GgufBuilder strings;
  strings.array<std::string>("s", GgufType::string, std::vector<std::string>(500000));
  strings.raw_value("bad", {255, 0, 0, 0});
  test::GgufBuilder tensors;
  for (uint64_t i = 0; i < 130000; ++i) tensors.tensor(std::to_string(i), {1}, 0, i * 32);
  tensors.data(130000 * 32 - 31);
  for (const auto& bytes : {keys.build(), strings.build(), tensors.build()}) {
    const int64_t begin_us = test::cpu_us();
    size_t peak = peak_of([&] { EXPECT_FALSE(read_gguf(bytes)); });
    EXPECT_LT(test::cpu_us() - begin_us, 1'000'000);
    // An entry of 15 bytes in the file is one of about 72 here.
    EXPECT_LT(peak, 8 * bytes.size());
  }
}

TEST(Damage, SafetensorsCutAnywhereIsRefused) {
  const auto whole = test::safetensors_of(kHeader, 12000);
  ASSERT_TRUE(read_safetensors(whole));
  for (size_t size = 0; size < 8 + kHeader.size(); ++size)
    EXPECT_FALSE(read_safetensors(cut(whole, size))) << size;
  for (size_t size = 0; size < whole.size(); size += 4096)
    EXPECT_FALSE(read_safetensors(cut(whole, size))) << size;
  EXPECT_FALSE(read_safetensors(cut(whole, whole.size() - 1)));
}

TEST(Damage, SafetensorsWithAnyHeaderBitFlippedIsReadOrRefused) {
  auto bytes = test::safetensors_of(kHeader, 12000);
  size_t refused = 0;
  const size_t bits = (8 + kHeader.size()) * 8;
  for (size_t bit = 0; bit < bits; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    size_t peak = peak_of([&] { refused += !read_safetensors(bytes); });
    EXPECT_LT(peak, bytes.size() + kSlackBytes);
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  EXPECT_GT(refused, bits * 3 / 4) << "all but names and the free metadata is checked";
}

TEST(Damage, SafetensorsHeadersThatSwellAreRefusedQuickly) {
  const std::string deep = "{\"a\":" + std::string(3'000'000, '[');
  const std::string shapes = R"({"a":{"dtype":"U8","shape":[)" + std::string(1'000'000, '1') + "]}}";
  std::string ones = R"({"a":{"dtype":"U8","shape":[1)";
  for (int i = 0; i < 500'000; ++i) ones += ",1";
  const std::string name = "{\"" + std::string(5'000'000, 'x') + "\xFF\":1}";
  const std::string string = R"({"__metadata__":{"a":")" + std::string(6'000'000, 'x');
  for (const auto& header : {deep, shapes, ones, name, string}) {
    const auto bytes = test::safetensors_of(header, 0);
    const int64_t begin_us = test::cpu_us();
    const size_t peak = peak_of([&] { EXPECT_FALSE(read_safetensors(bytes)); });
    EXPECT_LT(test::cpu_us() - begin_us, 1'000'000);
    EXPECT_LT(peak, 2 * bytes.size() + kSlackBytes) << "one string at most, as it grows";
  }
}

}  // namespace
}  // namespace quintet
