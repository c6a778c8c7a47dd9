// What a GGUF file says of a model that lies in a Hugging Face folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/model_files.h"
#include "model/config_reader.h"

namespace quintet {

/// A tensor of a GGUF file that no tensor of the folder holds: frequencies of a stretched rope.
struct MadeTensor {
  std::string name;
  std::vector<float> values;
};

struct GgufExport {
  DraftedConfig drafted;
  std::string architecture;        ///< general.architecture
  std::vector<uint8_t> metadata;   ///< a GGUF file without tensors (GgufFile::parse)
  std::vector<MadeTensor> made;
  bool pairs_rope = false;         ///< rows of q and k are reordered: halves of a head become pairs
  std::vector<std::string> notes;  ///< what the file cannot say, for people
};

/// Specification of the keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. bad_input where GGUF has no
/// way to say what the folder says (a tokenizer of no known family, a rope that no key describes).
Result<GgufExport> export_to_gguf(const ModelFiles& files);

}  // namespace quintet
