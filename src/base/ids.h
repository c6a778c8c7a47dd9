// Identifiers that must not be mixed up with plain numbers.
#pragma once

#include <cstdint>

namespace quintet {

/// A token of a vocabulary; -1 where a step means "the id sampled in the previous step".
using TokenId = int32_t;

/// A request, unique for the life of a process; chosen by the client of the engine.
using RequestId = uint64_t;

}  // namespace quintet
