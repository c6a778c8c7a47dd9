// A model that is ready to run: configuration, prepared weights, tokenizer, template and generation defaults.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "model/config.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quintet {

/// Weights of one decoder layer; absent ones are empty.
struct LayerWeights {
  Weight attn_norm, qkv, qkv_bias, q_norm, k_norm, attn_out, attn_out_bias, post_attn_norm;
  Weight mlp_norm, gate_up, mlp_out, post_mlp_norm;
};

struct ModelWeights {
  Weight embedding;  ///< role embedding, or embedding_and_head where tied
  Weight head;       ///< empty where tied
  Weight output_norm;
  std::vector<LayerWeights> layer;
  uint64_t bytes = 0;
  uint64_t stored_bytes = 0;  ///< as they lie in the file
  double load_s = 0;          ///< from there to where they are used, packed
};

/// Sampling defaults of generation_config.json, where the model ships one.
struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, repeat_penalty;
  std::optional<int32_t> top_k;
};

struct Model {
  ModelConfig config;
  ModelWeights weights;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  ///< null where the model has none, or one that cannot be used
  std::string chat_template_source;
  std::string chat_template_origin;  ///< the file that the source was read from, for errors
  std::string chat_template_error;  ///< why chat_template is null although there is a source
  std::vector<TokenId> stop_ids;
  GenerationDefaults defaults;
  std::string path;
  uint64_t file_bytes = 0;
  std::shared_ptr<void> files;  ///< keeps the mapped files open while weights may borrow from them
};

/// What a model will take of a backend, told before any of it is taken.
struct ModelNeeds {
  const ModelConfig& config;
  uint64_t weights_bytes = 0;  ///< packed as the backend packs them
};

/// What dense weights of linear layers become while they are loaded: INT4 in groups of 128 by plain rounding, with a
/// thousandth kept in FP16 by magnitude, NF4, E4M3, INT8.
enum class OnLoad : uint8_t { none, rtn, outlier, nf4, fp8, int8 };

struct LoadOptions {
  int32_t context = 0;             ///< tokens of a sequence that the caller wants, 0: as the model says. Phi-3's 128k
                                   ///< models alone need it: beyond their original length they use other frequencies
  std::string tokenizer_path;      ///< empty: the model's own
  std::string chat_template_path;  ///< empty: the model's own
  OnLoad compress = OnLoad::none;
  /// Called before the first weight is prepared; its error ends the load.
  std::function<Status(const ModelNeeds&)> admit;
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
};

/// Loads a GGUF file (or the first of a split) or a Hugging Face folder onto `backend`.
Result<std::unique_ptr<Model>> load_model(const std::string& path, Backend& backend, const LoadOptions& options);

/// Everything but the weights: for `tokenize`, `template` and `inspect`; a vocabulary-only GGUF is enough.
/// config.layers is 0 where the file holds no network.
Result<std::unique_ptr<Model>> load_text(const std::string& path, const LoadOptions& options);

}  // namespace quintet
