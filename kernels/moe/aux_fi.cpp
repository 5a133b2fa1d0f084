// aux_fi: the load of each expert as a multiple of its fair share. The kernels and their description
// are in count_kernels.cpp.
//
// Method   as group_count; the thread with the sum of a group scales it.
// Maths    f32(count * num_experts) / f32(num_tokens * num_aux_topk), the products exact; +0 without
//          tokens
// Tuned    16 thousand ids take 2.6 us on an H200, 3.1 on an H100; see count_kernels.cpp.

#include "kernels/moe/parts/id_count.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {

const Op aux_fi_op{
    .name = "aux_fi",
    .family = "moe",
    .purpose = "how often each expert is chosen, as a multiple of its fair share",
    .signature = R"(
      topk_idx   i64 [T, K]            values -1 .. num_experts - 1
      -> out     f32 [num_experts]
      workspace  i32 [elements()]
      param      num_experts int >= 1
      param      num_aux_topk int >= 1
      let        groups = num_experts
      limit      T * K <= 2130706431 "'topk_idx' has too many slots"
      limit      num_experts <= 536862720 "so many experts are not supported"  # 65535 blocks of 8192
      limit      num_aux_topk <= 2147483647
      bucket     T * K at 4097  # one block, two kernels
    )",
    .launches = [](const Call& c, Launches& go) { moe::count_ids(c, go, "topk_idx"); },
    .functions = {{"elements", moe::count_elements}},
    .examples = R"(
      T=65 K=8 num_experts=9 num_aux_topk=8; T=700 K=9 num_experts=256 num_aux_topk=1
      T=9 K=3 num_experts=20000 num_aux_topk=3; T=9001 K=8 num_experts=4 num_aux_topk=2)",
    .bench = R"(
      T=8126 K=2 num_experts=9 num_aux_topk=1; T=9907 K=2 num_experts=4 num_aux_topk=1
      T=21788 K=8 num_experts=9 num_aux_topk=1; T=32522 K=8 num_experts=4 num_aux_topk=1
      T=1 K=8 num_experts=256 num_aux_topk=8; T=128 K=8 num_experts=256 num_aux_topk=8)",
    .values = {{"topk_idx",
                [](const Case& c, int64_t i) { return moe::spread_id(i, c["num_experts"]); }}}};

}  // namespace tessera::kernels
