// The tokenizer that a GGUF file's metadata describes.
#pragma once

#include "base/result.h"
#include "io/gguf.h"
#include "text/tokenizer.h"

namespace quintet {

/// Reads the tokenizer.ggml.* keys; for make_tokenizer(). Kinds that are not supported (BERT's WordPiece,
/// RWKV, ...) and pre-tokenizers that are not known are refused by name. `not_found` where the file has no
/// tokenizer at all.
Result<TokenizerSpec> tokenizer_spec_from_gguf(const GgufFile& file);

}  // namespace quintet
