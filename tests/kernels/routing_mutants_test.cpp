// The tests of the small ops around a routing are shown to fail: copies of the references with one
// mistake that a kernel could make. The copies without a mistake must pass.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/ops/mutants.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

int64_t number(const Params& params, const std::string& name) {
  return std::get<int64_t>(params.at(name));
}

int64_t id_at(const HostTensor& tensor, int64_t element) {
  const uint64_t bits = tensor.bits(element);
  return tensor.dtype() == DType::i32 ? static_cast<int32_t>(bits) : static_cast<int64_t>(bits);
}

}  // namespace

TEST_CASE("the normalize_weight tests catch every mutant", "[normalize_weight][mutants]") {
  enum class Mutant { none, from_zero, clamped, descending, in_f64, by_inverse };
  const auto mutated = [](const HostTensors& in, const Params&, Mutant mutant) {
    const HostTensor& w = in.at("topk_weights");
    const int64_t tokens = w.shape()[0], topk = w.shape()[1];
    HostTensor denominator(DType::f32, {tokens}), normalized(DType::f32, w.shape());
    for (int64_t t = 0; t < tokens; ++t) {
      const bool plain = mutant == Mutant::from_zero || mutant == Mutant::clamped;
      float sum = plain ? 0.0F : 1e-20F;
      double exact = 1e-20;
      for (int64_t i = 0; i < topk; ++i) {
        const int64_t slot = mutant == Mutant::descending ? topk - 1 - i : i;
        sum = sum + static_cast<float>(w.value(t * topk + slot));
        exact += w.value(t * topk + slot);
      }
      if (mutant == Mutant::in_f64) sum = static_cast<float>(exact);
      if (mutant == Mutant::clamped) sum = std::fmax(sum, 1e-20F);
      denominator.set_value(t, static_cast<double>(sum));
      for (int64_t i = t * topk; i < (t + 1) * topk; ++i) {
        const auto weight = static_cast<float>(w.value(i));
        const float inverse = 1.0F / sum;
        const float quotient = mutant == Mutant::by_inverse ? weight * inverse : weight / sum;
        normalized.set_value(i, static_cast<double>(quotient));
      }
    }
    return HostTensors{{"denominator", denominator}, {"normalized_weights", normalized}};
  };
  check_mutants("normalize_weight", normalize_weight_cases(), Mutant::by_inverse, mutated);
}

TEST_CASE("the mask_indices_by_tp tests catch every mutant", "[mask_indices_by_tp][mutants]") {
  enum class Mutant {
    none,
    keeps_other_ranks,
    keeps_negatives,
    not_renumbered,
    not_moved_in_its_row,
    rounds_up,
    in_32_bits,
    minus_one_only,
    rejects_beyond
  };
  const auto mutated = [](const HostTensors& in, const Params& params, Mutant mutant) {
    const HostTensor& ids = in.at("indices");
    const int64_t experts = number(params, "num_experts"), ranks = number(params, "num_ep_ranks");
    const int64_t each =
        mutant == Mutant::rounds_up ? (experts + ranks - 1) / ranks : experts / ranks;
    const int64_t mine = number(params, "tp_rank"), columns = number(params, "num_tp_ranks");
    HostTensor out(ids.dtype(), ids.shape());
    for (int64_t i = 0; i < ids.size(); ++i) {
      int64_t id = id_at(ids, i);
      if (mutant == Mutant::in_32_bits) id = static_cast<int32_t>(id);
      const int64_t rank = id / each, row = rank / columns;
      bool here = id >= 0 && rank % columns == mine;
      if (mutant == Mutant::keeps_other_ranks) here = id >= 0;
      if (mutant == Mutant::keeps_negatives && id < 0) here = true;
      if (mutant == Mutant::minus_one_only && id < -1) here = rank % columns == mine;
      if (mutant == Mutant::rejects_beyond && id >= experts) here = false;
      int64_t local = id - (rank - row) * each;
      if (mutant == Mutant::not_renumbered || (mutant == Mutant::keeps_negatives && id < 0)) {
        local = id;
      }
      if (mutant == Mutant::not_moved_in_its_row) local = id - mine * each;
      out.set_bits(i, static_cast<uint64_t>(here ? local : -1));
    }
    return HostTensors{{"masked_indices", out}};
  };
  check_mutants("mask_indices_by_tp", mask_indices_by_tp_cases(), Mutant::rejects_beyond, mutated);
}

TEST_CASE("the topk_sum_and_topk_group_idx tests catch every mutant",
          "[topk_sum_and_topk_group_idx][mutants]") {
  enum class Mutant {
    none,
    ties_to_larger,
    best_alone,
    two_always,
    distinct_two,
    nan_first,
    nan_sum_first,
    negative_zero_below
  };
  const auto mutated = [](const HostTensors& in, const Params& params, Mutant mutant) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const HostTensor& scores = in.at("scores");
    const int64_t groups = scores.shape()[1], members = scores.shape()[2];
    const int64_t wanted = number(params, "num_topk_groups");
    bool two = number(params, "num_topk_sum") == 2;
    if (mutant == Mutant::best_alone) two = false;
    if (mutant == Mutant::two_always) two = members > 1;
    HostTensor out(DType::i64, {scores.shape()[0], wanted});
    for (int64_t t = 0; t < scores.shape()[0]; ++t) {
      std::vector<std::pair<double, int64_t>> order;
      for (int64_t g = 0; g < groups; ++g) {
        double best = -kInfinity, second = -kInfinity;
        for (int64_t m = 0; m < members; ++m) {
          double value = scores.value((t * groups + g) * members + m);
          if (mutant == Mutant::nan_first && std::isnan(value)) value = kInfinity;
          if (value > best) {
            second = best, best = value;
          } else if (value > second && (mutant != Mutant::distinct_two || value < best)) {
            second = value;
          }
        }
        double sum =
            two ? static_cast<double>(static_cast<float>(best) + static_cast<float>(second)) : best;
        if (std::isnan(sum)) sum = mutant == Mutant::nan_sum_first ? kInfinity : -kInfinity;
        if (mutant == Mutant::negative_zero_below && sum == 0 && std::signbit(sum)) sum = -1e-40;
        order.emplace_back(sum, g);
      }
      std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
        if (mutant == Mutant::ties_to_larger && a.first == b.first) return a.second > b.second;
        return a.first > b.first;
      });
      order.resize(static_cast<size_t>(wanted));
      for (int64_t k = 0; k < wanted; ++k) {
        out.set_bits(t * wanted + k, static_cast<uint64_t>(order[static_cast<size_t>(k)].second));
      }
    }
    return HostTensors{{"topk_group_idx", out}};
  };
  check_mutants("topk_sum_and_topk_group_idx", topk_sum_and_topk_group_idx_cases(),
                Mutant::negative_zero_below, mutated);
}

TEST_CASE("the group_count tests catch every mutant", "[group_count][mutants]") {
  enum class Mutant { none, narrows, counts_empty, once_per_row, one_range, clamps };
  const auto mutated = [](const HostTensors& in, const Params& params, Mutant mutant) {
    const HostTensor& ids = in.at("group_idx");
    const int64_t groups = number(params, "num_groups"), topk = ids.shape()[1];
    std::vector<int64_t> counts(static_cast<size_t>(groups));
    for (int64_t i = 0; i < ids.size(); ++i) {
      int64_t id = id_at(ids, i);
      if (mutant == Mutant::narrows) id = static_cast<int32_t>(id);
      if (mutant == Mutant::counts_empty && id == -1) id = 0;
      if (mutant == Mutant::clamps && id >= groups) id = groups - 1;
      if (mutant == Mutant::one_range && id >= 8192) continue;
      bool is_new = true;
      for (int64_t j = i / topk * topk; j < i; ++j) is_new = is_new && id_at(ids, j) != id;
      if (mutant == Mutant::once_per_row && !is_new) continue;
      if (id >= 0 && id < groups) ++counts[static_cast<size_t>(id)];
    }
    HostTensor out(DType::i32, {groups});
    for (int64_t g = 0; g < groups; ++g) {
      out.set_bits(g, static_cast<uint64_t>(counts[static_cast<size_t>(g)]));
    }
    return HostTensors{{"out", out}};
  };
  check_mutants("group_count", group_count_cases(), Mutant::clamps, mutated);
}

TEST_CASE("the aux_fi tests catch every mutant", "[aux_fi][mutants]") {
  enum class Mutant {
    none,
    adds_shares,
    product_in_32_bits,
    expected_in_32_bits,
    by_inverse,
    nan_without_tokens,
    by_topk,
    narrows
  };
  const auto mutated = [](const HostTensors& in, const Params& params, Mutant mutant) {
    const HostTensor& ids = in.at("topk_idx");
    const int64_t experts = number(params, "num_experts");
    const int64_t aux = mutant == Mutant::by_topk ? ids.shape()[1] : number(params, "num_aux_topk");
    int64_t expected = ids.shape()[0] * aux;
    if (mutant == Mutant::expected_in_32_bits) expected = static_cast<int32_t>(expected);
    std::vector<int64_t> counts(static_cast<size_t>(experts));
    for (int64_t i = 0; i < ids.size(); ++i) {
      const int64_t id =
          mutant == Mutant::narrows ? static_cast<int32_t>(id_at(ids, i)) : id_at(ids, i);
      if (id >= 0 && id < experts) ++counts[static_cast<size_t>(id)];
    }
    HostTensor out(DType::f32, {experts});
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t count = counts[static_cast<size_t>(e)];
      int64_t scaled = count * experts;
      if (mutant == Mutant::product_in_32_bits) scaled = static_cast<int32_t>(scaled);
      const auto divisor = static_cast<float>(expected);
      float share = static_cast<float>(scaled) / divisor;
      if (mutant == Mutant::by_inverse) share = static_cast<float>(scaled) * (1.0F / divisor);
      if (mutant == Mutant::adds_shares) {
        share = 0;
        for (int64_t i = 0; i < count; i += 1000) {  // of each block, one after the other
          const auto part = static_cast<float>(std::min<int64_t>(count - i, 1000) * experts);
          share = share + part / divisor;
        }
      }
      const bool is_zero = ids.shape()[0] == 0 && mutant != Mutant::nan_without_tokens;
      out.set_value(e, is_zero ? 0.0 : static_cast<double>(share));
    }
    return HostTensors{{"out", out}};
  };
  check_mutants("aux_fi", aux_fi_cases(), Mutant::narrows, mutated);
}

TEST_CASE("the inplace_unique_group_indices tests catch every mutant",
          "[inplace_unique_group_indices][mutants]") {
  enum class Mutant {
    none,
    keeps_the_last,
    neighbours_only,
    negatives_too,
    beyond_too,
    one_word,
    words_not_told_apart,
    half_a_row,
    beyond_become_empty
  };
  const auto mutated = [](const HostTensors& in, const Params& params, Mutant mutant) {
    const HostTensor& ids = in.at("group_indices");
    const int64_t groups = number(params, "num_groups"), topk = ids.shape()[1];
    HostTensor out(DType::i64, ids.shape());
    for (int64_t i = 0; i < ids.size(); ++i) {
      const int64_t id = id_at(ids, i), row = i / topk * topk;
      int64_t first = row, last = i;
      if (mutant == Mutant::neighbours_only) first = std::max(row, i - 1);
      if (mutant == Mutant::half_a_row && i - row >= 32) first = row + 32;
      if (mutant == Mutant::keeps_the_last) first = i + 1, last = row + topk;
      bool is_member = id >= 0 && id < groups;
      if (mutant == Mutant::negatives_too && id < 0) is_member = true;
      if (mutant == Mutant::beyond_too && id >= 0 && id < (groups + 63) / 64 * 64) is_member = true;
      if (mutant == Mutant::one_word && id >= 64) is_member = false;
      bool is_new = true;
      for (int64_t j = first; j < last; ++j) {
        const int64_t other = id_at(ids, j);
        const bool same = mutant == Mutant::words_not_told_apart && other >= 0 && other < groups
                              ? other % 64 == id % 64
                              : other == id;
        is_new = is_new && !(is_member && same);
      }
      int64_t result = is_new ? id : -1;
      if (mutant == Mutant::beyond_become_empty && id >= groups) result = -1;
      out.set_bits(i, static_cast<uint64_t>(result));
    }
    return HostTensors{{"group_indices", out}};
  };
  check_mutants("inplace_unique_group_indices", inplace_unique_group_indices_cases(),
                Mutant::beyond_become_empty, mutated);
}
