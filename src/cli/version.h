// What this build is: version, commit, compiler. The commit is read from git at build time, where there is a
// git.
#pragma once

#include <string>
#include <string_view>

namespace quintet {

std::string_view version_number();  ///< "0.1.0"
std::string_view
version_commit();  ///< "5f0794503e8f", with "-dirty" where the tree had changes; "unknown" without git
std::string_view version_compiler();

/// The text of `quintet --version`, several lines.
std::string version_text();

}  // namespace quintet
