// Runs tools/reference_decode.py and reads its records, for tests that compare decoders with the PyPI package
// `gguf`.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

namespace quintet::test {

inline const std::string kPython = std::string(QUINTET_SOURCE_DIR) + "/.venv/bin/python";

inline bool have_python() { return std::filesystem::exists(kPython); }

/// A seed that differs from run to run; tests print it.
inline unsigned fresh_seed() { return std::random_device{}() & 0xFFFFFF; }

/// The standard output of tools/reference_decode.py with these arguments; empty where it failed.
inline std::vector<uint8_t> reference_output(const std::string& arguments) {
  const auto command = kPython + " " + QUINTET_SOURCE_DIR + "/tools/reference_decode.py " + arguments;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return {};
  std::vector<uint8_t> out;
  std::vector<uint8_t> chunk(1 << 16);
  while (const size_t got = std::fread(chunk.data(), 1, chunk.size(), pipe))
    out.insert(out.end(), chunk.begin(), chunk.begin() + got);
  return ::pclose(pipe) == 0 ? out : std::vector<uint8_t>{};
}

/// Takes values from the front of the records.
class RecordReader {
 public:
  explicit RecordReader(const std::vector<uint8_t>& bytes) : bytes_(bytes) {}
  bool done() const { return at_ >= bytes_.size(); }
  template <class T>
  T take() {
    T value{};
    std::memcpy(&value, take_bytes(sizeof(T)), sizeof(T));
    return value;
  }
  const uint8_t* take_bytes(size_t count) {
    if (count > bytes_.size() - at_) {
      std::fprintf(stderr, "reference records end early\n");
      std::abort();
    }
    at_ += count;
    return bytes_.data() + at_ - count;
  }

 private:
  const std::vector<uint8_t>& bytes_;
  size_t at_ = 0;
};

/// Equal bits, or both NaN: which NaN a product of infinity and zero gives is the machine's affair.
inline bool same_value(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

}  // namespace quintet::test
