// The names that a chat template has whatever a caller adds.
#include "text/template_names.h"

#include <algorithm>
#include <iterator>

namespace quintet {

bool is_template_name(std::string_view name) {
  constexpr std::string_view kNames[] = {"messages",     "tools",     "documents", "add_generation_prompt",
                                         "bos_token",    "eos_token", "range",     "dict",
                                         "namespace",    "cycler",    "joiner",    "raise_exception",
                                         "strftime_now", "loop",      "caller",    "varargs",
                                         "kwargs",       "lipsum",    "self",      "super"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace quintet
