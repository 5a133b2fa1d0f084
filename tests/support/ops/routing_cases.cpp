// Cases of the small ops around a routing: row lengths of models and odd ones, sizes on both sides of
// what one block, one cluster and one part of a row hold, and values that no caller should give.

#include <fmt/format.h>

#include <limits>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

OpCase make_case(const std::string& label, const std::string& input, HostTensor tensor,
                 kernels::Params params) {
  OpCase test;
  test.label = fmt::format("{} {}", label, to_string(tensor.shape()));
  for (const auto& [name, value] : params) {
    test.label += fmt::format(" {}={}", name, std::get<int64_t>(value));
  }
  test.inputs[input] = std::move(tensor);
  test.params = std::move(params);
  return test;
}

/// Ids of -1 .. count - 1, one in four -1.
HostTensor random_ids(Dims shape, int64_t count, uint64_t seed, DType dtype = DType::i64) {
  HostTensor ids(dtype, shape);
  Random random(seed);
  for (int64_t i = 0; i < ids.size(); ++i) {
    const int64_t id = random.below(4) == 0 ? -1 : random.below(count);
    ids.set_bits(i, static_cast<uint64_t>(id));
  }
  return ids;
}

/// The ids with every fifth replaced by the next of `others`.
HostTensor with_ids(HostTensor ids, const std::vector<int64_t>& others) {
  for (int64_t i = 2, next = 0; i < ids.size(); i += 5, ++next) {
    const int64_t other = others[static_cast<size_t>(next % std::ssize(others))];
    ids.set_bits(i, static_cast<uint64_t>(other));
  }
  return ids;
}

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

}  // namespace

std::vector<OpCase> normalize_weight_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const std::string& label, HostTensor weights) {
    cases.push_back(make_case(label, "topk_weights", std::move(weights), {}));
  };
  for (const int64_t topk : {1, 2, 3, 4, 6, 7, 8, 9, 16, 32, 33, 37, 96, 100}) {
    const Dims shape{131, topk};
    add("uniform", random_tensor(DType::f32, shape, Values::uniform, 1));
    add("normal", random_tensor(DType::f32, shape, Values::normal, 2));
    add("nasty", random_tensor(DType::f32, shape, Values::nasty, 3));
    add("bits", random_tensor(DType::f32, shape, Values::bits, 4));
  }
  for (const int64_t tokens : {0, 1, 127, 128, 4001}) {
    add("uniform", random_tensor(DType::f32, {tokens, 8}, Values::uniform, 5));
  }
  add("no slots", HostTensor(DType::f32, {5, 0}));
  HostTensor zeros(DType::f32, {3, 6});
  for (int64_t i = 0; i < zeros.size(); ++i) zeros.set_value(i, i < 6 ? 0.0 : -0.0);
  add("zeros", std::move(zeros));
  HostTensor tiny(DType::f32, {3, 6});  // as small as the 1e-20 that the sum begins with
  for (int64_t i = 0; i < tiny.size(); ++i) tiny.set_value(i, 1e-20 * static_cast<double>(i + 1));
  add("tiny", std::move(tiny));
  return cases;
}

std::vector<OpCase> mask_indices_by_tp_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const std::string& label, HostTensor ids, int64_t num_experts,
                       int64_t num_ep_ranks, int64_t tp_rank, int64_t num_tp_ranks) {
    cases.push_back(make_case(fmt::format("{} {}", label, name(ids.dtype())), "indices",
                              std::move(ids),
                              {{"num_experts", num_experts},
                               {"num_ep_ranks", num_ep_ranks},
                               {"tp_rank", tp_rank},
                               {"num_tp_ranks", num_tp_ranks}}));
  };
  for (const DType dtype : {DType::i64, DType::i32}) {
    for (const int64_t topk : {1, 2, 6, 7, 8, 9}) {
      for (const int64_t num_tp_ranks : {1, 2, 4, 8}) {
        add("ids", random_ids({37, topk}, 256, 1, dtype), 256, 16, num_tp_ranks / 2, num_tp_ranks);
      }
      add("ids", random_ids({43, topk}, 72, 2, dtype), 72, 8, 2, 3);
    }
    for (const int64_t tokens : {0, 1, 255, 4001}) {
      add("ids", random_ids({tokens, 9}, 72, 3, dtype), 72, 8, 1, 2);
    }
    add("uneven ranks", random_ids({21, 8}, 75, 4, dtype), 75, 8, 3, 4);
    add("one expert per rank", random_ids({21, 8}, 64, 5, dtype), 64, 64, 0, 8);
    add("more ranks than experts have", random_ids({21, 8}, 64, 6, dtype), 64, 8, 100, 4096);
    add("ids beyond the experts", random_ids({21, 8}, 1'000'000, 7, dtype), 72, 8, 1, 2);
    add("any bits", random_tensor(dtype, {51, 7}, Values::bits, 8), 72, 8, 1, 2);
    add("any bits", random_tensor(dtype, {51, 8}, Values::bits, 9), 2147483647, 2, 1, 3);
  }
  add("large ids",
      with_ids(random_ids({21, 8}, 72, 10), {kLeast, kMost, 1LL << 32, 4294967305, -7}), 72, 8, 0,
      2);
  add("more experts than 32 bits hold",
      with_ids(random_ids({21, 8}, kMost, 11), {5, -3, 1LL << 33}), 1LL << 36, 8, 1, 2);
  return cases;
}

std::vector<OpCase> topk_sum_and_topk_group_idx_cases() {
  std::vector<OpCase> cases;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto add = [&](const std::string& label, HostTensor scores, int64_t sum, int64_t groups) {
    cases.push_back(make_case(label, "scores", std::move(scores),
                              {{"num_topk_sum", sum}, {"num_topk_groups", groups}}));
  };
  const auto few = [](Dims shape, const std::vector<double>& values, uint64_t seed) {
    HostTensor scores(DType::f32, shape);
    Random random(seed);
    for (int64_t i = 0; i < scores.size(); ++i) {
      scores.set_value(i, values[static_cast<size_t>(random.below(std::ssize(values)))]);
    }
    return scores;
  };
  const std::pair<int64_t, int64_t> kModels[] = {{4, 18}, {8, 9},   {12, 6}, {8, 32},
                                                 {4, 64}, {16, 16}, {3, 5},  {32, 3},
                                                 {1, 7},  {17, 2},  {5, 33}};
  for (const auto& [groups, members] : kModels) {
    const Dims shape{37, groups, members};
    for (const int64_t sum : {1, 2}) {
      const int64_t some = std::min<int64_t>(groups, 4);
      add("normal", random_tensor(DType::f32, shape, Values::normal, 1), sum, some);
      add("nasty", random_tensor(DType::f32, shape, Values::nasty, 2), sum, groups);
      add("bits", random_tensor(DType::f32, shape, Values::bits, 3), sum, some);
      add("ties", few(shape, {0.0, -0.0, 0.5, -0.5}, 4), sum, groups);
      add("infinities", few(shape, {kInfinity, -kInfinity, NAN, 1.0}, 5), sum, groups);
      add("mostly NaN", few(shape, {NAN, NAN, NAN, -kInfinity, 2.0}, 6), sum, groups);
    }
  }
  const auto normal = [&](Dims shape, int64_t sum, int64_t groups) {
    add("normal", random_tensor(DType::f32, shape, Values::normal, 7), sum, groups);
  };
  normal({0, 8, 9}, 2, 4);
  normal({1, 1, 1}, 1, 1);
  normal({9, 32, 1}, 1, 32);
  normal({1, 8, 32}, 2, 4);
  normal({3, 1, 5000}, 2, 1);  // more scores than a lane holds
  normal({3, 32, 70}, 2, 7);
  normal({3, 2, 1100}, 1, 2);
  normal({1001, 12, 6}, 1, 2);
  return cases;
}

std::vector<OpCase> group_count_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const std::string& label, HostTensor ids, int64_t num_groups) {
    cases.push_back(make_case(label, "group_idx", std::move(ids), {{"num_groups", num_groups}}));
  };
  for (const int64_t num_groups : {1, 2, 4, 9, 32, 256, 257, 2049}) {
    add("ids", random_ids({65, 8}, num_groups, 1), num_groups);
    add("ids", random_ids({131, 9}, num_groups, 2), num_groups);
  }
  add("none", HostTensor(DType::i64, {0, 8}), 9);
  add("none", HostTensor(DType::i64, {7, 0}), 300);
  add("one", random_ids({1, 1}, 1, 3), 1);
  add("all the same", random_ids({700, 5}, 1, 4), 12);
  for (const int64_t slots : {4095, 4096, 4097, 65535, 65536}) {
    add("ids", random_ids({slots, 1}, 9, 5), 9);
  }
  add("more groups than a block counts", random_ids({300, 7}, 20'000, 6), 20'000);
  add("more groups than a block counts", random_ids({1001, 7}, 8193, 7), 8193);
  add("two kernels", random_ids({9001, 8}, 9, 8), 9);
  add("two kernels", random_ids({65'537, 1}, 300, 9), 300);
  add("two kernels and more groups than a block counts", random_ids({66'001, 1}, 9000, 10), 9000);
  const std::vector<int64_t> others = {-2, 9, kLeast, kMost, (1LL << 32) + 3, -(1LL << 32) + 3,
                                       8,  12};
  add("ids out of range", with_ids(random_ids({65, 8}, 9, 11), others), 9);
  add("ids out of range", with_ids(random_ids({65, 8}, 9000, 12), {9000, 16'383, 20'000}), 9000);
  add("ids out of range", with_ids(random_ids({9001, 8}, 9, 13), others), 9);
  return cases;
}

std::vector<OpCase> aux_fi_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const std::string& label, HostTensor ids, int64_t num_experts,
                       int64_t num_aux_topk) {
    cases.push_back(make_case(label, "topk_idx", std::move(ids),
                              {{"num_experts", num_experts}, {"num_aux_topk", num_aux_topk}}));
  };
  for (const int64_t experts : {1, 4, 9, 32, 72, 257}) {
    for (const int64_t aux : {1, 2, 6, 8}) {
      add("ids", random_ids({131, 8}, experts, 1), experts, aux);
    }
    add("ids", random_ids({135, 9}, experts, 2), experts, 9);
  }
  add("none", HostTensor(DType::i64, {0, 8}), 9, 2);
  add("none", HostTensor(DType::i64, {7, 0}), 9, 2);
  add("one", random_ids({1, 1}, 1, 3), 1, 1);
  add("a large share", random_ids({37, 8}, 9, 4), 9, 2147483647);
  add("products beyond 2^24", random_ids({5007, 9}, 3, 5), 3001, 4093);
  add("products beyond 2^32", random_ids({66'001, 1}, 2, 6), 200'003, 70'001);
  add("two kernels", random_ids({8126, 2}, 9, 7), 9, 1);
  add("two kernels", random_ids({9001, 8}, 9, 8), 9, 8);
  const std::vector<int64_t> others = {-2, 9, kLeast, kMost, (1LL << 32) + 3, -(1LL << 32) + 3,
                                       8,  12};
  add("ids out of range", with_ids(random_ids({65, 8}, 9, 9), others), 9, 2);
  add("ids out of range", with_ids(random_ids({9001, 8}, 9, 10), others), 9, 2);
  return cases;
}

std::vector<OpCase> inplace_unique_group_indices_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const std::string& label, HostTensor ids, int64_t num_groups) {
    cases.push_back(
        make_case(label, "group_indices", std::move(ids), {{"num_groups", num_groups}}));
  };
  for (const int64_t num_groups : {1, 8, 16, 63, 64, 65, 72, 127, 128}) {
    for (const int64_t topk : {1, 2, 6, 8, 9}) {
      add("ids", random_ids({131, topk}, num_groups, 1), num_groups);
    }
  }
  for (const int64_t topk : {32, 33, 40, 70, 96, 101}) {
    add("ids", random_ids({9, topk}, 72, 2), 72);
  }
  for (const int64_t tokens : {0, 1, 127, 128, 4001}) {
    add("ids", random_ids({tokens, 8}, 8, 3), 8);
  }
  add("no slots", HostTensor(DType::i64, {5, 0}), 8);
  add("all the same", random_ids({21, 9}, 1, 4), 8);
  // None of them is in the set; those that repeat stay.
  const std::vector<int64_t> negative = {-2, -2, kLeast, -(1LL << 32) + 3, kLeast, -65};
  add("negative ids", with_ids(random_ids({40, 16}, 8, 5), negative), 8);
  const std::vector<int64_t> beyond = {8, 8, 63, 64, 71, 128, kMost, (1LL << 32) + 3, kMost};
  add("ids beyond the groups", with_ids(random_ids({40, 16}, 8, 6), beyond), 8);
  add("ids beyond the groups", with_ids(random_ids({40, 16}, 72, 7), {72, 72, 127, 128, 136, 200}),
      72);
  return cases;
}

}  // namespace tessera::test
