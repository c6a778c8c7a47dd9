// Where the tensors of a compressed model go: a folder of the project's own formats, or a GGUF file.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "compress/work_folder.h"
#include "io/model_files.h"

namespace quintet {

/// A tensor and the format that it will have.
struct PlannedTensor {
  const ModelTensor* source = nullptr;
  WeightFormat format = WeightFormat::f32;
};

/// Writes into a work folder; finish() gives the result its name.
class ModelSink {
 public:
  virtual ~ModelSink() = default;
  /// The next of the planned tensors, in its planned format.
  virtual Status add(const PlannedTensor& planned, const HostWeight& made) = 0;
  /// All that was added is on the disk; gives what a later sink needs to go on from here.
  virtual Result<nlohmann::ordered_json> checkpoint() = 0;
  /// `method`: what was done, for people. `goes_on`: asked while files are copied; false stops (cancelled).
  virtual Status finish(const std::string& method, const GoesOn& goes_on) = 0;
};

/// What a sink writes. `source` and `tensors` must outlive it.
struct SinkPlan {
  const ModelFiles& source;
  const std::vector<PlannedTensor>& tensors;
  uint32_t file_type = 0;  ///< of a GGUF file
};

/// `checkpoint`: what an earlier sink of the same plan gave, null to begin.
Result<std::unique_ptr<ModelSink>> make_folder_sink(WorkFolder& folder, const SinkPlan& plan,
                                                    const nlohmann::ordered_json& checkpoint);
/// The source must have the metadata of a GGUF file; all formats must be GGUF's.
Result<std::unique_ptr<ModelSink>> make_gguf_sink(WorkFolder& folder, const SinkPlan& plan,
                                                  const nlohmann::ordered_json& checkpoint);

}  // namespace quintet
