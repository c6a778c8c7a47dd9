// Writes and reads rows of log-probabilities.
#include "eval/log_prob_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/units.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

struct Header {
  char magic[8];
  uint64_t key;
  int64_t rows;
  int64_t vocabulary;
};
static_assert(sizeof(Header) == 32);
constexpr char kMagic[8] = {'Q', 'L', 'O', 'G', 'P', '0', '0', '1'};

uint64_t row_bytes(const LogProbFile::Shape& shape) {
  return 2 * sizeof(float) + static_cast<uint64_t>(shape.vocabulary) * sizeof(uint16_t);
}

uint64_t file_bytes(const LogProbFile::Shape& shape) {
  return sizeof(Header) + static_cast<uint64_t>(shape.rows) * row_bytes(shape);
}

Status check_space(const fs::path& folder, uint64_t wanted_bytes) {
  std::error_code error;
  const auto space = fs::space(folder, error);
  if (error || space.available >= wanted_bytes) return {};
  return no_room(fmt::format("{}: found {} free, reference probabilities need {}", folder.string(),
                             format_bytes(space.available), format_bytes(wanted_bytes)));
}

}  // namespace

bool make_log_prob_row(std::span<const float> logits, int32_t target, LogProbRow& row) {
  float top = -INFINITY;
  for (const float logit : logits) top = std::max(top, logit);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  if (!std::isfinite(top) || !std::isfinite(sum)) return false;
  row.top = static_cast<float>(-std::log(sum));
  row.target = logits[static_cast<size_t>(target)] - top + row.top;
  row.codes.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const float steps = (top - logits[i]) * kLogProbSteps;
    row.codes[i] = steps < 65535.0f ? static_cast<uint16_t>(steps + 0.5f) : uint16_t{65535};
  }
  return true;
}

Result<LogProbFile> LogProbFile::create(const std::string& path, const Shape& shape) {
  std::error_code ignored;
  const fs::path folder = path.empty() ? fs::temp_directory_path(ignored) : fs::absolute(path).parent_path();
  TRY(check_space(folder, file_bytes(shape)));
  if (!path.empty()) {
    TRY_ASSIGN(OutputFile output, OutputFile::create(path));
    LogProbFile made(path, std::move(output), shape);
    TRY(made.write_header());
    return made;
  }
  std::string name = (folder / "quintet-reference-XXXXXX").string();
  const int fd = ::mkstemp(name.data());
  std::FILE* file = fd < 0 ? nullptr : ::fdopen(fd, "w+b");
  if (!file) return io_error(fmt::format("{}: {}", name, std::strerror(errno)));
  ::unlink(name.c_str());
  LogProbFile made("", file, shape);
  TRY(made.write_header());
  return made;
}

Result<LogProbFile> LogProbFile::open(const std::string& path, const Shape& shape) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return not_found(fmt::format("{}: there is no such file", path));
  // A FIFO would wait for its writer.
  if (!fs::is_regular_file(path, ignored))
    return bad_input(fmt::format("{}: found no regular file, allowed is one that can be read back", path));
  std::FILE* file = std::fopen(path.c_str(), "rbe");
  if (!file) return io_error(fmt::format("{}: {}", path, std::strerror(errno)));
  LogProbFile opened(path, file, shape);
  Header header;
  const auto refuse = [&](std::string_view found) {
    return bad_input(
        fmt::format("{}: found {}, allowed are those of this reference, text and windows; remove "
                    "it or name another file",
                    path, found));
  };
  if (std::fread(&header, sizeof header, 1, file) != 1 ||
      std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return refuse("no reference probabilities");
  if (header.key != shape.key || header.rows != shape.rows || header.vocabulary != shape.vocabulary)
    return refuse("reference probabilities of something else");
  if (fs::file_size(path, ignored) != file_bytes(shape)) return refuse("a file that was cut off");
  return opened;
}

Status LogProbFile::write_header() {
  Header header{.key = shape_.key, .rows = shape_.rows, .vocabulary = shape_.vocabulary};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  if (std::fwrite(&header, sizeof header, 1, file_) != 1) return failure("cannot write");
  return {};
}

Error LogProbFile::failure(const char* what) const {
  const auto name = path_.empty() ? std::string("temporary file of reference probabilities") : path_;
  return io_error(fmt::format("{}: {}: {}", name, what, std::strerror(errno)));
}

Status LogProbFile::append(const LogProbRow& row) {
  QUINTET_CHECK(appended_ < shape_.rows && static_cast<int64_t>(row.codes.size()) == shape_.vocabulary,
                "row {} of {} with {} entries", appended_, shape_.rows, row.codes.size());
  const float numbers[2] = {row.top, row.target};
  ++appended_;
  if (std::fwrite(numbers, sizeof numbers, 1, file_) != 1 ||
      std::fwrite(row.codes.data(), sizeof(uint16_t), row.codes.size(), file_) != row.codes.size())
    return failure("cannot write");
  return {};
}

Status LogProbFile::finish() {
  QUINTET_CHECK(appended_ == shape_.rows, "{} rows of {}", appended_, shape_.rows);
  if (output_) return output_->finish();
  if (std::fflush(file_) != 0) return failure("cannot write");
  return {};
}

Status LogProbFile::read(int64_t index, LogProbRow& row) {
  QUINTET_CHECK(index >= 0 && index < shape_.rows, "row {} of {}", index, shape_.rows);
  const auto at = sizeof(Header) + static_cast<uint64_t>(index) * row_bytes(shape_);
  float numbers[2];
  row.codes.resize(static_cast<size_t>(shape_.vocabulary));
  if (::fseeko(file_, static_cast<off_t>(at), SEEK_SET) != 0 ||
      std::fread(numbers, sizeof numbers, 1, file_) != 1 ||
      std::fread(row.codes.data(), sizeof(uint16_t), row.codes.size(), file_) != row.codes.size())
    return failure("cannot read");
  row.top = numbers[0];
  row.target = numbers[1];
  return {};
}

}  // namespace quintet
