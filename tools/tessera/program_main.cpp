// The main of every program that links tessera_program and has none.

#include "tools/tessera/command.h"

int main(int argc, char** argv) {
  return tessera::tools::run_program(argc, argv);
}
