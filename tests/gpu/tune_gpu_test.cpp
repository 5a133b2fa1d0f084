// The tuner on a GPU (U47): two runs in a row store the same choice, and all candidates give the same bits.

#include "kernels/op.h"
#include "runtime/cache/tuned.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tools/lib/op_choice.h"
#include "tools/lib/tuner.h"

namespace tessera {

TEST_CASE("two runs of the tuner choose the same tile sizes (U47)", "[gpu][tune]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const kernels::OpInfo& op = kernels::find_op("post_fwd");
  for (const tools::ChosenCase& chosen :
       tools::cases_of({&op}, {"T=4096 n=4 H=7168", "T=128 n=4 H=7168"})) {
    const auto tune = [&] {
      return tools::tune_case(op, chosen.one, Device::cuda(0), {.store = false});
    };
    const kernels::jit::TuneReport first = tune();
    const kernels::jit::TuneReport second = tune();
    REQUIRE(first.entries.size() == 1);
    REQUIRE(second.entries.size() == 1);
    CHECK(first.entries[0].choice == second.entries[0].choice);
    CHECK(first.differing.empty());
    CHECK(first.entries[0].us <= first.entries[0].standard_us);
    CHECK(first.entries[0].candidates.size() == 6);
    CHECK(first.entries[0].key.num_sms > 0);
  }
}

}  // namespace tessera
