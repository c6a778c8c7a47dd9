// The header of an .npy file and its rows.
#include "cli/npy_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace quintet {
namespace {

// The header is padded with spaces to a multiple of this, so that the values are aligned.
constexpr size_t kHeaderAlignment = 64;
static_assert(std::endian::native == std::endian::little, "values are written as they lie in memory: '<f4'");

std::string header(int64_t rows, int64_t cols) {
  std::string text =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  constexpr size_t kMagicBytes = 10;  // "\x93NUMPY", version 1.0, 16-bit length
  while ((kMagicBytes + text.size() + 1) % kHeaderAlignment) text += ' ';
  text += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(text.size() & 0xFF);
  bytes += static_cast<char>(text.size() >> 8);
  return bytes + text;
}

Error write_error(const std::string& path) {
  return io_error(fmt::format("{}: {}", path, std::strerror(errno)));
}

}  // namespace

Status NpyFile::check_writable(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return bad_input(fmt::format("{}: found a folder, allowed is a file's name", path));
  auto folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return bad_input(fmt::format("{}: cannot write into its folder: {}", path, std::strerror(errno)));
  return {};
}

Result<NpyFile> NpyFile::create(const std::string& path, int64_t rows, int64_t cols) {
  TRY(check_writable(path));
  const std::string partial = fmt::format("{}.partial.{}", path, ::getpid());
  std::FILE* file = std::fopen(partial.c_str(), "wbe");
  if (!file) return write_error(partial);
  NpyFile npy(path, partial, file, rows * cols);
  const std::string bytes = header(rows, cols);
  if (std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) return write_error(partial);
  return npy;
}

NpyFile::NpyFile(NpyFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      file_(std::exchange(other.file_, nullptr)),
      values_left_(other.values_left_) {}

NpyFile::~NpyFile() {
  if (!file_) return;
  std::fclose(file_);
  ::unlink(partial_.c_str());
}

Status NpyFile::write(const float* values, int64_t count) {
  QUINTET_CHECK(count <= values_left_, "{}: more values than the header says", path_);
  values_left_ -= count;
  if (std::fwrite(values, sizeof(float), static_cast<size_t>(count), file_) != static_cast<size_t>(count))
    return write_error(partial_);
  return {};
}

Status NpyFile::finish() {
  QUINTET_CHECK(values_left_ == 0, "{}: {} values fewer than the header says", path_, values_left_);
  std::FILE* file = std::exchange(file_, nullptr);
  if (std::fclose(file) != 0 || std::rename(partial_.c_str(), path_.c_str()) != 0) {
    Error error = write_error(path_);
    ::unlink(partial_.c_str());
    return error;
  }
  return {};
}

}  // namespace quintet
