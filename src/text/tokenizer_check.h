// What a tokenizer's description must fulfil before tables are built from it.
#pragma once

#include <string_view>
#include <utility>

#include "base/result.h"
#include "text/tokenizer.h"

namespace quintet {

/// Checks sizes and ids (not yet that every token is another); fills in `types` where absent and `added` from
/// the types. Errors name the field.
Status check_spec(TokenizerSpec& spec);

/// What is said of two tokens with the same text.
Error duplicate_tokens(const TokenizerSpec& spec, size_t first, size_t second);

/// The two parts of spec.merges[rank]; both are there and neither is empty.
Result<std::pair<std::string_view, std::string_view>> split_merge(const TokenizerSpec& spec, size_t rank);

}  // namespace quintet
