// Reads every include under src/ and fails on one that points the wrong way (docs/design.md, "Layout and direction").
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

namespace quintet {
namespace {

namespace fs = std::filesystem;

/// Folder -> folders that it may include from, beside itself and its own subfolders.
const std::map<std::string, std::set<std::string>>& allowed() {
  static const std::set<std::string> kBelowBackend = {"base", "tensor", "quant"};
  static const auto plus = [](std::set<std::string> set, std::initializer_list<std::string> more) {
    set.insert(more);
    return set;
  };
  static const auto kBelowModel = plus(kBelowBackend, {"io", "text", "backend"});
  static const auto kBelowEngine = plus(kBelowModel, {"model", "kv", "sampling"});
  static const auto kBelowServer = plus(kBelowEngine, {"plan", "engine", "eval", "compress", "worker"});
  static const std::map<std::string, std::set<std::string>> kTable = {
      {"base", {}},
      {"tensor", {"base"}},
      {"quant", {"base", "tensor"}},
      {"io", kBelowBackend},
      {"text", {"base"}},
      {"backend", kBelowBackend},
      {"backend/reference", plus(kBelowBackend, {"backend"})},
      {"backend/cpu", plus(kBelowBackend, {"backend"})},
      {"backend/cuda", plus(kBelowBackend, {"backend"})},
      {"model", kBelowModel},
      {"kv", plus(kBelowBackend, {"backend"})},
      {"sampling", plus(kBelowBackend, {"backend", "text"})},
      {"plan", kBelowEngine},
      {"engine", plus(kBelowEngine, {"plan"})},
      {"eval", plus(kBelowEngine, {"plan", "engine"})},
      {"compress", plus(kBelowEngine, {"plan", "engine"})},
      {"worker", plus(kBelowEngine, {"plan", "engine"})},
      {"server", kBelowServer},
      {"cli", plus(kBelowServer, {"server", "backend/reference", "backend/cpu", "backend/cuda"})},
  };
  return kTable;
}

/// The layer that a path below src/ belongs to: its first folder, or an implementation of a backend.
std::string layer_of(const std::string& path) {
  for (const char* implementation : {"backend/reference", "backend/cpu", "backend/cuda"})
    if (path.starts_with(std::string(implementation) + "/")) return implementation;
  return path.substr(0, path.find('/'));
}

TEST(Layering, IncludesPointDownwards) {
  const fs::path source = fs::path(QUINTET_SOURCE_DIR) / "src";
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(source)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cpp" && extension != ".cuh" && extension != ".cu") continue;
    ++files;
    const std::string path = fs::relative(entry.path(), source).generic_string();
    const std::string from = layer_of(path);
    const auto row = allowed().find(from);
    ASSERT_NE(row, allowed().end()) << path << " is in a folder that the table does not know";
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      if (!line.starts_with("#include \"")) continue;
      const std::string name = line.substr(10, line.find('"', 10) - 10);
      if (!fs::exists(source / name)) continue;  // another project's header, or a generated one
      const std::string to = layer_of(name);
      EXPECT_TRUE(to == from || row->second.contains(to)) << path << " includes " << name;
    }
  }
  EXPECT_GT(files, 30);
}

/// nlohmann's own entries take a NUL byte for the end of the text: base/json_parse.h is the way in that does not.
TEST(Layering, OneFileParsesJson) {
  const fs::path source = fs::path(QUINTET_SOURCE_DIR) / "src";
  for (const auto& entry : fs::recursive_directory_iterator(source)) {
    if (!entry.is_regular_file() || entry.path().filename() == "json_parse.h") continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);)
      for (const char* call : {"sax_parse(", "json::parse(", "Json::parse(", "json::accept("})
        EXPECT_EQ(line.find(call), std::string::npos) << entry.path() << ": " << line;
  }
}

TEST(Layering, NoCudaHeaderAboveItsBackend) {
  const fs::path source = fs::path(QUINTET_SOURCE_DIR) / "src";
  for (const auto& entry : fs::recursive_directory_iterator(source)) {
    if (!entry.is_regular_file()) continue;
    const std::string path = fs::relative(entry.path(), source).generic_string();
    if (path.starts_with("backend/cuda/")) continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);)
      EXPECT_FALSE(line.starts_with("#include <cuda")) << path << ": " << line;
  }
}

}  // namespace
}  // namespace quintet
