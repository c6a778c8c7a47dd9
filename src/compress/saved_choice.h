// A choice of formats as the text that is kept in the work folder.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "compress/choose_formats.h"

namespace quintet {

nlohmann::ordered_json to_json(const ChosenFormats& chosen);
/// Of what to_json() gave.
ChosenFormats saved_choice(const nlohmann::ordered_json& saved);

/// What makes quantize_model() do what was chosen.
std::vector<FormatOverride> overrides_of(const std::vector<FormatChoice>& choices);

}  // namespace quintet
