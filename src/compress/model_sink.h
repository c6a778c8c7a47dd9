// Where the tensors of a compressed model go: a folder of the project's own formats, or a GGUF file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/model_files.h"

namespace quintet {

/// A tensor and the format that it will have.
struct PlannedTensor {
  const ModelTensor* source = nullptr;
  WeightFormat format = WeightFormat::f32;
};

/// Writes under another name, which finish() changes into the destination's; one that was not finished leaves
/// nothing.
class ModelSink {
 public:
  virtual ~ModelSink() = default;
  /// The next of the planned tensors, in its planned format.
  virtual Status add(const PlannedTensor& planned, const HostWeight& made) = 0;
  /// `method`: what was done, for people.
  virtual Status finish(const std::string& method) = 0;
};

/// bad_input where the destination exists. `source` and `tensors` must outlive the sink.
Result<std::unique_ptr<ModelSink>> make_folder_sink(const std::string& destination, const ModelFiles& source,
                                                    const std::vector<PlannedTensor>& tensors);
/// `source` must have the metadata of a GGUF file; all formats must be GGUF's.
Result<std::unique_ptr<ModelSink>> make_gguf_sink(const std::string& destination, const ModelFiles& source,
                                                  const std::vector<PlannedTensor>& tensors,
                                                  uint32_t file_type);

}  // namespace quintet
