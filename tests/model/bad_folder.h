// Variants of a tiny model on disk: its folder with a changed config.json, its GGUF with changed bytes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace quintet::testing {

inline const std::string kTiny = std::string(QUINTET_SOURCE_DIR) + "/tests/golden/data/tiny/";

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

/// A copy of a tiny model's folder that goes away with this object.
class FolderCopy {
 public:
  explicit FolderCopy(const std::string& model) {
    static int number = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("quintet_model_" + std::to_string(getpid()) + "_" + std::to_string(number++));
    std::filesystem::copy(kTiny + model, path_);
  }
  ~FolderCopy() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  FolderCopy(const FolderCopy&) = delete;

  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

  /// Merges `patch` into a JSON file (RFC 7396: null removes a field).
  void patch(const std::string& name, const std::string& patch) {
    nlohmann::json json = nlohmann::json::parse(read_text(file(name)));
    json.merge_patch(nlohmann::json::parse(patch));
    write(name, json.dump());
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(file(name), std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace quintet::testing
