// Template text to its tree.
#pragma once

#include <memory>
#include <string_view>

#include "text/jinja/ast.h"

namespace quintet::jinja {

/// Throws SyntaxFault (line and construct) or Fault (a limit).
std::unique_ptr<Template> parse_template(std::string_view source);

}  // namespace quintet::jinja
