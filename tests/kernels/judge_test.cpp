// Z3 confirms every fact that the prover uses on the shipped kernels, and says which guards it
// would have removed.

#include "tests/judge/judge.h"

#include <fmt/format.h>

#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "kernels/jit/target.h"
#include "kernels/op.h"
#include "tests/support/each_family.h"
#include "tools/lib/calls/example.h"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Gradients of the family's ops, or the others.
void confirm(const std::string& family, bool backward) {
  if (!why_no_judge().empty()) TESSERA_SKIP(why_no_judge());
  Verdict total;
  std::set<std::string> seen;
  for (const kernels::OpInfo& op : kernels::ops()) {
    const bool is_backward =
        op.name.find("bwd") != std::string::npos || op.name.find("backward") != std::string::npos;
    if (op.family != family || is_backward != backward) continue;
    for (const kernels::BenchCase& example : op.examples) {
      for (const int major : {8, 9}) {  // without clusters, and with
        const kernels::jit::TargetScope scope({major, 0, 0});
        for (const ir::Kernel& kernel : tools::kernels_of(op, example)) {
          if (seen.insert(ir::to_string(kernel)).second) total.add(judge(kernel));
        }
      }
    }
  }
  std::cout << fmt::format(
      "{} facts confirmed, {} guards needed, {} that Z3 could prove and we could not\n",
      total.confirmed, total.needed_guards, total.spare_guards.size());
  for (const std::string& text : total.spare_guards) std::cout << "  " << text << "\n";
  CHECK(total.wrong == std::vector<std::string>());
  CHECK(total.open == std::vector<std::string>());
  CHECK((total.confirmed > 0 || backward));  // some families have no gradients
}

void confirm_forward(const std::string& family) {
  confirm(family, /*backward=*/false);
}
void confirm_backward(const std::string& family) {
  confirm(family, /*backward=*/true);
}

}  // namespace

TESSERA_TEST_EACH_FAMILY("Z3 confirms every fact that the prover uses on the shipped kernels",
                         "[judge][slow]", confirm_forward)
TESSERA_TEST_EACH_FAMILY("Z3 confirms every fact that the prover uses on the gradients",
                         "[judge][slow]", confirm_backward)
