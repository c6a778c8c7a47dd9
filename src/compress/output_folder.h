// The folder that a compressed model is written into: another name until it is whole.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/model_files.h"

namespace quintet {

/// Renames a finished output and clears `partial`, so that nobody removes it. bad_input where `destination` has come
/// to exist meanwhile.
Status give_name(std::string& partial, const std::string& destination);

class OutputFolder {
 public:
  /// Makes the folder under a name of its own. bad_input where `destination` exists.
  static Result<OutputFolder> create(const std::string& destination);

  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&&) = delete;
  /// Removes what was not finished.
  ~OutputFolder();

  std::string file(std::string_view name) const;

  /// All that travels along beside the weights: the other files of a Hugging Face folder, or a GGUF's
  /// metadata; and config.json, with `quantization_config` (JSON text) put into it.
  Status copy_companions(const ModelFiles& source, const std::string& quantization_config);
  /// Gives it its name.
  Status finish();

 private:
  OutputFolder(std::string destination, std::string partial)
      : destination_(std::move(destination)), partial_(std::move(partial)) {}

  std::string destination_, partial_;
};

}  // namespace quintet
