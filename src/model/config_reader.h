// From a model's files to its ModelConfig.
#pragma once

#include "base/result.h"
#include "io/model_files.h"
#include "model/arch/architecture.h"
#include "model/config.h"

namespace quintet {

/// Reads GGUF metadata or config.json. Every field is checked; messages name file, field, what was found and
/// what is allowed. `context`: tokens that the caller wants to use, 0: as many as the model offers. It
/// matters to LongRoPE alone (Phi-3 128k), which has one list of frequencies for sequences up to the original
/// length and one for longer ones. Keys are cached, so a loaded model uses one of them: the short list and
/// the original length, unless `context` asks for more.
Result<ModelConfig> read_config(const ModelFiles& files, int32_t context);

/// The two kinds; read_config chooses and checks the result.
struct DraftedConfig {
  const Architecture* architecture = nullptr;
  ModelConfig config;
  ConfigDraft draft;
};
Result<DraftedConfig> read_gguf_config(const ModelFiles& files, int32_t context);
Result<DraftedConfig> read_json_config(const ModelFiles& files, int32_t context);

/// Largest values that are taken for honest; beyond them a file is broken.
inline constexpr int32_t kMaxLayers = 1024;
inline constexpr int32_t kMaxWidth = 1 << 20;  ///< hidden, ffn
inline constexpr int32_t kMaxHeads = 1024;
inline constexpr int32_t kMaxHeadDim = 256;
inline constexpr int32_t kMaxVocabulary = 1 << 24;
inline constexpr int32_t kMaxContext = 1 << 27;

}  // namespace quintet
