// Finds the files behind names by device and inode.
#include "cli/named_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <utility>

namespace quintet {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 2;  // of folders in a folder that is read
constexpr int kMaxLinks = 40;

/// A file; where there is none yet, its folder and the name that it will have there.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;
  bool operator==(const FileId&) const = default;
};

/// Nothing where neither the path nor its folder is there.
std::optional<FileId> find_id(fs::path path) {
  std::error_code error;
  for (int links = 0; links < kMaxLinks; ++links) {
    struct stat found {};
    if (::stat(path.c_str(), &found) == 0) return FileId{found.st_dev, found.st_ino, ""};
    const fs::path next = fs::read_symlink(path, error);
    if (error) {
      const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
      if (::stat(folder.c_str(), &found) != 0) return std::nullopt;
      return FileId{found.st_dev, found.st_ino, path.filename().string()};
    }
    path = path.parent_path() / next;
  }
  return std::nullopt;
}

/// A terminal or a pipe, which several flags may write to.
bool is_device(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode);
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

struct ReadFile {
  std::string flag, path;
  FileId id;
};

/// The regular files that lie behind names which are read.
class ReadFiles {
 public:
  std::vector<ReadFile> files;

  void add(const std::string& flag, const std::string& path) {
    if (path.empty() || path == "-") return;
    std::error_code error;
    if (fs::is_directory(path, error)) return add_folder(flag, path, kMaxDepth);
    add_file(flag, path);
    const fs::path file(path);
    const std::string name = file.filename().string();
    const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
    if (name == "tokenizer.json") return add_folder(flag, folder, 0);  // with the texts beside it
    if (const size_t at = number_of_part(name); at != name.npos) {
      for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        std::string other = entry->path().filename().string();
        if (number_of_part(other) == at && other.replace(at, 5, name, at, 5) == name) add_file(flag, entry->path());
      }
    }
  }

  void add_standard_input() {
    struct stat found {};
    if (::fstat(STDIN_FILENO, &found) == 0 && S_ISREG(found.st_mode))
      files.push_back({"standard input", "-", {found.st_dev, found.st_ino, ""}});
  }

 private:
  /// Where "00001" begins in NAME-00001-of-00002.gguf; npos where it is no such name.
  static size_t number_of_part(const std::string& name) {
    const size_t at = name.rfind("-of-");
    return at == name.npos || at < 6 || !name.ends_with(".gguf") ? name.npos : at - 5;
  }

  void add_file(const std::string& flag, const fs::path& path) {
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return;
    files.push_back({flag, path.string(), {found.st_dev, found.st_ino, ""}});
  }

  void add_folder(const std::string& flag, const fs::path& folder, int depth) {
    std::error_code error, ignored;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      if (!fs::is_directory(entry->path(), ignored))
        add_file(flag, entry->path());
      else if (depth > 0)
        add_folder(flag, entry->path(), depth - 1);
    }
  }
};

/// A path that is written, in words for errors.
struct Written {
  std::string flag, path;
};

Error clash(const Written& output, std::string_view found) {
  return bad_input(fmt::format("{} {}: found {}, allowed is another name", output.flag, output.path, found));
}

Status check_against(const Written& output, const std::vector<ReadFile>& inputs) {
  const auto id = find_id(output.path);
  if (!id || !id->name.empty()) return {};
  for (const ReadFile& input : inputs)
    if (*id == input.id) return clash(output, fmt::format("the file that {} ({}) reads", input.flag, input.path));
  return {};
}

/// True where the path is `folder`, or lies in it at any depth.
bool lies_in(const std::string& path, const FileId& folder) {
  std::error_code error;
  fs::path at = fs::absolute(path, error);
  while (!error) {
    if (find_id(at) == folder) return true;
    const fs::path up = at.parent_path();
    if (up == at) return false;
    at = up;
  }
  return false;
}

}  // namespace

void NamedFiles::reads(std::string flag, const std::string& path) {
  inputs_.push_back({.flag = std::move(flag), .path = &path});
}

void NamedFiles::reads(std::string flag, const std::vector<std::string>& paths) {
  inputs_.push_back({.flag = std::move(flag), .paths = &paths});
}

void NamedFiles::writes(std::string flag, const std::string& path, std::string name) {
  outputs_.push_back({.flag = std::move(flag), .path = &path, .name = std::move(name)});
}

void NamedFiles::makes(std::string flag, const std::string& path) {
  outputs_.push_back({.flag = std::move(flag), .path = &path, .makes = true});
}

Status NamedFiles::check_output(std::string_view flag, const std::string& path) const {
  ReadFiles inputs;
  for (const Input& input : inputs_) {
    if (input.path) inputs.add(input.flag, *input.path);
    for (size_t i = 0; input.paths && i < input.paths->size(); ++i) inputs.add(input.flag, (*input.paths)[i]);
  }
  inputs.add_standard_input();
  return check_against({std::string(flag), path}, inputs.files);
}

Status NamedFiles::check() const {
  for (const Output& output : outputs_) {
    if (output.path->empty()) continue;
    const std::string path = without_slashes(*output.path);
    const Written written{output.flag, output.name.empty() ? path : fmt::format("{}/{}", path, output.name)};
    TRY(check_output(written.flag, written.path));
    for (const Output& other : outputs_) {
      if (&other == &output || other.path->empty()) continue;
      const std::string other_path = without_slashes(*other.path);
      if (other.name.empty() && output.name.empty())
        if (const auto id = find_id(written.path); id && id == find_id(other_path) && !is_device(written.path))
          return clash(written, fmt::format("what {} ({}) writes", other.flag, *other.path));
      if (!other.makes) continue;
      // The report may lie in the folder that is made, once it is there.
      const auto made = find_id(other_path), partial = find_id(other_path + ".partial");
      if ((partial && lies_in(written.path, *partial)) ||
          (made && other_path.ends_with(".gguf") && lies_in(written.path, *made)))
        return clash(written, fmt::format("what {} ({}) is written to", other.flag, *other.path));
    }
    if (!output.makes) continue;
    const auto partial = find_id(path + ".partial");
    for (const Input& input : inputs_)
      if (partial && input.path && !input.path->empty() && lies_in(*input.path, *partial))
        return clash(written, fmt::format("that {} ({}) lies where it is written first", input.flag, *input.path));
  }
  return {};
}

}  // namespace quintet
