// What GGUF's formats lose of a model's weights, without importance data, and what a weight costs on one
// core.
//
//   quintet_encode_error MODEL.gguf [ROWS]      the first ROWS (64) rows of each matrix of layers 3 and 12
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "io/model_files.h"
#include "quant/encode.h"

namespace quintet {
namespace {

/// The rows of one matrix, cut to whole super-blocks.
std::vector<float> rows_of(const HostWeight& weight, int64_t most) {
  std::vector<float> all, row(static_cast<size_t>(weight.k));
  for (int64_t i = 0; i < std::min(most, weight.n); ++i) {
    decode_row(weight, i, row.data());
    all.insert(all.end(), row.begin(), row.begin() + weight.k / 256 * 256);
  }
  return all;
}

double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Loss {
  double relative = 0, seconds = 0;
};

Loss loss_of(WeightFormat format, const std::vector<float>& values) {
  const FormatInfo& info = format_info(format);
  const size_t blocks = values.size() / static_cast<size_t>(info.block_weights);
  std::vector<uint8_t> bytes(blocks * static_cast<size_t>(info.block_bytes));
  std::vector<float> decoded(values.size());
  const double start = cpu_seconds();
  encode_blocks(format, values, {}, bytes.data());
  const double seconds = cpu_seconds() - start;
  info.decode(bytes.data(), blocks, decoded.data());
  double lost = 0, had = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    lost += std::pow(static_cast<double>(values[i]) - decoded[i], 2);
    had += static_cast<double>(values[i]) * values[i];
  }
  return {lost / had, seconds};
}

int run(const char* path, int64_t rows) {
  const auto files = ModelFiles::open(path);
  if (!files) return std::fprintf(stderr, "%s\n", files.error().message.c_str()), 1;
  std::vector<std::vector<float>> matrices;
  size_t weights = 0;
  for (const ModelTensor& tensor : files->tensors()) {
    const std::string name(tensor.weight.name);
    if (tensor.shape.size() < 2 || tensor.weight.k < 256 ||
        !(name.starts_with("blk.3.") || name.starts_with("blk.12.")))
      continue;
    matrices.push_back(rows_of(tensor.weight, rows));
    weights += matrices.back().size();
  }
  std::printf("| format | relative squared error | ns a weight |\n|---|---|---|\n");
  for (const FormatInfo& info : format_table()) {
    if (!can_encode(info.format) || info.block_weights == 1) continue;
    Loss mean;
    for (const std::vector<float>& values : matrices) {
      const Loss loss = loss_of(info.format, values);
      mean.relative += loss.relative / static_cast<double>(matrices.size());
      mean.seconds += loss.seconds;
    }
    std::printf("| %s | %.3g | %.1f |\n", std::string(info.name).c_str(), mean.relative,
                1e9 * mean.seconds / static_cast<double>(weights));
  }
  return 0;
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: quintet_encode_error MODEL.gguf [ROWS]\n"), 2;
  return quintet::run(argv[1], argc > 2 ? std::atoll(argv[2]) : 64);
}
