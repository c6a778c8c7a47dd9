// The header of an .npy file and its rows.
#include "cli/npy_file.h"

#include <fmt/format.h>

#include <bit>
#include <cstdio>

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

}  // namespace

Result<NpyFile> NpyFile::create(const std::string& path, int64_t rows, int64_t cols) {
  TRY_ASSIGN(OutputFile file, OutputFile::create(path));
  const std::string bytes = header(rows, cols);
  if (std::fwrite(bytes.data(), 1, bytes.size(), file.stream()) != bytes.size()) return file.write_error();
  return NpyFile(std::move(file), rows * cols);
}

Status NpyFile::write(const float* values, int64_t count) {
  QUINTET_CHECK(count <= values_left_, "more values than the header says");
  values_left_ -= count;
  if (std::fwrite(values, sizeof(float), static_cast<size_t>(count), file_.stream()) !=
      static_cast<size_t>(count))
    return file_.write_error();
  return {};
}

Status NpyFile::finish() {
  QUINTET_CHECK(values_left_ == 0, "{} values fewer than the header says", values_left_);
  return file_.finish();
}

}  // namespace quintet
