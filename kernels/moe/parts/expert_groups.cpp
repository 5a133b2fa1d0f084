#include "kernels/moe/parts/expert_groups.h"

#include "kernels/moe/parts/group_rank.h"

namespace tessera::kernels::moe {

dsl::Value winning_groups(dsl::Builder& k, const RouterSpec& s, int64_t warps, const ExpertRow& row,
                          const dsl::Ref& values) {
  using namespace dsl;
  const int64_t members = s.experts / s.num_groups, lanes = lanes_per_group(s.num_groups);
  // Rows are padded beyond a group, so that neighbouring lanes start in different banks.
  auto ranked = k.shared(DType::f32, {warps, s.num_groups * (members + lanes)}, "ranked");
  row.each([&](const Value& slot, const Value& expert) {
    k.if_(expert < s.experts,
          [&] { ranked(k.warp(), expert + expert / members * lanes) = values(slot); });
  });
  k.sync_warp();
  const GroupRank groups(k, s.num_groups, members);
  auto mine = groups.value(2, [&](const Value& round) -> Value {
    return ranked(k.warp(), groups.group() * (members + lanes) + groups.member(round));
  });
  return k.ballot(groups.group() < s.num_groups && groups.rank(mine) < s.num_topk_groups);
}

}  // namespace tessera::kernels::moe
