// The program: everything is in cli/app.h.
#include "cli/app.h"

int main(int argc, char** argv) { return quintet::run_app(argc, argv); }
