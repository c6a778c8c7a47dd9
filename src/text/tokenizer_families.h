// What the names of pre-tokenizers (tokenizer.ggml.pre of GGUF files) stand for.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/tokenizer.h"

namespace quintet {

/// Puts the steps of spec.pre_tokenizer before those that the spec has already, sets what else the family
/// implies (ignore_merges), and empties the name. An unknown name is bad_input that lists the known ones.
Status apply_family(TokenizerSpec& spec);

/// The name of the family whose steps are exactly those of a spec that has been read from a tokenizer.json; empty where
/// there is none. Of several the one that GGUF files use.
std::string_view family_of(const TokenizerSpec& spec);

/// Patterns of the known families, which search in linear time.
bool is_known_linear_pattern(std::string_view pattern);

}  // namespace quintet
