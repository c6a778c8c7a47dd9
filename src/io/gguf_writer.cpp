// Metadata values byte for byte as they were read, then tensors as they come.
#include "io/gguf_writer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "io/gguf_layout.h"

namespace quintet {
namespace {

constexpr std::string_view kFileType = "general.file_type";
constexpr std::string_view kAlignmentKey = "general.alignment";

class ByteWriter {
 public:
  template <class T>
  void number(T value) {
    raw({reinterpret_cast<const uint8_t*>(&value), sizeof value});
  }
  /// Not insert(): GCC 12 warns of an overflow in it that is not there.
  void raw(std::span<const uint8_t> bytes) {
    const size_t at = bytes_.size();
    bytes_.resize(at + bytes.size());
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + static_cast<ptrdiff_t>(at));
  }
  void text(std::string_view text) {
    number<uint64_t>(text.size());
    raw({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  void fill() {
    bytes_.resize((bytes_.size() + kGgufDefaultAlignment - 1) / kGgufDefaultAlignment *
                  kGgufDefaultAlignment);
  }

 private:
  std::vector<uint8_t> bytes_;
};

void write_value(const GgufValue& value, ByteWriter& out) {
  out.text(value.key);
  out.number(static_cast<uint32_t>(value.type));
  if (value.type == GgufType::string) out.number<uint64_t>(value.bytes.size());
  if (value.type == GgufType::array) {
    out.number(static_cast<uint32_t>(value.element));
    out.number(value.count);
  }
  out.raw(value.bytes);
}

uint64_t padding_of(uint64_t bytes) {
  return (kGgufDefaultAlignment - bytes % kGgufDefaultAlignment) % kGgufDefaultAlignment;
}

/// The header up to the tensors' list. Tensors are written at the alignment that holds without a key of its
/// own.
ByteWriter header_of(const GgufFile& source, std::optional<uint32_t> file_type, uint64_t tensors) {
  std::vector<const GgufValue*> values;
  for (const GgufValue& value : source.values())
    if (!value.key.starts_with("split.") && value.key != kAlignmentKey &&
        (!file_type || value.key != kFileType))
      values.push_back(&value);
  ByteWriter out;
  out.raw({reinterpret_cast<const uint8_t*>("GGUF"), 4});
  out.number<uint32_t>(3);
  out.number<uint64_t>(tensors);
  out.number<uint64_t>(values.size() + (file_type ? 1 : 0));
  for (const GgufValue* value : values) write_value(*value, out);
  if (file_type) {
    out.text(kFileType);
    out.number(static_cast<uint32_t>(GgufType::u32));
    out.number(*file_type);
  }
  return out;
}

/// Key and type of a value; its bytes follow.
ByteWriter begin_value(std::string_view key, GgufType type) {
  ByteWriter out;
  out.text(key);
  out.number(static_cast<uint32_t>(type));
  return out;
}

ByteWriter begin_array(std::string_view key, GgufType element, size_t count) {
  ByteWriter out = begin_value(key, GgufType::array);
  out.number(static_cast<uint32_t>(element));
  out.number<uint64_t>(count);
  return out;
}

void append(const ByteWriter& value, std::vector<uint8_t>& values, uint64_t& count) {
  values.insert(values.end(), value.bytes().begin(), value.bytes().end());
  ++count;
}

}  // namespace

void GgufMetadata::add(std::string_view key, std::string_view text) {
  ByteWriter out = begin_value(key, GgufType::string);
  out.text(text);
  append(out, values_, count_);
}

void GgufMetadata::add(std::string_view key, uint32_t number) {
  ByteWriter out = begin_value(key, GgufType::u32);
  out.number(number);
  append(out, values_, count_);
}

void GgufMetadata::add(std::string_view key, float number) {
  ByteWriter out = begin_value(key, GgufType::f32);
  out.number(number);
  append(out, values_, count_);
}

void GgufMetadata::add(std::string_view key, bool flag) {
  ByteWriter out = begin_value(key, GgufType::boolean);
  out.number<uint8_t>(flag);
  append(out, values_, count_);
}

void GgufMetadata::add(std::string_view key, const std::vector<std::string>& texts) {
  ByteWriter out = begin_array(key, GgufType::string, texts.size());
  for (const std::string& text : texts) out.text(text);
  append(out, values_, count_);
}

void GgufMetadata::add(std::string_view key, const std::vector<int32_t>& numbers) {
  ByteWriter out = begin_array(key, GgufType::i32, numbers.size());
  for (const int32_t number : numbers) out.number(number);
  append(out, values_, count_);
}

void GgufMetadata::add(std::string_view key, const std::vector<float>& numbers) {
  ByteWriter out = begin_array(key, GgufType::f32, numbers.size());
  for (const float number : numbers) out.number(number);
  append(out, values_, count_);
}

void GgufMetadata::add(std::string_view key, const std::vector<bool>& flags) {
  ByteWriter out = begin_array(key, GgufType::boolean, flags.size());
  for (const bool flag : flags) out.number<uint8_t>(flag);
  append(out, values_, count_);
}

std::vector<uint8_t> GgufMetadata::finish() const {
  ByteWriter out;
  out.raw({reinterpret_cast<const uint8_t*>("GGUF"), 4});
  out.number<uint32_t>(3);
  out.number<uint64_t>(0);
  out.number(count_);
  out.raw(values_);
  out.fill();
  return out.bytes();
}

Status write_gguf_metadata(const std::string& path, const GgufFile& source) {
  ByteWriter out = header_of(source, std::nullopt, 0);
  out.fill();
  const auto failure = [&] { return io_error(fmt::format("{}: {}", path, std::strerror(errno))); };
  std::FILE* file = std::fopen(path.c_str(), "wbex");
  if (!file) return failure();
  const bool written = std::fwrite(out.bytes().data(), 1, out.bytes().size(), file) == out.bytes().size();
  const Error error = failure();
  if (std::fclose(file) != 0 || !written) return error;
  return {};
}

namespace {

/// The whole header, and the bytes of each tensor.
struct Layout {
  ByteWriter header;
  std::vector<uint64_t> sizes;
};

Layout lay_out(const GgufFile& source, std::optional<uint32_t> file_type, const std::vector<GgufTensorPlan>& tensors) {
  Layout layout{header_of(source, file_type, tensors.size()), {}};
  ByteWriter& out = layout.header;
  uint64_t offset = 0;
  for (const GgufTensorPlan& tensor : tensors) {
    const FormatInfo& info = format_info(tensor.format);
    QUINTET_CHECK(info.ggml_type >= 0, "{}: {} is no format of GGUF", tensor.name, info.name);
    out.text(tensor.name);
    out.number(static_cast<uint32_t>(tensor.shape.size()));
    uint64_t weights = 1;
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {  // the length of a row first
      out.number(static_cast<uint64_t>(*size));
      weights *= static_cast<uint64_t>(*size);
    }
    out.number(static_cast<uint32_t>(info.ggml_type));
    out.number(offset);
    layout.sizes.push_back(format_bytes_of(tensor.format, weights));
    offset += layout.sizes.back() + padding_of(layout.sizes.back());
  }
  out.fill();
  return layout;
}

}  // namespace

Result<GgufWriter> GgufWriter::create(const std::string& path, const GgufFile& source, std::optional<uint32_t> file_type,
                                      const std::vector<GgufTensorPlan>& tensors) {
  Layout layout = lay_out(source, file_type, tensors);
  std::reverse(layout.sizes.begin(), layout.sizes.end());
  std::FILE* file = std::fopen(path.c_str(), "wbex");
  if (!file) return io_error(fmt::format("{}: {}", path, std::strerror(errno)));
  GgufWriter writer(path, file, std::move(layout.sizes));
  TRY(writer.write(layout.header.bytes()));
  return writer;
}

Status GgufWriter::checkpoint() {
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) return failure();
  return {};
}

Result<GgufWriter> GgufWriter::resume(const std::string& path, const GgufFile& source, std::optional<uint32_t> file_type,
                                      const std::vector<GgufTensorPlan>& tensors, size_t added) {
  Layout layout = lay_out(source, file_type, tensors);
  std::FILE* file = std::fopen(path.c_str(), "r+be");
  if (!file) return io_error(fmt::format("{}: {}", path, std::strerror(errno)));
  uint64_t end = layout.header.bytes().size();
  for (size_t i = 0; i < added; ++i) end += layout.sizes[i] + padding_of(layout.sizes[i]);
  layout.sizes.erase(layout.sizes.begin(), layout.sizes.begin() + static_cast<std::ptrdiff_t>(added));
  std::reverse(layout.sizes.begin(), layout.sizes.end());
  GgufWriter writer(path, file, std::move(layout.sizes));
  if (std::fseek(file, 0, SEEK_END) != 0 || std::ftell(file) < static_cast<off_t>(end))
    return bad_input(fmt::format("{}: found {} bytes, allowed with its state are {} and more; --restart begins anew", path, std::ftell(file), end));
  if (::ftruncate(::fileno(file), static_cast<off_t>(end)) != 0 || std::fseek(file, 0, SEEK_END) != 0)
    return writer.failure();
  return writer;
}

GgufWriter::GgufWriter(GgufWriter&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, nullptr)),
      left_bytes_(std::move(other.left_bytes_)) {}

GgufWriter::~GgufWriter() {
  if (file_) std::fclose(file_);
}

Error GgufWriter::failure() const {
  return {errno == ENOSPC ? ErrorKind::no_room : ErrorKind::io,
          fmt::format("{}: {}", path_, std::strerror(errno))};
}

Status GgufWriter::write(std::span<const uint8_t> bytes) {
  if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return failure();
  return {};
}

Status GgufWriter::add(std::span<const uint8_t> bytes) {
  QUINTET_CHECK(!left_bytes_.empty() && left_bytes_.back() == bytes.size(),
                "{}: {} bytes of a tensor that has {}", path_, bytes.size(),
                left_bytes_.empty() ? 0 : left_bytes_.back());
  left_bytes_.pop_back();
  TRY(write(bytes));
  static constexpr std::array<uint8_t, kGgufDefaultAlignment> kZeros = {};
  return write(std::span(kZeros).first(padding_of(bytes.size())));
}

Status GgufWriter::finish() {
  QUINTET_CHECK(left_bytes_.empty(), "{}: {} tensors were not added", path_, left_bytes_.size());
  std::FILE* file = std::exchange(file_, nullptr);
  const bool written = std::fflush(file) == 0 && ::fsync(::fileno(file)) == 0;
  const Error error = failure();
  if (std::fclose(file) != 0 || !written) return error;
  return {};
}

}  // namespace quintet
