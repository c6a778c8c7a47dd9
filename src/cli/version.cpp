// Version, commit and compiler as text.
#include "cli/version.h"

#include <fmt/format.h>

#include "cli/backend_choice.h"
#include "quintet_commit.h"

namespace quintet {

#if defined(__clang__)
#define QUINTET_COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define QUINTET_COMPILER "gcc " __VERSION__
#else
#define QUINTET_COMPILER "unknown"
#endif

std::string_view version_number() { return QUINTET_VERSION; }
std::string_view version_commit() { return QUINTET_COMMIT; }
std::string_view version_compiler() { return QUINTET_COMPILER; }

std::string version_text() {
  std::string backends;
  for (std::string_view name : backend_names())
    backends += (backends.empty() ? "" : ", ") + std::string(name);
  return fmt::format("quintet {}\ncommit   {}\ncompiler {}, {} build\nbackends {}\n{}", version_number(),
                     version_commit(), version_compiler(), QUINTET_BUILD_TYPE, backends, backend_details());
}

}  // namespace quintet
