// Cases of the router. Logits and biases are multiples of 1/64, so that scores either tie exactly or
// differ by far more than an ulp of exp: which experts win does not depend on whose exp it is.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kUntouched = 0x7B7B7B7B;

HostTensor coarse(Dims shape, uint64_t seed) {
  HostTensor tensor = random_tensor(DType::f32, shape, Values::normal, seed);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set_value(i, std::round(tensor.value(i) * 64) / 64);
  }
  return tensor;
}

struct Size {
  int64_t tokens, experts, topk, groups = 0, topk_groups = 0;
};

OpCase gate_case(const Size& s, const std::string& scoring) {
  OpCase test;
  test.label = fmt::format("T={} E={} K={} groups {}/{} {}", s.tokens, s.experts, s.topk,
                           s.topk_groups, s.groups, scoring);
  test.inputs["logits"] = coarse({s.tokens, s.experts}, 1);
  test.inputs["bias"] = coarse({s.experts}, 2);
  test.params = {{"num_topk", s.topk},
                 {"num_groups", s.groups},
                 {"num_topk_groups", s.topk_groups},
                 {"scoring_func", scoring},
                 {"routed_scaling_factor", 2.5}};
  test.tolerance = Tolerance{1e-5, 1e-8};
  return test;
}

/// Adds a replica map with `columns` columns: expert e has 1 + e % columns replicas, numbers spread
/// over all physical experts.
void add_map(OpCase& test, int64_t num_shared, int64_t columns) {
  const int64_t experts = test.inputs.at("bias").size(), rows = experts + num_shared;
  HostTensor map(DType::i32, {rows, columns}), count(DType::i32, {rows});
  for (int64_t e = 0; e < rows; ++e) {
    count.set_value(e, static_cast<double>(1 + e % columns));
    for (int64_t d = 0; d < columns; ++d) {
      map.set_value(e * columns + d,
                    static_cast<double>((e * 7 + d * 13) % (experts + columns - 1)));
    }
  }
  test.inputs["to_physical_map"] = std::move(map);
  test.inputs["logical_count"] = std::move(count);
}

void share(OpCase& test, int64_t num_shared, int64_t columns) {
  test.label += fmt::format(" {} shared", num_shared);
  test.params["use_shared_as_routed"] = true;
  test.params["num_shared_experts"] = num_shared;
  add_map(test, num_shared, columns);
}

HostTensor every_third(int64_t tokens, bool value) {
  HostTensor mask(DType::boolean, {tokens});
  for (int64_t t = 0; t < tokens; ++t) mask.set_bits(t, (t % 3 == 0) == value ? 1 : 0);
  return mask;
}

/// unmapped_topk_idx with rows `pitch` apart.
HostTensor unmapped(int64_t tokens, int64_t topk, int64_t pitch) {
  HostTensor ids(DType::i64, {tokens, topk}, {pitch, 1});
  for (int64_t i = 0; i < ids.size(); ++i) ids.set_bits(i, kUntouched);
  return ids;
}

/// Two tokens in three keep ids that are given: any expert, repetition allowed.
void fix(OpCase& test, int64_t pitch) {
  const int64_t tokens = test.inputs.at("logits").shape()[0];
  const int64_t experts = test.inputs.at("bias").size();
  const int64_t topk = std::get<int64_t>(test.params.at("num_topk"));
  test.label += " fixed";
  test.inputs["fix_routing_mask"] = every_third(tokens, false);
  HostTensor ids = unmapped(tokens, topk, pitch);
  Random random(5);
  for (int64_t i = 0; i < ids.size(); ++i) {
    ids.set_bits(i, static_cast<uint64_t>(random.below(experts)));
  }
  test.inputs["unmapped_topk_idx"] = std::move(ids);
}

void place(OpCase& test, int64_t ep_rank, int64_t num_ep_ranks, int64_t tp_rank,
           int64_t num_tp_ranks) {
  test.label += fmt::format(" ep {}/{} tp {}/{}", ep_rank, num_ep_ranks, tp_rank, num_tp_ranks);
  test.params["ep_rank"] = ep_rank;
  test.params["num_ep_ranks"] = num_ep_ranks;
  test.params["tp_rank"] = tp_rank;
  test.params["num_tp_ranks"] = num_tp_ranks;
}

}  // namespace

std::vector<OpCase> top2_sum_gate_cases() {
  std::vector<OpCase> cases;
  const Size kSizes[] = {{19, 72, 6},         {9, 32, 6},           {9, 64, 6},
                         {9, 96, 6},          {9, 16, 6},           {9, 36, 6},
                         {9, 108, 6},         {9, 128, 6},          {9, 144, 6},
                         {9, 256, 8},         {13, 256, 8, 8, 4},   {9, 256, 8, 8, 8},
                         {9, 54, 4, 6, 2},    {9, 1024, 32, 32, 9}, {5, 30, 30, 10, 10},
                         {5, 30, 29, 15, 15}, {7, 257, 12},         {5, 1, 1},
                         {3, 1030, 7},        {9, 64, 5, 32, 3},    {0, 72, 6}};
  for (const Size& size : kSizes) {
    for (const std::string scoring : {"sigmoid", "sqrtsoftplus", "softmax"}) {
      cases.push_back(gate_case(size, scoring));
    }
  }
  for (const std::string scoring : {"sigmoid", "sqrtsoftplus", "softmax"}) {
    for (const int64_t tp_rank : {0, 1}) {
      OpCase rank = gate_case({14, 72, 6}, scoring);
      place(rank, 3, 4, tp_rank, 2);
      rank.inputs["mask"] = every_third(14, false);
      rank.label += " masked";
      rank.inputs["unmapped_topk_idx"] = unmapped(14, 6, 6);
      cases.push_back(rank);
      share(rank, 2, 33);
      cases.push_back(rank);
      fix(rank, 9);
      cases.push_back(std::move(rank));
    }
  }
  OpCase grouped = gate_case({11, 256, 8, 8, 4}, "sigmoid");
  share(grouped, 1, 33);
  place(grouped, 7, 8, 2, 3);
  cases.push_back(std::move(grouped));

  // Equal keys are listed by expert; zeros of both signs are equal.
  OpCase ties = gate_case({4, 72, 12}, "sigmoid");
  ties.label += " all equal";
  for (int64_t i = 0; i < 4 * 72; ++i) ties.inputs["logits"].set_value(i, i % 2 == 0 ? 0.0 : -0.0);
  for (int64_t i = 0; i < 72; ++i) ties.inputs["bias"].set_value(i, 0);
  cases.push_back(ties);
  ties.params["num_groups"] = ties.params["num_topk_groups"] = int64_t{12};
  ties.params["num_topk_groups"] = int64_t{5};
  ties.label += " in groups";
  cases.push_back(ties);

  // A logit that is no number: the row goes nowhere, its neighbours do not notice.
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    OpCase broken = gate_case({5, 36, 6}, "softmax");
    broken.label += fmt::format(" with {}", bad);
    share(broken, 2, 5);
    broken.inputs["logits"].set_value(2 * 36 + 35, bad);
    broken.inputs["unmapped_topk_idx"] = unmapped(5, 6, 7);
    cases.push_back(std::move(broken));
  }
  // A masked row is not looked at.
  OpCase masked = gate_case({6, 36, 6}, "sigmoid");
  masked.label += " NaN behind the mask";
  masked.inputs["mask"] = every_third(6, false);
  masked.inputs["logits"].set_value(3 * 36, kNan);
  cases.push_back(std::move(masked));
  // Banned experts, more of them than leave num_topk others; NaN counts as banned.
  for (const std::string scoring : {"sigmoid", "softmax"}) {
    OpCase banned = gate_case({5, 16, 6}, scoring);
    banned.label += " banned";
    for (int64_t e = 0; e < 12; ++e) {
      banned.inputs["bias"].set_value(e, e % 2 == 0 ? -kInfinity : kNan);
    }
    cases.push_back(banned);
    banned.params["num_groups"] = int64_t{4};
    banned.params["num_topk_groups"] = int64_t{2};
    banned.inputs["bias"].set_value(13, kInfinity);
    banned.inputs["bias"].set_value(3, kInfinity);
    banned.label += " in groups";
    cases.push_back(std::move(banned));
  }
  // Fixed ids that are no experts, replica counts and map entries out of range.
  OpCase wrong = gate_case({9, 36, 6}, "sigmoid");
  fix(wrong, 6);
  share(wrong, 2, 5);
  wrong.label += " ids out of range";
  wrong.inputs["unmapped_topk_idx"].set_bits(7, static_cast<uint64_t>(-1));
  wrong.inputs["unmapped_topk_idx"].set_bits(12, 36);
  wrong.inputs["unmapped_topk_idx"].set_bits(13, uint64_t{1} << 32);
  for (int64_t e = 0; e < 6; ++e) {
    wrong.inputs["logical_count"].set_value(e * 5,
                                            e % 2 == 0 ? -1.0 * static_cast<double>(e) : 6.0);
    wrong.inputs["to_physical_map"].set_value(e * 25 + 7, e % 2 == 0 ? -3.0 : 40.0);
  }
  cases.push_back(std::move(wrong));
  OpCase saturated = gate_case({4, 32, 6}, "sqrtsoftplus");  // log1p(exp(x)) beyond and below 20
  saturated.label += " large logits";
  for (int64_t i = 0; i < 4 * 32; ++i) {
    saturated.inputs["logits"].set_value(i, static_cast<double>(i % 37) * 3.0 - 50);
  }
  cases.push_back(std::move(saturated));
  return cases;
}

}  // namespace tessera::test
