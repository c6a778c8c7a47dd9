// Tensors' bytes first, their header last.
#include "io/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "io/safetensors.h"

namespace quintet {
namespace {

// Of an entry beside its name: punctuation, dtype, at most four dimensions and two offsets of 20 digits each.
constexpr size_t kEntryBytes = 220;
constexpr size_t kAlignment = 64;  // of the data within the file

/// Room for the header of so many tensors.
size_t room_for(size_t tensors, size_t name_bytes) {
  const size_t wanted = kEntryBytes + tensors * (kEntryBytes + 2 * name_bytes);
  return (8 + wanted + kAlignment - 1) / kAlignment * kAlignment - 8;
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path, size_t tensors,
                                                    size_t name_bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wbex");
  if (!file) return io_error(fmt::format("{}: {}", path, std::strerror(errno)));
  SafetensorsWriter writer(path, file, room_for(tensors, name_bytes));
  const std::vector<uint8_t> room(8 + writer.header_bytes_);
  if (std::fwrite(room.data(), 1, room.size(), file) != room.size()) return writer.failure();
  return writer;
}

Result<SafetensorsWriter::Progress> SafetensorsWriter::checkpoint() {
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) return failure();
  return Progress{data_bytes_, header_};
}

Result<SafetensorsWriter> SafetensorsWriter::resume(const std::string& path, size_t tensors, size_t name_bytes,
                                                    const Progress& progress) {
  std::FILE* file = std::fopen(path.c_str(), "r+be");
  if (!file) return io_error(fmt::format("{}: {}", path, std::strerror(errno)));
  SafetensorsWriter writer(path, file, room_for(tensors, name_bytes));
  const auto end = static_cast<off_t>(8 + writer.header_bytes_ + progress.data_bytes);
  if (std::fseek(file, 0, SEEK_END) != 0 || std::ftell(file) < end)
    return bad_input(fmt::format("{}: found {} bytes, allowed with its state are {} and more; --restart begins anew", path, std::ftell(file), end));
  if (::ftruncate(::fileno(file), end) != 0 || std::fseek(file, 0, SEEK_END) != 0) return writer.failure();
  writer.data_bytes_ = progress.data_bytes;
  writer.header_ = progress.header;
  return writer;
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, nullptr)),
      header_bytes_(other.header_bytes_),
      data_bytes_(other.data_bytes_),
      header_(std::move(other.header_)) {}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_) std::fclose(file_);
}

Error SafetensorsWriter::failure() const {
  return {errno == ENOSPC ? ErrorKind::no_room : ErrorKind::io,
          fmt::format("{}: {}", path_, std::strerror(errno))};
}

Status SafetensorsWriter::add(std::string_view name, std::string_view dtype,
                              const std::vector<int64_t>& shape, std::span<const uint8_t> bytes) {
  uint64_t wanted = safetensors_dtype_bytes(dtype);
  for (const int64_t dimension : shape) wanted *= static_cast<uint64_t>(dimension);
  QUINTET_CHECK(wanted == bytes.size() && shape.size() <= 4, "{}: {} bytes of {}, not {}", name, bytes.size(),
                dtype, wanted);
  const nlohmann::ordered_json entry = {{"dtype", std::string(dtype)},
                                        {"shape", shape},
                                        {"data_offsets", {data_bytes_, data_bytes_ + bytes.size()}}};
  header_ += fmt::format(",{}:{}", nlohmann::ordered_json(std::string(name)).dump(), entry.dump());
  data_bytes_ += bytes.size();
  if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) return failure();
  // The disk begins now, not when everything is there.
  (void)::sync_file_range(::fileno(file_), 0, 0, SYNC_FILE_RANGE_WRITE);
  return {};
}

Status SafetensorsWriter::finish() {
  header_ += "}";
  QUINTET_CHECK(header_.size() <= header_bytes_, "{}: a header of {} bytes in room for {}", path_,
                header_.size(), header_bytes_);
  header_.resize(header_bytes_, ' ');
  const uint64_t length = header_bytes_;
  std::FILE* file = std::exchange(file_, nullptr);
  const bool written = std::fseek(file, 0, SEEK_SET) == 0 &&
                       std::fwrite(&length, sizeof length, 1, file) == 1 &&
                       std::fwrite(header_.data(), 1, header_.size(), file) == header_.size() &&
                       std::fflush(file) == 0 && ::fsync(::fileno(file)) == 0;
  const Error error = failure();
  if (std::fclose(file) != 0 || !written) return error;
  return {};
}

}  // namespace quintet
