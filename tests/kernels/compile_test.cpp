// NVRTC compiles every shipped kernel for the targets other than sm_90a, without a GPU; for that one work_counts_test.cpp does.
// Where sm_89 has the text of sm_80, or sm_120a that of sm_100a, the first stands for both unless TESSERA_TEST_EVERY_TARGET is
// set, as tools/test_compilers does.

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/jit/target.h"
#include "tests/kernels/shipped_kernels.h"
#include "tests/support/each_family.h"
#include "tools/lib/calls/example.h"

namespace tessera {
namespace {

void compile_family(const std::string& family, const std::vector<std::string>& words) {
  std::string why;
  const runtime::Nvrtc* const nvrtc = test::nvrtc_here(why);
  if (nvrtc == nullptr) TESSERA_SKIP(why);
  std::vector<runtime::Target> targets;
  for (const std::string& word : words) {
    const runtime::Target target = runtime::parse_target(word).value();
    const bool listed = std::count(nvrtc->archs.begin(), nvrtc->archs.end(), target.number()) > 0;
    if (listed) targets.push_back(target);
    if (listed) continue;
    WARN(nvrtc->describe() << " does not list " << word);
    CHECK(target.major >= 10);  // all from 12.3 on list the older ones
  }
  if (targets.empty()) TESSERA_SKIP(nvrtc->describe() + " lists none of these targets");
  test::ShippedKernels shipped(*nvrtc);
  for (const kernels::OpInfo& op : kernels::ops()) {
    if (op.family != family) continue;
    REQUIRE_FALSE(op.examples.empty());
    for (const kernels::BenchCase& example : op.examples) {
      for (const runtime::Target target : targets) {
        const kernels::jit::TargetScope scope(target);
        for (const ir::Kernel& kernel : tools::kernels_of(op, example)) {
          shipped.image(op, example, kernel, target, test::CompileTime::any);
        }
      }
    }
  }
}

void compile_for_the_oldest(const std::string& family) {
  compile_family(family, {"sm_80", "sm_89"});
}
void compile_for_the_newest(const std::string& family) {
  compile_family(family, {"sm_100a", "sm_120a"});
}

}  // namespace

TESSERA_TEST_EACH_FAMILY("every shipped kernel compiles for sm_80 and sm_89 (R22.12)",
                         "[kernels][compile][slow]", compile_for_the_oldest)
TESSERA_TEST_EACH_FAMILY("every shipped kernel compiles for sm_100a and sm_120a (R22.12)",
                         "[kernels][compile][slow]", compile_for_the_newest)

}  // namespace tessera
