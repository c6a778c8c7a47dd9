// Makes, takes up, fills and names the folder.
#include "compress/work_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/disk_space.h"
#include "base/fnv1a.h"
#include "base/json_parse.h"
#include "base/units.h"
#include "io/gguf_writer.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kStateName = "state.json", kChoiceName = "choice.json", kLockName = "lock", kConfigName = "config.json";
constexpr uint64_t kMaxStateBytes = uint64_t{256} << 20;

/// Files that hold or index weights, which are written anew.
bool is_weights(const fs::path& file) {
  static constexpr std::array<std::string_view, 7> kSuffixes = {".safetensors", ".bin",  ".gguf",      ".pt",
                                                                ".pth",         ".onnx", ".index.json"};
  const std::string name = file.filename().string();
  return std::any_of(kSuffixes.begin(), kSuffixes.end(), [&](auto suffix) { return name.ends_with(suffix); });
}

Error write_error(const std::string& path) {
  return {errno == ENOSPC ? ErrorKind::no_room : ErrorKind::io, fmt::format("{}: {}", path, std::strerror(errno))};
}

/// The whole text, on the disk.
Status write_file(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (!file) return write_error(path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0 &&
                       ::fsync(::fileno(file)) == 0;
  const Error error = write_error(path);
  if (std::fclose(file) != 0 || !written) return error;
  return {};
}

/// Of a name itself, not of what a link leads to; bad_input where it cannot be read (too long, a loop of links).
Result<bool> is_there(const std::string& path) {
  std::error_code error;
  const auto status = fs::symlink_status(path, error);
  if (!fs::status_known(status)) return bad_input(fmt::format("{}: {}", path, error.message()));
  return fs::exists(status);
}

/// "out/" names the folder "out".
std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string_view state_name(WorkStage stage) { return stage == WorkStage::choice ? kChoiceName : kStateName; }

std::string partial_of(const std::string& destination) { return destination + ".partial"; }

Result<std::vector<fs::path>> list(const std::string& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    entries.push_back(entry->path());
  if (error) return io_error(fmt::format("{}: cannot list the folder: {}", folder, error.message()));
  return entries;
}

/// The files of a Hugging Face folder that travel along as they are.
Result<std::vector<fs::path>> companions_of(const std::string& folder) {
  // How the source's weights were compressed, which the result's are not; and names that the work folder has itself.
  static constexpr std::array<std::string_view, 7> kLeftOut = {
      kConfigName, "quantize_config.json", "quant_config.json", "hf_quant_config.json", kStateName, kChoiceName, kLockName};
  TRY_ASSIGN(std::vector<fs::path> entries, list(folder));
  std::erase_if(entries, [&](const fs::path& entry) {
    std::error_code ignored;
    return is_weights(entry) || !fs::is_regular_file(entry, ignored) ||
           std::find(kLeftOut.begin(), kLeftOut.end(), entry.filename().string()) != kLeftOut.end();
  });
  return entries;
}

Status check_space(const std::string& folder, const std::vector<fs::path>& companions) {
  std::error_code error;
  uint64_t wanted = 0;
  for (const fs::path& companion : companions)
    if (const auto bytes = fs::file_size(companion, error); !error) wanted += bytes;
  return check_disk_space(folder, wanted, "the files beside the weights");
}

/// A regular file's bytes and mode under a name that whatever is there loses.
Status copy_file(const std::string& from, const std::string& to, const GoesOn& goes_on) {
  struct Descriptor {
    int number;
    ~Descriptor() {
      if (number >= 0) ::close(number);
    }
  };
  const Descriptor in{::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat found {};
  if (in.number < 0 || ::fstat(in.number, &found) != 0) return write_error(from);
  ::unlink(to.c_str());
  const Descriptor out{::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, found.st_mode & 07777)};
  if (out.number < 0) return write_error(to);
  std::vector<char> bytes(size_t{1} << 20);
  for (;;) {
    if (!goes_on()) return Error{ErrorKind::cancelled, "stopped by a signal"};
    const ssize_t got = ::read(in.number, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return write_error(from);
    if (got == 0) return {};
    for (ssize_t done = 0; done < got;) {
      const ssize_t put = ::write(out.number, bytes.data() + done, static_cast<size_t>(got - done));
      if (put < 0 && errno != EINTR) return write_error(to);
      done += std::max<ssize_t>(put, 0);
    }
  }
}

Status check_free(const std::string& destination) {
  TRY_ASSIGN(const bool there, is_there(destination));
  if (!there) return {};
  return bad_input(fmt::format("{}: found something there, allowed is a name that does not exist yet", destination));
}

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string sum_of(const Json& identity, const Json& state) { return fmt::format("{:016x}", fnv1a(dump(identity) + dump(state))); }

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : dump(value); }

}  // namespace

struct WorkFolder::State {
  Json identity, loaded;
};

WorkFolder::WorkFolder(std::string destination, std::string partial)
    : destination_(std::move(destination)), partial_(std::move(partial)), state_(std::make_unique<State>()) {}

WorkFolder::WorkFolder(WorkFolder&& other) noexcept
    : destination_(std::move(other.destination_)),
      partial_(std::exchange(other.partial_, {})),
      state_(std::move(other.state_)),
      companions_(std::move(other.companions_)),
      lock_(std::exchange(other.lock_, -1)),
      keeps_(other.keeps_),
      stage_(other.stage_) {}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  if (!partial_.empty() && !keeps_) fs::remove_all(partial_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

Status WorkFolder::check(const std::string& destination) {
  if (destination.empty()) return bad_input("DST: found an empty name, allowed is one that does not exist yet");
  const std::string trimmed = without_slashes(destination);
  TRY(check_free(trimmed));
  TRY(is_there(partial_of(trimmed)));
  const fs::path parent = fs::path(trimmed).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return bad_input(fmt::format("{}: cannot write into its folder {}: {}", destination, folder, std::strerror(errno)));
  return {};
}

Result<WorkFolder> WorkFolder::open(const std::string& destination, const Json& identity, bool restart, WorkStage stage) {
  TRY(check(destination));
  const std::string trimmed = without_slashes(destination), partial = partial_of(trimmed);
  std::error_code error;
  TRY_ASSIGN(const bool there, is_there(partial));
  if (there && !fs::exists(fmt::format("{}/{}", partial, kLockName), error) && !fs::is_empty(partial, error))
    return bad_input(fmt::format("{}: found something there that is no unfinished model, allowed is a free name",
                                 partial));
  if (!there && !fs::create_directory(partial, error))
    return bad_input(fmt::format("{}: cannot make the folder: {}", partial, error.message()));

  const std::string lock = fmt::format("{}/{}", partial, kLockName);
  const int file = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return write_error(lock);
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    ::close(file);
    return no_room(fmt::format("{}: another process is writing it", partial));
  }
  WorkFolder made(trimmed, partial);
  made.lock_ = file;
  made.stage_ = stage;
  made.state_->identity = identity;
  if (there && !restart) {
    made.keeps_ = true;  // an error here must not cost the work of the command before
    const std::string path = made.file(state_name(stage));
    if (fs::exists(path, error)) {
      TRY_ASSIGN(const std::string text, read_text_file(path, kMaxStateBytes));
      const Json saved = parse_json_tree<Json>(text);
      // The sum makes a state that this program wrote the only one that is taken, so its fields need no checks.
      if (!saved.is_object() || !saved.contains("identity") || !saved.contains("state") ||
          saved.value("sum", Json()) != sum_of(saved["identity"], saved["state"]))
        return bad_input(fmt::format("{}: found no state of an unfinished model, or a damaged one; --restart begins anew",
                                     path));
      for (const auto& [key, value] : identity.items())
        if (!saved["identity"].contains(key) || saved["identity"][key] != value)
          return bad_input(fmt::format(
              "{}: found unfinished work with another {} ({}), allowed is {}; --restart begins anew", partial, key,
              saved["identity"].contains(key) ? text_of(saved["identity"][key]) : "none", text_of(value)));
      made.state_->loaded = saved["state"];
      return made;
    }
    if (stage == WorkStage::choice && fs::exists(made.file(kStateName), error))  // told before hours of measuring
      return bad_input(fmt::format("{}: found unfinished work of a command that had no formats to choose, allowed is that command again; --restart begins anew", partial));
  }
  made.keeps_ = stage == WorkStage::model && fs::exists(made.file(kChoiceName), error);
  TRY(made.remove_all_but([&](const std::string& name) { return name == kLockName || (made.keeps_ && name == kChoiceName); }));
  return made;
}

Status WorkFolder::remove_all_but(const std::function<bool(const std::string& name)>& stays) const {
  TRY_ASSIGN(const std::vector<fs::path> entries, list(partial_));
  for (const fs::path& entry : entries) {
    std::error_code error;
    if (!stays(entry.filename().string())) fs::remove_all(entry, error);
    if (error) return io_error(fmt::format("{}: {}", entry.string(), error.message()));
  }
  return {};
}

std::string WorkFolder::file(std::string_view name) const { return fmt::format("{}/{}", partial_, name); }

const Json& WorkFolder::loaded() const { return state_->loaded; }

Status WorkFolder::save(const Json& state) {
  const Json whole = {
      {"sum", sum_of(state_->identity, state)}, {"identity", state_->identity}, {"state", state}};
  const std::string path = file(state_name(stage_)), next = path + ".next";
  TRY(write_file(next, dump(whole)));
  if (::rename(next.c_str(), path.c_str()) != 0) return write_error(path);
  return {};
}

Status WorkFolder::copy_companions(const ModelFiles& source, const std::string& quantization_config,
                                    const GoesOn& goes_on) {
  Json config = Json::object();
  if (source.gguf()) {
    const std::string metadata = file(kQuintetMetadataName);
    ::unlink(metadata.c_str());
    TRY(write_gguf_metadata(metadata, *source.gguf()));
    companions_.emplace_back(kQuintetMetadataName);
  } else {
    config = parse_json_tree<Json>(source.texts().config);
    if (!config.is_object())
      return bad_input(fmt::format("{}/config.json: found no JSON object", source.path()));
    TRY_ASSIGN(const std::vector<fs::path> companions, companions_of(source.path()));
    TRY(check_space(partial_, companions));
    for (const fs::path& companion : companions) {
      companions_.push_back(companion.filename().string());
      TRY(copy_file(companion.string(), file(companions_.back()), goes_on));
    }
  }
  config["quantization_config"] = parse_json_tree<Json>(quantization_config);
  companions_.emplace_back(kConfigName);
  ::unlink(file(kConfigName).c_str());
  return write_file(file(kConfigName), config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Status WorkFolder::finish_folder(std::string_view weights) {
  TRY(check_free(destination_));
  TRY(remove_all_but([&](const std::string& name) {
    return name == weights || std::find(companions_.begin(), companions_.end(), name) != companions_.end();
  }));
  std::error_code error;
  fs::rename(partial_, destination_, error);
  if (error) return io_error(fmt::format("{}: {}", destination_, error.message()));
  partial_.clear();
  return {};
}

Status WorkFolder::finish_file(std::string_view name) {
  TRY(check_free(destination_));
  std::error_code error;
  fs::rename(file(name), destination_, error);
  if (error) return io_error(fmt::format("{}: {}", destination_, error.message()));
  fs::remove_all(partial_, error);
  partial_.clear();
  return {};
}

}  // namespace quintet
