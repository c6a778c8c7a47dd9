// Reads the header of safetensors files; every name, shape and offset is checked before it is used.
#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "io/json_walk.h"

namespace quintet {

namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // by the specification
constexpr size_t kMaxNameBytes = 65535;
constexpr size_t kMaxDimensions = 8;
constexpr int kMaxDepth = 3;  // the header, a tensor, its shape

struct DtypeRow {
  std::string_view name;
  size_t bytes;
};
constexpr std::array<DtypeRow, 17> kDtypes = {{
    {"F64", 8},
    {"F32", 4},
    {"F16", 2},
    {"BF16", 2},
    {"F8_E4M3", 1},
    {"F8_E5M2", 1},
    {"F8_E8M0", 1},
    {"I64", 8},
    {"I32", 4},
    {"I16", 2},
    {"I8", 1},
    {"U64", 8},
    {"U32", 4},
    {"U16", 2},
    {"U8", 1},
    {"BOOL", 1},
    {"C64", 8},
}};

std::string allowed_dtypes() {
  std::string out;
  for (const auto& row : kDtypes) out += fmt::format("{}{}", out.empty() ? "" : ", ", row.name);
  return out;
}

/// A tensor's entry while its object is read.
struct Entry {
  SafeTensor tensor;
  std::vector<uint64_t> offsets;  ///< begin and end within the data
  bool has_shape = false, has_offsets = false;
};

/// Reads the header's JSON into entries.
class HeaderReader {
 public:
  HeaderReader(std::string_view origin, std::vector<Entry>& entries) : origin_(origin), entries_(entries) {}

  Status visit(const JsonEvent& event) {
    if (event.path.empty()) {
      const bool object =
          event.kind == JsonEvent::Kind::begin_object || event.kind == JsonEvent::Kind::end_object;
      return object ? Status() : fault("header", event, "an object");
    }
    if (event.path.size() > 2) return fault(field(event), event, "nothing that deep");
    if (event.path.front() == "__metadata__") return visit_metadata(event);
    return event.path.size() == 1 ? visit_tensor(event) : visit_member(event);
  }

 private:
  static std::string field(const JsonEvent& event) {
    auto text = fmt::format("tensor {}", printable(event.path.front()));
    if (event.path.size() > 1) text += fmt::format(": {}", printable(event.path[1]));
    return text;
  }
  Error fault(std::string_view where, const JsonEvent& event, std::string_view allowed) const {
    return bad_input(
        fmt::format("{}: {}: found {}, allowed is {}", origin_, where, json_kind_name(event.kind), allowed));
  }
  Error fault(std::string_view where, std::string_view found, std::string_view allowed) const {
    return bad_input(fmt::format("{}: {}: found {}, allowed is {}", origin_, where, found, allowed));
  }

  Status visit_metadata(const JsonEvent& event) const {
    if (event.path.size() == 1) {
      const bool object =
          event.kind == JsonEvent::Kind::begin_object || event.kind == JsonEvent::Kind::end_object;
      return object ? Status() : fault("__metadata__", event, "an object of strings");
    }
    return event.kind == JsonEvent::Kind::string ? Status()
                                                 : fault("__metadata__", event, "an object of strings");
  }

  Status visit_tensor(const JsonEvent& event) {
    if (event.kind == JsonEvent::Kind::begin_object && !event.in_array) {
      const auto& name = event.path.front();
      if (name.empty() || name.size() > kMaxNameBytes)
        return fault("tensor name", fmt::format("a length of {} bytes", name.size()),
                     fmt::format("1 to {}", kMaxNameBytes));
      entries_.emplace_back();
      entries_.back().tensor.name = name;
      return {};
    }
    if (event.kind != JsonEvent::Kind::end_object) return fault(field(event), event, "an object");
    const auto& entry = entries_.back();
    const std::string_view missing = entry.tensor.dtype.empty() ? "dtype"
                                     : !entry.has_shape         ? "shape"
                                                                : "data_offsets";
    if (!entry.tensor.dtype.empty() && entry.has_shape && entry.has_offsets) return {};
    return fault(field(event), fmt::format("no {}", missing), "an object of dtype, shape and data_offsets");
  }

  Status visit_member(const JsonEvent& event) {
    auto& entry = entries_.back();
    const auto& key = event.path[1];
    if (key == "dtype") {
      if (event.kind != JsonEvent::Kind::string) return fault(field(event), event, "a string");
      if (!entry.tensor.dtype.empty()) return fault(field(event), "it twice", "once");
      if (safetensors_dtype_bytes(event.string) == 0)
        return fault(field(event), printable(event.string), fmt::format("one of {}", allowed_dtypes()));
      entry.tensor.dtype = event.string;
      return {};
    }
    if (key != "shape" && key != "data_offsets")
      return fault(fmt::format("tensor {}", printable(entry.tensor.name)),
                   fmt::format("the key {}", printable(key)), "dtype, shape and data_offsets");
    return visit_numbers(event, key == "shape");
  }

  Status visit_numbers(const JsonEvent& event, bool shape) {
    auto& entry = entries_.back();
    bool& complete = shape ? entry.has_shape : entry.has_offsets;
    switch (event.kind) {
      case JsonEvent::Kind::begin_array:
        if (event.in_array) break;
        if (complete) return fault(field(event), "it twice", "once");
        complete = true;
        return {};
      case JsonEvent::Kind::end_array:
        if (!shape && entry.offsets.size() != 2)
          return fault(field(event), fmt::format("{} numbers", entry.offsets.size()), "2: begin and end");
        return {};
      case JsonEvent::Kind::unsigned_integer:
        if (!event.in_array) break;
        if (event.integer > static_cast<uint64_t>(INT64_MAX))
          return fault(field(event), fmt::format("{}", event.integer), "numbers below 2^63");
        if ((shape ? entry.tensor.shape.size() : entry.offsets.size()) >= (shape ? kMaxDimensions : 2))
          return fault(field(event), "more numbers",
                       shape ? fmt::format("at most {}", kMaxDimensions) : "2: begin and end");
        if (shape)
          entry.tensor.shape.push_back(static_cast<int64_t>(event.integer));
        else
          entry.offsets.push_back(event.integer);
        return {};
      default: break;
    }
    return fault(field(event), event, "an array of integers of 0 or more");
  }

  std::string_view origin_;
  std::vector<Entry>& entries_;
};

/// Bytes that dtype and shape ask for; nothing where that passes 2^63 - 1.
std::optional<uint64_t> wanted_bytes(const SafeTensor& tensor) {
  uint64_t bytes = safetensors_dtype_bytes(tensor.dtype);
  // A dimension of 0 makes the product 0 whatever the others are, so it is looked for first.
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return 0;
  for (const auto dimension : tensor.shape)
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dimension), &bytes) ||
        bytes > static_cast<uint64_t>(INT64_MAX))
      return std::nullopt;
  return bytes;
}

}  // namespace

size_t safetensors_dtype_bytes(std::string_view dtype) {
  for (const auto& row : kDtypes)
    if (row.name == dtype) return row.bytes;
  return 0;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const uint8_t> bytes, std::string origin) {
  const auto fault = [&](std::string_view where, std::string_view found, std::string_view allowed) {
    return bad_input(fmt::format("{}: {}: found {}, allowed is {}", origin, where, found, allowed));
  };
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes)
    return fault("header length", fmt::format("a file of {} bytes", bytes.size()), "8 bytes and more");
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  const uint64_t limit = std::min<uint64_t>(kMaxHeaderBytes, bytes.size() - sizeof header_bytes);
  if (header_bytes < 2 || header_bytes > limit)
    return fault("header length", fmt::format("{}", header_bytes), fmt::format("2 to {}", limit));
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + sizeof header_bytes,
                                header_bytes);
  if (header.front() != '{') return fault("header", printable(header.substr(0, 1)), "'{'");

  std::vector<Entry> entries;
  HeaderReader reader(origin, entries);
  TRY(walk_json(header, fmt::format("{}: header", origin), kMaxDepth,
                [&](const JsonEvent& event) { return reader.visit(event); }));

  const auto data = bytes.subspan(sizeof header_bytes + header_bytes);
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  SafetensorsFile file;
  uint64_t expected = 0;
  for (auto& entry : entries) {
    const auto where = fmt::format("tensor {}: data_offsets", printable(entry.tensor.name));
    const uint64_t begin = entry.offsets[0], end = entry.offsets[1];
    if (begin > end || end > data.size())
      return fault(where, fmt::format("{} to {}", begin, end),
                   fmt::format("a range within the {} bytes of data", data.size()));
    if (begin != expected)
      return fault(where, fmt::format("{} as begin, {}", begin, begin < expected ? "an overlap" : "a hole"),
                   fmt::format("{}, the end of the tensor before", expected));
    const auto wanted = wanted_bytes(entry.tensor);
    if (wanted != end - begin)
      return fault(where, fmt::format("{} bytes", end - begin),
                   wanted ? fmt::format("{} by dtype and shape", *wanted) : "a shape below 2^63 bytes");
    entry.tensor.bytes = data.subspan(begin, end - begin);
    file.tensors_.push_back(std::move(entry.tensor));
    expected = end;
  }
  if (expected != data.size())
    return fault("data", fmt::format("{} bytes", data.size()),
                 fmt::format("{}, the end of the last tensor", expected));

  file.order_.resize(file.tensors_.size());
  std::iota(file.order_.begin(), file.order_.end(), 0);
  const auto name = [&](uint32_t index) -> const std::string& { return file.tensors_[index].name; };
  std::sort(file.order_.begin(), file.order_.end(),
            [&](uint32_t a, uint32_t b) { return name(a) < name(b); });
  const auto same = std::adjacent_find(file.order_.begin(), file.order_.end(),
                                       [&](uint32_t a, uint32_t b) { return name(a) == name(b); });
  if (same != file.order_.end())
    return fault(fmt::format("tensor {}", printable(name(*same))), "the name twice", "each name once");
  file.path_ = std::move(origin);
  file.file_bytes_ = bytes.size();
  return file;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  TRY_ASSIGN(auto mapped, MappedFile::open(path));
  TRY_ASSIGN(auto file, parse(mapped.bytes(), path));
  file.file_.push_back(std::move(mapped));
  return file;
}

const SafeTensor* SafetensorsFile::find(std::string_view name) const {
  const auto at =
      std::lower_bound(order_.begin(), order_.end(), name,
                       [&](uint32_t index, std::string_view n) { return tensors_[index].name < n; });
  return at != order_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

}  // namespace quintet
