// The command line: picks a verb, parses its flags, maps errors to exit codes.
//
// 0 done; 1 failed (I/O, no room, a fault of this program); 2 bad input or usage, with one line on stderr
// that names what was found and what is allowed; 128 + n ended by signal n (130 Ctrl-C, 143 SIGTERM, 141
// standard output closed).
#pragma once

namespace quintet {

int run_app(int argc, char** argv);

}  // namespace quintet
