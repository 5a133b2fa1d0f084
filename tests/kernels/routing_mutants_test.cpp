// The tests of the small ops around a routing are shown to fail: copies of the references with one
// mistake that a kernel could make. The copies without a mistake must pass.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

bool is_caught(const std::string& op, const std::vector<OpCase>& cases,
               const reference::Runner& mutant) {
  return !run_cases(op, cases, mutant).failures.empty();
}

int64_t number(const Params& params, const std::string& name) {
  return std::get<int64_t>(params.at(name));
}

int64_t id_at(const HostTensor& tensor, int64_t element) {
  const uint64_t bits = tensor.bits(element);
  return tensor.dtype() == DType::i32 ? static_cast<int32_t>(bits) : static_cast<int64_t>(bits);
}

}  // namespace

TEST_CASE("the normalize_weight tests catch every mutant", "[normalize_weight][mutants]") {
  enum class Mutant { none, from_zero, clamped, descending, in_f64, by_inverse, sum_alone };
  const auto cases = normalize_weight_cases();
  const auto run = [&](Mutant mutant) {
    return is_caught("normalize_weight", cases, [=](const HostTensors& in, const Params&) {
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
          float quotient = mutant == Mutant::by_inverse ? weight * inverse : weight / sum;
          if (mutant == Mutant::sum_alone) quotient = weight;
          normalized.set_value(i, static_cast<double>(quotient));
        }
      }
      return HostTensors{{"denominator", denominator}, {"normalized_weights", normalized}};
    });
  };
  CHECK_FALSE(run(Mutant::none));
  CHECK(run(Mutant::from_zero));
  CHECK(run(Mutant::clamped));
  CHECK(run(Mutant::descending));
  CHECK(run(Mutant::in_f64));
  CHECK(run(Mutant::by_inverse));
  CHECK(run(Mutant::sum_alone));
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
  const auto cases = mask_indices_by_tp_cases();
  const auto run = [&](Mutant mutant) {
    return is_caught("mask_indices_by_tp", cases, [=](const HostTensors& in, const Params& params) {
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
    });
  };
  CHECK_FALSE(run(Mutant::none));
  for (const Mutant mutant :
       {Mutant::keeps_other_ranks, Mutant::keeps_negatives, Mutant::not_renumbered,
        Mutant::not_moved_in_its_row, Mutant::rounds_up, Mutant::in_32_bits, Mutant::minus_one_only,
        Mutant::rejects_beyond}) {
    CAPTURE(static_cast<int>(mutant));
    CHECK(run(mutant));
  }
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
    negative_zero_below,
    ascending,
    by_number
  };
  const std::string op = "topk_sum_and_topk_group_idx";
  const auto cases = topk_sum_and_topk_group_idx_cases();
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
        order.emplace_back(mutant == Mutant::ascending ? -sum : sum, g);
      }
      std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
        if (mutant == Mutant::ties_to_larger && a.first == b.first) return a.second > b.second;
        return a.first > b.first;
      });
      order.resize(static_cast<size_t>(wanted));
      if (mutant == Mutant::by_number) {
        std::sort(order.begin(), order.end(),
                  [](const auto& a, const auto& b) { return a.second < b.second; });
      }
      for (int64_t k = 0; k < wanted; ++k) {
        out.set_bits(t * wanted + k, static_cast<uint64_t>(order[static_cast<size_t>(k)].second));
      }
    }
    return HostTensors{{"topk_group_idx", out}};
  };
  for (const Mutant mutant :
       {Mutant::none, Mutant::ties_to_larger, Mutant::best_alone, Mutant::two_always,
        Mutant::distinct_two, Mutant::nan_first, Mutant::nan_sum_first, Mutant::negative_zero_below,
        Mutant::ascending, Mutant::by_number}) {
    CAPTURE(static_cast<int>(mutant));
    CHECK(is_caught(op, cases, [&](const HostTensors& in, const Params& params) {
            return mutated(in, params, mutant);
          }) == (mutant != Mutant::none));
  }
}

TEST_CASE("the group_count tests catch every mutant", "[group_count][mutants]") {
  enum class Mutant { none, narrows, counts_empty, once_per_row, last_slot, one_range, clamps };
  const auto cases = group_count_cases();
  const auto run = [&](Mutant mutant) {
    return is_caught("group_count", cases, [=](const HostTensors& in, const Params& params) {
      const HostTensor& ids = in.at("group_idx");
      const int64_t groups = number(params, "num_groups"), topk = ids.shape()[1];
      std::vector<int64_t> counts(static_cast<size_t>(groups));
      const int64_t end = ids.size() - (mutant == Mutant::last_slot ? 1 : 0);
      for (int64_t i = 0; i < end; ++i) {
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
    });
  };
  CHECK_FALSE(run(Mutant::none));
  for (const Mutant mutant : {Mutant::narrows, Mutant::counts_empty, Mutant::once_per_row,
                              Mutant::last_slot, Mutant::one_range, Mutant::clamps}) {
    CAPTURE(static_cast<int>(mutant));
    CHECK(run(mutant));
  }
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
  const auto cases = aux_fi_cases();
  const auto run = [&](Mutant mutant) {
    return is_caught("aux_fi", cases, [=](const HostTensors& in, const Params& params) {
      const HostTensor& ids = in.at("topk_idx");
      const int64_t experts = number(params, "num_experts");
      const int64_t aux =
          mutant == Mutant::by_topk ? ids.shape()[1] : number(params, "num_aux_topk");
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
    });
  };
  CHECK_FALSE(run(Mutant::none));
  for (const Mutant mutant :
       {Mutant::adds_shares, Mutant::product_in_32_bits, Mutant::expected_in_32_bits,
        Mutant::by_inverse, Mutant::nan_without_tokens, Mutant::by_topk, Mutant::narrows}) {
    CAPTURE(static_cast<int>(mutant));
    CHECK(run(mutant));
  }
}

TEST_CASE("the inplace_unique_group_indices tests catch every mutant",
          "[inplace_unique_group_indices][mutants]") {
  enum class Mutant {
    none,
    keeps_the_last,
    neighbours_only,
    over_tokens,
    negatives_too,
    beyond_too,
    one_word,
    words_not_told_apart,
    half_a_row,
    beyond_become_empty
  };
  const auto cases = inplace_unique_group_indices_cases();
  const auto mutated = [](const HostTensors& in, const Params& params, Mutant mutant) {
    const HostTensor& ids = in.at("group_indices");
    const int64_t groups = number(params, "num_groups"), topk = ids.shape()[1];
    HostTensor out(DType::i64, ids.shape());
    for (int64_t i = 0; i < ids.size(); ++i) {
      const int64_t id = id_at(ids, i), row = i / topk * topk;
      int64_t first = mutant == Mutant::over_tokens && row > 0 ? row - 1 : row, last = i;
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
  for (const Mutant mutant :
       {Mutant::none, Mutant::keeps_the_last, Mutant::neighbours_only, Mutant::over_tokens,
        Mutant::negatives_too, Mutant::beyond_too, Mutant::one_word, Mutant::words_not_told_apart,
        Mutant::half_a_row, Mutant::beyond_become_empty}) {
    CAPTURE(static_cast<int>(mutant));
    CHECK(is_caught("inplace_unique_group_indices", cases,
                    [&](const HostTensors& in, const Params& params) {
                      return mutated(in, params, mutant);
                    }) == (mutant != Mutant::none));
  }
}
