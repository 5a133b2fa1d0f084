// Every program that a language test runs is judged as well: see tests/judge/judge.h.

#include <set>

#include "tests/judge/judge.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

namespace tessera::test {
namespace {

void judge_program(const ir::Kernel& kernel) {
  static std::set<std::string> seen;
  if (!why_no_judge().empty() || !seen.insert(ir::to_string(kernel)).second) return;
  const Verdict verdict = judge(kernel);
  CHECK(verdict.wrong == std::vector<std::string>());
  CHECK(verdict.open == std::vector<std::string>());
}

const bool is_watching = (watch_kernels(judge_program), true);

}  // namespace
}  // namespace tessera::test
