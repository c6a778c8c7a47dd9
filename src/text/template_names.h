// The names that a chat template has whatever a caller adds.
#pragma once

#include <string_view>

namespace quintet {

/// True for messages, tools, bos_token, range, ...: a stranger's variable of such a name would take its
/// place.
bool is_template_name(std::string_view name);

}  // namespace quintet
