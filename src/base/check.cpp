// The one way in which a broken invariant ends the process.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace quintet {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "quintet: invariant broken at %s:%d: %s%s%s\n", file, line, condition,
               message.empty() ? "" : ": ", message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace quintet
