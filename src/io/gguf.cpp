// Typed access to the metadata of an open GGUF file.
#include "io/gguf.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/printable.h"
#include "io/gguf_layout.h"

namespace quintet {

namespace {

constexpr std::array<std::string_view, 13> kTypeNames = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

bool is_integer(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::u16:
    case GgufType::i16:
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::u64:
    case GgufType::i64: return true;
    default: return false;
  }
}

bool is_float(GgufType type) { return type == GgufType::f32 || type == GgufType::f64; }

template <class T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// An integer of the file: its bits as int64, and whether it is a u64 beyond that range.
struct Integer {
  int64_t value = 0;
  bool above_i64 = false;
};

Integer load_integer(GgufType type, const uint8_t* at) {
  switch (type) {
    case GgufType::u8: return {load<uint8_t>(at)};
    case GgufType::i8: return {load<int8_t>(at)};
    case GgufType::u16: return {load<uint16_t>(at)};
    case GgufType::i16: return {load<int16_t>(at)};
    case GgufType::u32: return {load<uint32_t>(at)};
    case GgufType::i32: return {load<int32_t>(at)};
    case GgufType::u64: {
      const auto bits = load<uint64_t>(at);
      return {static_cast<int64_t>(bits), bits > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())};
    }
    default: return {load<int64_t>(at)};
  }
}

float load_float(GgufType type, const uint8_t* at) {
  return type == GgufType::f32 ? load<float>(at) : static_cast<float>(load<double>(at));
}

std::string type_text(const GgufValue& value) {
  if (value.type != GgufType::array) return std::string(gguf_type_name(value.type));
  return fmt::format("an array of {} {}", value.count, gguf_type_name(value.element));
}

/// One element for people.
std::string element_text(GgufType type, const uint8_t* at) {
  if (is_integer(type)) {
    const auto integer = load_integer(type, at);
    return integer.above_i64 ? fmt::format("{}", static_cast<uint64_t>(integer.value))
                             : fmt::format("{}", integer.value);
  }
  if (type == GgufType::f32) return fmt::format("{}", load<float>(at));
  if (type == GgufType::f64) return fmt::format("{}", load<double>(at));
  return *at == 0 ? "false" : *at == 1 ? "true" : fmt::format("bool byte {}", *at);
}

/// Calls visit(index, text) for each string of an array that the parser has walked already.
template <class Visit>
void visit_strings(const GgufValue& value, uint64_t limit, Visit&& visit) {
  const uint8_t* at = value.bytes.data();
  for (uint64_t i = 0; i < std::min(value.count, limit); ++i) {
    const auto length = load<uint64_t>(at);
    visit(std::string_view(reinterpret_cast<const char*>(at) + 8, length));
    at += 8 + length;
  }
}

std::string_view text_of(const GgufValue& value) {
  return {reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()};
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  const auto index = static_cast<size_t>(type);
  return index < kTypeNames.size() ? kTypeNames[index] : "unknown";
}

size_t gguf_type_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64: return 8;
    case GgufType::string:
    case GgufType::array: break;
  }
  return 0;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto at =
      std::lower_bound(value_order_.begin(), value_order_.end(), key,
                       [&](uint32_t index, std::string_view k) { return values_[index].key < k; });
  return at != value_order_.end() && values_[*at].key == key ? &values_[*at] : nullptr;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto at =
      std::lower_bound(tensor_order_.begin(), tensor_order_.end(), name,
                       [&](uint32_t index, std::string_view n) { return tensors_[index].name < n; });
  return at != tensor_order_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

bool GgufFile::is_array(std::string_view key) const {
  const auto* value = find(key);
  return value && value->type == GgufType::array;
}

Error GgufFile::wrong_type(const GgufValue& value, std::string_view allowed) const {
  return bad_input(fmt::format("{}: metadata {}: found {}, allowed is {}", path(), printable(value.key),
                               type_text(value), allowed));
}

Error GgufFile::absent(std::string_view key, std::string_view allowed) const {
  return not_found(
      fmt::format("{}: metadata {}: found nothing, allowed is {}", path(), printable(key), allowed));
}

Result<std::string_view> GgufFile::get_string(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return absent(key, "a string");
  if (value->type != GgufType::string) return wrong_type(*value, "a string");
  return text_of(*value);
}

Result<int64_t> GgufFile::get_i64(std::string_view key) const {
  constexpr std::string_view kAllowed = "an integer from -2^63 to 2^63 - 1";
  const auto* value = find(key);
  if (!value) return absent(key, kAllowed);
  if (!is_integer(value->type)) return wrong_type(*value, kAllowed);
  const auto integer = load_integer(value->type, value->bytes.data());
  if (integer.above_i64)
    return bad_input(fmt::format("{}: metadata {}: found {}, allowed is {}", path(), printable(key),
                                 describe(*value), kAllowed));
  return integer.value;
}

Result<uint64_t> GgufFile::get_u64(std::string_view key) const {
  constexpr std::string_view kAllowed = "an integer of 0 or more";
  const auto* value = find(key);
  if (!value) return absent(key, kAllowed);
  if (!is_integer(value->type)) return wrong_type(*value, kAllowed);
  const auto integer = load_integer(value->type, value->bytes.data());
  if (integer.value < 0 && !integer.above_i64)
    return bad_input(fmt::format("{}: metadata {}: found {}, allowed is {}", path(), printable(key),
                                 describe(*value), kAllowed));
  return static_cast<uint64_t>(integer.value);
}

Result<float> GgufFile::get_f32(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return absent(key, "f32 or f64");
  if (!is_float(value->type)) return wrong_type(*value, "f32 or f64");
  return load_float(value->type, value->bytes.data());
}

Result<bool> GgufFile::get_bool(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return absent(key, "a bool");
  if (value->type != GgufType::boolean) return wrong_type(*value, "a bool");
  if (value->bytes[0] > 1)
    return bad_input(fmt::format("{}: metadata {}: found {}, allowed are the bytes 0 and 1", path(),
                                 printable(key), describe(*value)));
  return value->bytes[0] == 1;
}

Result<std::string_view> GgufFile::get_string_or(std::string_view key, std::string_view fallback) const {
  return has(key) ? get_string(key) : Result<std::string_view>(fallback);
}

Result<uint64_t> GgufFile::get_u64_or(std::string_view key, uint64_t fallback) const {
  return has(key) ? get_u64(key) : Result<uint64_t>(fallback);
}

Result<float> GgufFile::get_f32_or(std::string_view key, float fallback) const {
  return has(key) ? get_f32(key) : Result<float>(fallback);
}

Result<bool> GgufFile::get_bool_or(std::string_view key, bool fallback) const {
  return has(key) ? get_bool(key) : Result<bool>(fallback);
}

Result<std::vector<std::string_view>> GgufFile::get_strings(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return absent(key, "an array of strings");
  if (value->type != GgufType::array || value->element != GgufType::string)
    return wrong_type(*value, "an array of strings");
  std::vector<std::string_view> strings;
  strings.reserve(value->count);
  visit_strings(*value, value->count, [&](std::string_view text) { strings.push_back(text); });
  return strings;
}

Result<std::vector<int64_t>> GgufFile::get_i64s(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return absent(key, "an array of integers");
  if (value->type != GgufType::array || !is_integer(value->element))
    return wrong_type(*value, "an array of integers");
  std::vector<int64_t> numbers(value->count);
  const size_t stride = gguf_type_bytes(value->element);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto integer = load_integer(value->element, value->bytes.data() + i * stride);
    if (integer.above_i64)
      return bad_input(fmt::format("{}: metadata {}: element {}: found {}, allowed are integers below 2^63",
                                   path(), printable(key), i, static_cast<uint64_t>(integer.value)));
    numbers[i] = integer.value;
  }
  return numbers;
}

Result<std::vector<float>> GgufFile::get_f32s(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return absent(key, "an array of f32 or f64");
  if (value->type != GgufType::array || !is_float(value->element))
    return wrong_type(*value, "an array of f32 or f64");
  std::vector<float> numbers(value->count);
  const size_t stride = gguf_type_bytes(value->element);
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = load_float(value->element, value->bytes.data() + i * stride);
  return numbers;
}

Result<std::vector<bool>> GgufFile::get_bools(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return absent(key, "an array of bools");
  if (value->type != GgufType::array || value->element != GgufType::boolean)
    return wrong_type(*value, "an array of bools");
  std::vector<bool> flags(value->count);
  for (size_t i = 0; i < flags.size(); ++i) {
    if (value->bytes[i] > 1)
      return bad_input(fmt::format("{}: metadata {}: element {}: found the byte {}, allowed are 0 and 1",
                                   path(), printable(key), i, value->bytes[i]));
    flags[i] = value->bytes[i] == 1;
  }
  return flags;
}

Result<std::span<const uint8_t>> GgufFile::get_bytes(std::string_view key) const {
  const auto* value = find(key);
  if (!value) return absent(key, "an array of u8 or i8");
  if (value->type != GgufType::array || (value->element != GgufType::u8 && value->element != GgufType::i8))
    return wrong_type(*value, "an array of u8 or i8");
  return value->bytes;
}

std::string GgufFile::describe(const GgufValue& value, size_t limit_bytes) const {
  if (value.type == GgufType::string) return printable(text_of(value), limit_bytes);
  if (value.type != GgufType::array) return element_text(value.type, value.bytes.data());
  constexpr uint64_t kShown = 8;
  std::string out = "[";
  const auto append = [&](const std::string& text) {
    if (out.size() > 1) out += ", ";
    out += text;
  };
  if (value.element == GgufType::string) {
    visit_strings(value, kShown, [&](std::string_view text) { append(printable(text, limit_bytes / 4)); });
  } else if (value.element == GgufType::array) {
    append("arrays");
  } else {
    const size_t stride = gguf_type_bytes(value.element);
    for (uint64_t i = 0; i < std::min(value.count, kShown); ++i)
      append(element_text(value.element, value.bytes.data() + i * stride));
  }
  return out + (value.count > kShown ? fmt::format(", ... {} in all]", value.count) : "]");
}

}  // namespace quintet
