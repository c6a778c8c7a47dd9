// Builds GGUF and safetensors files byte by byte, right ones and wrong ones, and folders to put them in.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf.h"

namespace quintet::test {

using Bytes = std::vector<uint8_t>;

/// Appends numbers and texts as GGUF writes them.
class Writer {
 public:
  template <class T>
  Writer& number(T value) {
    const auto* raw = reinterpret_cast<const uint8_t*>(&value);
    bytes.insert(bytes.end(), raw, raw + sizeof value);
    return *this;
  }
  Writer& raw(std::string_view text) {
    bytes.insert(bytes.end(), text.begin(), text.end());
    return *this;
  }
  Writer& text(std::string_view text) { return number<uint64_t>(text.size()).raw(text); }

  Bytes bytes;
};

/// One GGUF file. Counts are those of what was added unless overwritten.
class GgufBuilder {
 public:
  template <class T>
  GgufBuilder& value(std::string_view key, GgufType type, T value) {
    keys_.text(key).number(static_cast<uint32_t>(type)).number(value);
    ++key_count;
    return *this;
  }
  GgufBuilder& text(std::string_view key, std::string_view value) {
    keys_.text(key).number(static_cast<uint32_t>(GgufType::string)).text(value);
    ++key_count;
    return *this;
  }
  template <class T>
  GgufBuilder& array(std::string_view key, GgufType element, const std::vector<T>& values) {
    keys_.text(key).number(static_cast<uint32_t>(GgufType::array)).number(static_cast<uint32_t>(element));
    keys_.number<uint64_t>(values.size());
    for (const auto& value : values) {
      if constexpr (std::is_convertible_v<T, std::string_view>)
        keys_.text(value);
      else
        keys_.number(value);
    }
    ++key_count;
    return *this;
  }
  /// A key whose bytes behind the name are these.
  GgufBuilder& raw_value(std::string_view key, const Bytes& bytes) {
    keys_.text(key);
    keys_.bytes.insert(keys_.bytes.end(), bytes.begin(), bytes.end());
    ++key_count;
    return *this;
  }
  /// Dimensions in GGUF order: the length of a row first.
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& dimensions, uint32_t type,
                      uint64_t offset) {
    tensors_.text(name).number(static_cast<uint32_t>(dimensions.size()));
    for (const auto size : dimensions) tensors_.number(size);
    tensors_.number(type).number(offset);
    ++tensor_count;
    return *this;
  }
  GgufBuilder& data(size_t count) {
    for (size_t i = 0; i < count; ++i) data_.push_back(static_cast<uint8_t>(i * 7 + 1));
    return *this;
  }
  /// Bytes before the data.
  size_t header_bytes() const { return 24 + keys_.bytes.size() + tensors_.bytes.size(); }
  Bytes build() const {
    Writer out;
    out.raw(magic).number(version).number(tensor_count).number(key_count);
    out.bytes.insert(out.bytes.end(), keys_.bytes.begin(), keys_.bytes.end());
    out.bytes.insert(out.bytes.end(), tensors_.bytes.begin(), tensors_.bytes.end());
    while (out.bytes.size() % alignment != 0) out.bytes.push_back(0);
    out.bytes.insert(out.bytes.end(), data_.begin(), data_.end());
    return out.bytes;
  }

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t tensor_count = 0, key_count = 0;
  size_t alignment = 32;

 private:
  Writer keys_, tensors_;
  Bytes data_;
};

/// A small model with every metadata type and several tensors, a little over 16 KiB.
inline GgufBuilder sample_gguf() {
  GgufBuilder builder;
  builder.text("general.architecture", "llama")
      .value<uint8_t>("u8", GgufType::u8, 200)
      .value<int8_t>("i8", GgufType::i8, -3);
  builder.value<uint16_t>("u16", GgufType::u16, 65535).value<int16_t>("i16", GgufType::i16, -300);
  builder.value<uint32_t>("u32", GgufType::u32, 0x80000000u).value<int32_t>("i32", GgufType::i32, -70000);
  builder.value<float>("f32", GgufType::f32, 1e-5f).value<uint8_t>("yes", GgufType::boolean, 1);
  builder.value<uint64_t>("u64", GgufType::u64, ~uint64_t{0}).value<int64_t>("i64", GgufType::i64, INT64_MIN);
  builder.value<double>("f64", GgufType::f64, 0.25).text("empty", "");
  builder.array<std::string>("tokens", GgufType::string, {"a", "", "\xC4\xA0t"});
  builder.array<float>("scores", GgufType::f32, {0.5f, -1.5f})
      .array<int32_t>("types", GgufType::i32, {1, -2, 3});
  builder.array<uint8_t>("flags", GgufType::boolean, {0, 1}).array<uint8_t>("bytes", GgufType::u8, {9, 8});
  builder.array<double>("doubles", GgufType::f64, {0.5})
      .array<uint64_t>("big", GgufType::u64, {1, uint64_t{1} << 63});
  builder.tensor("token_embd.weight", {64, 200}, 8, 0);  // q8_0: 200 rows of 68 bytes
  builder.tensor("norm.weight", {64}, 0, 13600 + 0);     // f32
  builder.tensor("cube", {4, 3, 2}, 1, 13856 + 0);       // f16
  builder.tensor("ffn.weight", {256, 18}, 12, 13920);    // q4_k
  return builder.data(13920 + 18 * 144);
}

/// A folder that goes when the test ends.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "quintet-io-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string write(std::string_view name, std::string_view content) const {
    std::ofstream((*this) / name, std::ios::binary) << content;
    return (*this) / name;
  }
  std::string write(std::string_view name, const Bytes& content) const {
    return write(name, std::string_view(reinterpret_cast<const char*>(content.data()), content.size()));
  }

 private:
  std::string path_;
};

/// A safetensors file of this header and data.
inline Bytes safetensors_of(std::string_view header, size_t data_bytes) {
  Writer out;
  out.text(header);
  for (size_t i = 0; i < data_bytes; ++i) out.bytes.push_back(static_cast<uint8_t>(i * 5 + 3));
  return out.bytes;
}

/// Processor time of this process: what "within a second" means on a machine that is busy with other things.
inline int64_t cpu_us() { return static_cast<int64_t>(std::clock()) * 1'000'000 / CLOCKS_PER_SEC; }

/// The error's message, or a text that says there was none.
template <class T>
std::string message_of(const Result<T>& result) {
  return result ? "no error" : result.error().message;
}

}  // namespace quintet::test
