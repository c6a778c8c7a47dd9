// The files that a command line names: none that is read may be written, too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quintet {

/// What each flag reads and writes. It keeps references: the values are those after parsing; an empty one counts as not
/// given. Files are the same where device and inode are, whatever links lead to them.
class NamedFiles {
 public:
  /// A file, a folder with all that is in it, or any part of a split GGUF file.
  void reads(std::string flag, const std::string& path);
  void reads(std::string flag, const std::vector<std::string>& paths);
  /// A file; with `name` the file of this name in a folder.
  void writes(std::string flag, const std::string& path, std::string name = "");
  /// A model, which is written in PATH.partial first.
  void makes(std::string flag, const std::string& path);

  /// bad_input, which names both flags, where an output is an input, another output, or in the way of the model that is
  /// made. Standard input counts as read where it is a file.
  Status check() const;
  /// The same for one more output, of a flag or command that names it later.
  Status check_output(std::string_view flag, const std::string& path) const;

 private:
  struct Input {
    std::string flag;
    const std::string* path = nullptr;
    const std::vector<std::string>* paths = nullptr;
  };
  struct Output {
    std::string flag;
    const std::string* path = nullptr;
    std::string name;
    bool makes = false;
  };

  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
};

}  // namespace quintet
