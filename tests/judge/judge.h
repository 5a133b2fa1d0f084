#pragma once
// The prover's judge: Z3 on every claim that the prover makes while a kernel is lowered, and on
// every guard that it keeps.

#include <string>
#include <vector>

#include "codegen/analysis/proof_log.h"
#include "dsl/ir/tile.h"

namespace tessera::test {

struct Verdict {
  int confirmed = 0;                      // claims that Z3 proves
  std::vector<std::string> wrong;         // claims with a counterexample
  std::vector<std::string> open;          // claims that Z3 neither proves nor refutes
  int needed_guards = 0;                  // a counterexample exists, or Z3 gives up
  std::vector<std::string> spare_guards;  // Z3 could, we could not

  void add(const Verdict& other);
};

/// Empty if this build has Z3, else why there is no judge.
std::string why_no_judge();

/// Lowers `kernel` and judges each distinct claim once.
Verdict judge(const ir::Kernel& kernel);

}  // namespace tessera::test
