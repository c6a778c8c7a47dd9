// What a tokenizer's description must fulfil before tables are built from it.
#pragma once

#include <string_view>
#include <utility>

#include "base/result.h"
#include "text/tokenizer.h"

namespace quintet {

/// Checks sizes, ids, duplicates; fills in `types` where absent and `added` from the types. Errors name the field.
Status check_spec(TokenizerSpec& spec);

/// The two parts of spec.merges[rank]; both are there and neither is empty.
Result<std::pair<std::string_view, std::string_view>> split_merge(const TokenizerSpec& spec, size_t rank);

}  // namespace quintet
