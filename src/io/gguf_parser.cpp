// Reads the header of GGUF files: every count, length, dimension and offset is checked before it is used.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "io/gguf.h"
#include "io/gguf_layout.h"

namespace quintet {

namespace {

/// Takes numbers and strings from the front of a byte range; false where too few bytes are left, which moves
/// nothing.
class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  template <class T>
  bool take(T& out) {
    if (left() < sizeof(T)) return false;
    std::memcpy(&out, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return true;
  }
  bool skip(uint64_t count) {
    if (left() < count) return false;
    offset_ += count;
    return true;
  }
  uint64_t offset() const { return offset_; }
  uint64_t left() const { return bytes_.size() - offset_; }
  std::span<const uint8_t> since(uint64_t begin) const { return bytes_.subspan(begin, offset_ - begin); }

 private:
  std::span<const uint8_t> bytes_;
  uint64_t offset_ = 0;
};

/// Tensor types of the specification that this program does not read, for messages.
std::string type_number_text(uint32_t type) {
  struct Named {
    uint32_t number;
    std::string_view name;
  };
  static constexpr std::array<Named, 22> kOthers = {{
      {4, "q4_2"},   {5, "q4_3"},        {9, "q8_1"},        {15, "q8_k"},       {19, "iq1_s"},
      {24, "i8"},    {25, "i16"},        {26, "i32"},        {27, "i64"},        {28, "f64"},
      {29, "iq1_m"}, {31, "q4_0_4_4"},   {32, "q4_0_4_8"},   {33, "q4_0_8_8"},   {34, "tq1_0"},
      {35, "tq2_0"}, {36, "iq4_nl_4_4"}, {37, "iq4_nl_4_8"}, {38, "iq4_nl_8_8"}, {39, "mxfp4"},
      {40, "nvfp4"}, {41, "q1_0"},
  }};
  for (const auto& other : kOthers)
    if (other.number == type) return fmt::format("{} ({})", other.name, type);
  return fmt::format("the unknown number {}", type);
}

std::string allowed_formats() {
  std::string out;
  for (const auto& row : format_table())
    if (row.ggml_type >= 0) out += fmt::format("{}{}", out.empty() ? "" : ", ", row.name);
  return out;
}

/// a * b, or nothing where that passes 2^63 - 1.
std::optional<uint64_t> checked_product(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > static_cast<uint64_t>(INT64_MAX))
    return std::nullopt;
  return product;
}

/// `prefix-00001-of-00003.gguf`: what stands before, the number and the count.
struct SplitName {
  std::string prefix;
  uint64_t number = 0, count = 0;
};

std::string split_path(const std::string& prefix, uint64_t number, uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

std::optional<SplitName> parse_split_name(const std::string& path) {
  constexpr std::string_view kTail = "-00001-of-00003.gguf";
  if (path.size() <= kTail.size()) return std::nullopt;
  SplitName name{path.substr(0, path.size() - kTail.size())};
  const auto tail = std::string_view(path).substr(name.prefix.size());
  const auto digits = [&](size_t at, uint64_t& value) {
    for (const char c : tail.substr(at, 5)) {
      if (c < '0' || c > '9') return false;
      value = value * 10 + static_cast<uint64_t>(c - '0');
    }
    return true;
  };
  if (!digits(1, name.number) || !digits(10, name.count) ||
      split_path(name.prefix, name.number, name.count) != path)
    return std::nullopt;
  return name;
}

}  // namespace

/// Parses one file into a GgufFile; `part` is its place in a split set.
class GgufParser {
 public:
  GgufParser(std::span<const uint8_t> bytes, std::string origin) : bytes_(bytes), cursor_(bytes) {
    file_.paths_.push_back(std::move(origin));
    file_.file_bytes_ = bytes.size();
  }

  static Result<GgufFile> parse(std::span<const uint8_t> bytes, std::string origin) {
    GgufParser parser(bytes, std::move(origin));
    TRY(parser.read_counts());
    TRY(parser.read_values());
    TRY(parser.read_alignment());
    TRY(parser.read_tensors());
    TRY(parser.check_overlaps());
    return std::move(parser.file_);
  }

  static Result<GgufFile> open_one(const std::string& path) {
    TRY_ASSIGN(auto mapped, MappedFile::open(path));
    TRY_ASSIGN(auto file, parse(mapped.bytes(), path));
    file.files_.push_back(std::move(mapped));
    return file;
  }

  /// The other parts of a split set of which `opened` is one, in order, as one file.
  static Result<GgufFile> open_rest(GgufFile opened);

  static Status sort_tensors(GgufFile& file);

 private:
  /// What is being read, for messages. Made into text by a fault alone: a file may have a hundred thousand
  /// tensors.
  struct Field {
    std::string_view kind;  ///< "metadata", "tensor", ...
    std::string_view name = {};
    uint64_t number = 0, count = 0;  ///< of an entry whose name is not known yet
  };
  static std::string text_of(const Field& field) {
    if (!field.name.empty()) return fmt::format("{} {}", field.kind, printable(field.name));
    return field.count ? fmt::format("{} {} of {}", field.kind, field.number, field.count)
                       : std::string(field.kind);
  }

  Error fault(const Field& field, std::string_view found, std::string_view allowed) const {
    return bad_input(
        fmt::format("{}: {}: found {}, allowed is {}", file_.path(), text_of(field), found, allowed));
  }
  Error ends(const Field& field, uint64_t wanted_bytes) const {
    return fault(field, end_text(), fmt::format("{} bytes there", wanted_bytes));
  }
  Error element_ends(const Field& field, uint64_t element, uint64_t wanted_bytes) const {
    return fault(field, fmt::format("{} in element {}", end_text(), element),
                 fmt::format("{} bytes there", wanted_bytes));
  }
  std::string end_text() const {
    return fmt::format("the end of the file {} bytes behind byte {}", cursor_.left(), cursor_.offset());
  }

  Status read_counts();
  Status read_name(const Field& field, std::string_view& name);
  Status read_values();
  Status read_value(GgufValue& value);
  Status skip_array(const Field& field, int depth, GgufType& element, uint64_t& count);
  Status read_alignment();
  Status read_tensors();
  Status read_tensor(uint64_t index, GgufTensor& tensor, uint64_t& offset);
  Status check_overlaps();

  std::span<const uint8_t> bytes_;
  Cursor cursor_;
  GgufFile file_;
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  uint64_t alignment_ = kGgufDefaultAlignment;
};

Status GgufParser::read_counts() {
  std::array<char, 4> magic{};
  if (!cursor_.take(magic)) return ends({"magic"}, 4);
  const std::string_view text(magic.data(), magic.size());
  // Magics of older files, which were written as little-endian numbers: the letters stand in reverse.
  if (text == "lmgg" || text == "fmgg" || text == "tjgg" || text == "algg")
    return fault({"magic"}, fmt::format("a legacy GGML file ({})", printable(text)),
                 "GGUF version 2 or 3: convert the model again");
  if (text == "FUGG") return fault({"magic"}, "a big-endian file", "a little-endian GGUF");
  if (text != "GGUF") return fault({"magic"}, printable(text), "'GGUF'");

  if (!cursor_.take(file_.version_)) return ends({"version"}, 4);
  if (file_.version_ != 2 && file_.version_ != 3) {
    if (file_.version_ != 0 && (file_.version_ & 0xFFFF) == 0)
      return fault({"version"}, fmt::format("{:#010x}, so a big-endian file", file_.version_),
                   "a little-endian GGUF");
    return fault({"version"}, fmt::format("{}", file_.version_), "2 or 3");
  }
  if (!cursor_.take(tensor_count_)) return ends({"tensor count"}, 8);
  if (!cursor_.take(key_count_)) return ends({"metadata count"}, 8);
  const auto bounded = [&](const Field& field, uint64_t count, uint64_t limit,
                           uint64_t least_bytes) -> Status {
    limit = std::min(limit, cursor_.left() / least_bytes);
    if (count > limit)
      return fault(field, fmt::format("{}", count),
                   fmt::format("at most {} in the {} bytes that follow", limit, cursor_.left()));
    return {};
  };
  TRY(bounded({"metadata count"}, key_count_, kGgufMaxKeys, kGgufMinKeyBytes));
  return bounded({"tensor count"}, tensor_count_, kGgufMaxTensors, kGgufMinTensorBytes);
}

Status GgufParser::read_name(const Field& field, std::string_view& name) {
  uint64_t length = 0;
  if (!cursor_.take(length)) return ends(field, 8);
  if (length == 0 || length > kGgufMaxNameBytes)
    return fault(field, fmt::format("a length of {} bytes at byte {}", length, cursor_.offset() - 8),
                 fmt::format("1 to {}", kGgufMaxNameBytes));
  const auto begin = cursor_.offset();
  if (!cursor_.skip(length)) return ends(field, length);
  const auto bytes = cursor_.since(begin);
  name = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  return {};
}

Status GgufParser::read_values() {
  for (uint64_t i = 0; i < key_count_; ++i) {
    GgufValue value;
    TRY(read_name({.kind = "metadata key", .number = i + 1, .count = key_count_}, value.key));
    TRY(read_value(value));
    file_.values_.push_back(value);
  }
  file_.value_order_.resize(file_.values_.size());
  std::iota(file_.value_order_.begin(), file_.value_order_.end(), 0);
  const auto key = [&](uint32_t index) { return file_.values_[index].key; };
  std::sort(file_.value_order_.begin(), file_.value_order_.end(),
            [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  const auto same = std::adjacent_find(file_.value_order_.begin(), file_.value_order_.end(),
                                       [&](uint32_t a, uint32_t b) { return key(a) == key(b); });
  if (same != file_.value_order_.end())
    return fault({"metadata", key(*same)}, "the key twice", "each key once");
  return {};
}

Status GgufParser::read_value(GgufValue& value) {
  const Field field{"metadata", value.key};
  uint32_t type = 0;
  if (!cursor_.take(type)) return ends(field, 4);
  if (type >= kGgufTypes) return fault(field, fmt::format("the value type {}", type), "0 to 12");
  value.type = static_cast<GgufType>(type);

  uint64_t bytes = gguf_type_bytes(value.type);
  if (value.type == GgufType::array) {
    uint64_t begin = cursor_.offset() + 12;  // behind element type and count
    TRY(skip_array(field, 1, value.element, value.count));
    value.bytes = cursor_.since(begin);
    return {};
  }
  if (value.type == GgufType::string && !cursor_.take(bytes)) return ends(field, 8);
  const auto begin = cursor_.offset();
  if (!cursor_.skip(bytes)) return ends(field, bytes);
  value.bytes = cursor_.since(begin);
  return {};
}

Status GgufParser::skip_array(const Field& field, int depth, GgufType& element, uint64_t& count) {
  if (depth > kGgufMaxArrayDepth)
    return fault(field, fmt::format("arrays {} deep", depth), fmt::format("at most {}", kGgufMaxArrayDepth));
  uint32_t type = 0;
  if (!cursor_.take(type)) return ends(field, 4);
  if (!cursor_.take(count)) return ends(field, 8);
  if (type >= kGgufTypes) return fault(field, fmt::format("the element type {}", type), "0 to 12");
  element = static_cast<GgufType>(type);
  const uint64_t fixed = gguf_type_bytes(element);
  const uint64_t least = fixed ? fixed : element == GgufType::string ? 8 : 12;
  if (count > cursor_.left() / least)
    return fault(
        field, fmt::format("an array of {} {}", count, gguf_type_name(element)),
        fmt::format("at most {} in the {} bytes that follow", cursor_.left() / least, cursor_.left()));
  if (fixed) {
    cursor_.skip(count * fixed);
    return {};
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (element == GgufType::array) {
      GgufType inner{};
      uint64_t inner_count = 0;
      TRY(skip_array(field, depth + 1, inner, inner_count));
      continue;
    }
    uint64_t length = 0;
    if (!cursor_.take(length)) return element_ends(field, i, 8);
    if (!cursor_.skip(length)) return element_ends(field, i, length);
  }
  return {};
}

Status GgufParser::read_alignment() {
  TRY_ASSIGN(alignment_, file_.get_u64_or("general.alignment", kGgufDefaultAlignment));
  if (alignment_ < 8 || alignment_ > kGgufMaxAlignment || !std::has_single_bit(alignment_))
    return fault({"metadata", "general.alignment"}, fmt::format("{}", alignment_),
                 fmt::format("a power of two from 8 to {}", kGgufMaxAlignment));
  return {};
}

Status GgufParser::read_tensors() {
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    GgufTensor tensor;
    uint64_t offset = 0;
    TRY(read_tensor(i, tensor, offset));
    file_.tensors_.push_back(std::move(tensor));
    offsets.push_back(offset);
  }
  TRY(sort_tensors(file_));

  // The data begin at the next multiple of the alignment. alignment_ - 1 is far below what could overflow.
  const uint64_t data = (cursor_.offset() + alignment_ - 1) / alignment_ * alignment_;
  const uint64_t data_bytes = bytes_.size() > data ? bytes_.size() - data : 0;
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    auto& tensor = file_.tensors_[i];
    const Field field{"tensor", tensor.name};
    uint64_t weights = 1;
    for (const auto dimension : tensor.shape)
      weights *= static_cast<uint64_t>(dimension);  // checked by read_tensor
    const uint64_t bytes = format_bytes_of(tensor.format, weights);
    if (offsets[i] % alignment_ != 0)
      return fault(field, fmt::format("the offset {}", offsets[i]),
                   fmt::format("a multiple of {}", alignment_));
    if (offsets[i] > data_bytes || bytes > data_bytes - offsets[i])
      return fault(field, fmt::format("{} bytes at offset {}", bytes, offsets[i]),
                   fmt::format("an end within the {} bytes of data that the file has", data_bytes));
    tensor.bytes = bytes_.subspan(data + offsets[i], bytes);
  }
  return {};
}

Status GgufParser::read_tensor(uint64_t index, GgufTensor& tensor, uint64_t& offset) {
  TRY(read_name({.kind = "name of tensor", .number = index + 1, .count = tensor_count_}, tensor.name));
  const Field field{"tensor", tensor.name};
  uint32_t dimensions = 0, type = 0;
  if (!cursor_.take(dimensions)) return ends(field, 4);
  if (dimensions == 0 || dimensions > kGgufMaxDimensions)
    return fault(field, fmt::format("{} dimensions", dimensions), fmt::format("1 to {}", kGgufMaxDimensions));
  uint64_t weights = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    uint64_t size = 0;
    if (!cursor_.take(size)) return ends(field, 8);
    if (size == 0) return fault(field, fmt::format("0 in dimension {}", i), "1 or more");
    const auto product = checked_product(weights, size);
    if (!product)
      return fault(field, fmt::format("{} in dimension {}", size, i), "a product of dimensions below 2^63");
    weights = *product;
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  if (!cursor_.take(type)) return ends(field, 4);
  const auto format = format_from_ggml_type(type);
  if (!format)
    return fault(field, fmt::format("the type {}", type_number_text(type)),
                 fmt::format("one of {}", allowed_formats()));
  tensor.format = *format;
  const auto& info = format_info(*format);
  if (tensor.shape.back() % info.block_weights != 0)
    return fault(field, fmt::format("rows of {} weights", tensor.shape.back()),
                 fmt::format("a multiple of {}, the block of {}", info.block_weights, info.name));
  if (!checked_product(weights / static_cast<uint64_t>(info.block_weights),
                       static_cast<uint64_t>(info.block_bytes)))
    return fault(field, fmt::format("{} weights", weights), "a size below 2^63 bytes");
  if (!cursor_.take(offset)) return ends(field, 8);
  return {};
}

Status GgufParser::check_overlaps() {
  std::vector<const GgufTensor*> by_place;
  for (const auto& tensor : file_.tensors_) by_place.push_back(&tensor);
  std::sort(by_place.begin(), by_place.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->bytes.data() < b->bytes.data(); });
  for (size_t i = 1; i < by_place.size(); ++i) {
    const auto &before = *by_place[i - 1], &after = *by_place[i];
    if (before.bytes.data() + before.bytes.size() > after.bytes.data())
      return fault({"tensor", after.name}, fmt::format("bytes that {} has too", printable(before.name)),
                   "no overlap");
  }
  return {};
}

Status GgufParser::sort_tensors(GgufFile& file) {
  auto& order = file.tensor_order_;
  order.resize(file.tensors_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto name = [&](uint32_t index) { return file.tensors_[index].name; };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return name(a) < name(b); });
  const auto same = std::adjacent_find(order.begin(), order.end(),
                                       [&](uint32_t a, uint32_t b) { return name(a) == name(b); });
  if (same == order.end()) return {};
  return bad_input(fmt::format("{}: tensor {}: found the name twice, allowed is once", file.path(),
                               printable(name(*same))));
}

Result<GgufFile> GgufParser::open_rest(GgufFile opened) {
  TRY_ASSIGN(const uint64_t count, opened.get_u64_or("split.count", 1));
  if (count <= 1) return opened;
  const auto path = opened.path();
  TRY_ASSIGN(const uint64_t number, opened.get_u64("split.no"));
  const auto name = parse_split_name(path);
  if (count > 99999 || number >= count || !name || name->number != number + 1 || name->count != count)
    return bad_input(
        fmt::format("{}: split.no {} of split.count {}: found another file name, allowed is "
                    "<name>-{:05}-of-{:05}.gguf",
                    path, number, count, number + 1, count));

  GgufFile all;
  for (uint64_t i = 0; i < count; ++i) {
    const auto part_path = split_path(name->prefix, i + 1, count);
    TRY_ASSIGN(auto part, i == number ? Result<GgufFile>(std::move(opened)) : open_one(part_path));
    TRY_ASSIGN(const uint64_t part_number, part.get_u64("split.no"));
    TRY_ASSIGN(const uint64_t part_count, part.get_u64("split.count"));
    if (part_number != i || part_count != count)
      return bad_input(fmt::format("{}: found split.no {} of split.count {}, allowed is {} of {}", part_path,
                                   part_number, part_count, i, count));
    for (auto& tensor : part.tensors_) tensor.part = static_cast<int32_t>(i);
    if (i == 0) {
      all = std::move(part);
      continue;
    }
    all.paths_.push_back(part_path);
    all.file_bytes_ += part.file_bytes_;
    std::move(part.files_.begin(), part.files_.end(), std::back_inserter(all.files_));
    std::move(part.tensors_.begin(), part.tensors_.end(), std::back_inserter(all.tensors_));
  }
  TRY_ASSIGN(const uint64_t tensors, all.get_u64_or("split.tensors.count", all.tensors_.size()));
  if (tensors != all.tensors_.size())
    return bad_input(fmt::format("{}: split.tensors.count: found {} tensors in {} parts, allowed is {}",
                                 all.path(), all.tensors_.size(), count, tensors));
  TRY(sort_tensors(all));
  return all;
}

Result<GgufFile> GgufFile::parse(std::span<const uint8_t> bytes, std::string origin) {
  return GgufParser::parse(bytes, std::move(origin));
}

Result<GgufFile> GgufFile::open(const std::string& path) {
  TRY_ASSIGN(auto file, GgufParser::open_one(path));
  return GgufParser::open_rest(std::move(file));
}

}  // namespace quintet
