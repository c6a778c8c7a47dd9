// The command line: parses flags, picks a verb, maps errors to exit codes (0 done, 1 failed, 2 bad input or usage).
#pragma once

namespace quintet {

int run_app(int argc, char** argv);

}  // namespace quintet
