// group_count: how often each group occurs. The kernels and their description are in
// count_kernels.cpp.
//
// Method   counters in shared memory; one launch up to 4096 ids, else two. Few bytes: the bound is the
//          latency of one load, the counting and one sum over blocks.
// Maths    integer sums
// Tuned    16 thousand ids take 2.6 us on an H200, 3.1 on an H100; see count_kernels.cpp.

#include "kernels/moe/parts/id_count.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {

const Op group_count_op{
    .name = "group_count",
    .family = "moe",
    .purpose = "how often each group occurs",
    .signature = R"(
      group_idx  i64 [T, K]            values -1 .. num_groups - 1
      -> out     i32 [num_groups]
      workspace  i32 [elements()]
      param      num_groups int >= 1
      let        groups = num_groups
      limit      T * K <= 2130706431 "'group_idx' has too many slots"
      limit      num_groups <= 536862720 "so many groups are not supported"  # 65535 blocks of 8192
      bucket     T * K at 4097  # one block, two kernels
    )",
    .launches = [](const Call& c, Launches& go) { moe::count_ids(c, go, "group_idx"); },
    .functions = {{"elements", moe::count_elements}},
    .examples = R"(
      T=65 K=8 num_groups=9; T=700 K=9 num_groups=256; T=9 K=3 num_groups=20000
      T=9001 K=8 num_groups=4)",
    .bench = R"(
      T=7970 K=2 num_groups=9; T=9857 K=2 num_groups=4; T=21862 K=8 num_groups=9
      T=32556 K=8 num_groups=4; T=1 K=8 num_groups=256; T=128 K=8 num_groups=256)",
    .values = {{"group_idx",
                [](const Case& c, int64_t i) { return moe::spread_id(i, c["num_groups"]); }}}};

}  // namespace tessera::kernels
