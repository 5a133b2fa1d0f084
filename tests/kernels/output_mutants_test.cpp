// The op tests are shown to fail for mistakes of placement: of each output of each op, every generic
// mutation must be caught by a case of the op, and the cases have inputs of every form. Mistakes of
// meaning need mutants of their own, in the other tests [mutants].

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "kernels/checks/value_check.h"
#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/each_family.h"
#include "tests/support/ops/mutations.h"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int64_t kMostElements = 1 << 16;  // of the inputs of a case
/// Mutations that show in each output: an output of one element has no second row or column.
constexpr int kLeastMutations = 6;

int64_t num_elements_of(const HostTensors& tensors) {
  int64_t sum = 0;
  for (const auto& [name, tensor] : tensors) sum += tensor.size();
  return sum;
}

/// The fate of a mutation of an output: `absent` while it changes nothing in any case.
enum class Fate { absent, escaped, caught };
using Fates = std::map<std::string, std::map<std::string, Fate>>;  // output, mutation

bool all_caught(const Fates& fates) {
  for (const auto& [output, mutations] : fates) {
    for (const auto& [mutation, fate] : mutations) {
      if (fate != Fate::caught) return false;
    }
  }
  return true;
}

void mutate_outputs(const OpCase& test, const HostTensors& want, Fates& fates) {
  for (const auto& [output, tensor] : want) {
    for (const Mutation& mutation : mutations()) {
      Fate& fate = fates[output][mutation.name];
      if (fate == Fate::caught) continue;
      HostTensors mutated = want;
      mutation.make(mutated, output, compare_rule(test, output));
      if (!differ(mutated, want)) continue;
      fate = compare_outputs(test, want, mutated).ok ? Fate::escaped : Fate::caught;
    }
  }
}

/// Small cases, from the smallest on, until each mutation of each output is caught.
Fates fates_of(const kernels::OpInfo& op, std::vector<OpCase> cases) {
  std::stable_sort(cases.begin(), cases.end(), [](const OpCase& a, const OpCase& b) {
    return num_elements_of(a.inputs) < num_elements_of(b.inputs);
  });
  Fates fates;
  for (const kernels::TensorInfo& tensor : op.tensors) {
    if (tensor.role == kernels::Role::in) continue;
    const std::string output = tensor.name + (tensor.list ? ".0" : "");
    for (const Mutation& mutation : mutations()) fates[output][mutation.name] = Fate::absent;
  }
  for (const OpCase& test : cases) {
    if (num_elements_of(test.inputs) > kMostElements || all_caught(fates)) break;
    const HostTensors want = reference::runner(op.name)(test.inputs, test.params);
    const Comparison itself = compare_outputs(test, want, want);
    if (!itself.ok) FAIL_CHECK(op.name + ": " + test.label + ": " + itself.report);
    mutate_outputs(test, want, fates);
  }
  return fates;
}

/// For each input: one case has it, one is without it if it is optional, and one has strides where they
/// are free.
void check_inputs(const kernels::OpInfo& op, const std::vector<OpCase>& cases) {
  for (const kernels::TensorInfo& tensor : op.tensors) {
    if (tensor.role == kernels::Role::out) continue;
    const std::string name = tensor.name + (tensor.list ? ".0" : "");
    bool is_given = false, is_left_out = !tensor.optional;
    bool is_strided = tensor.layout != "rows" && tensor.layout != "any";
    for (const OpCase& test : cases) {
      const auto found = test.inputs.find(name);
      if (found == test.inputs.end()) {
        is_left_out = true;
        continue;
      }
      is_given = true;
      if (found->second.size() > 0 && !found->second.view().is_row_major()) is_strided = true;
    }
    CAPTURE(op.name, name);
    CHECK(is_given);
    CHECK(is_left_out);
    CHECK(is_strided);
  }
}

/// Op, input, mutation: what no case can tell, and why.
const std::map<std::array<std::string, 3>, std::string> kNoMistakes = {
    {{"group_count", "group_idx", "swapped rows"}, "a count does not depend on the order"},
    {{"aux_fi", "topk_idx", "swapped rows"}, "a count does not depend on the order"},
    {{"reduce_fused", "x_sf", "last column"}, "the last position is padding"},
    {{"pre_split_mixes_bwd", "base", "last column"}, "the third part of the mixes is linear"},
    {{"mhc_pre_bwd", "base", "last column"}, "the third part of the mixes is linear"},
    {{"mhc_pre_bwd", "out_mul", "last column"}, "its share of grad_scale is below the tolerance"},
    {{"compress_fwd", "plan", "last column"}, "stores alone have a page size"},
    {{"compress_decode", "plan", "last column"}, "stores alone have a page size"},
    {{"compress_prefill", "plan", "last column"}, "stores alone have a page size"},
    {{"compress_prefill", "write_plan", "swapped rows"}, "writes have no order"},
    {{"compress_state_write", "write_plan", "swapped rows"}, "writes have no order"},
    {{"hisparse_swap_in", "host_loc", "last column"}, "no request wants the last row of its table"},
    {{"mxfp4_decode", "b_sf", "last column"}, "its extents count, not its values"},
    {{"mxfp4_decode", "b_sf", "swapped rows"}, "its extents count, not its values"},
    {{"candidate_blocks", "scores", "last column"}, "the last block is chosen by its place"},
    {{"topk_select", "plan", "last column"}, "a plan has no say in the result"},
    {{"topk_select", "plan", "swapped rows"}, "a plan has no say in the result"}};

/// The outputs of the reference where it reads an input wrong; none if that is refused.
std::optional<HostTensors> misread(const kernels::OpInfo& op, const OpCase& test,
                                   const HostTensors& inputs) {
  try {
    return reference::runner(op.name)(inputs, test.params);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// For each input: some case tells when a neighbour's element, or the row of another one, is read.
void check_misread_inputs(const kernels::OpInfo& op, std::vector<OpCase> cases) {
  std::stable_sort(cases.begin(), cases.end(), [](const OpCase& a, const OpCase& b) {
    return num_elements_of(a.inputs) < num_elements_of(b.inputs);
  });
  Fates fates;
  for (const OpCase& test : cases) {
    if (num_elements_of(test.inputs) > 4 * kMostElements) break;
    std::optional<HostTensors> want;
    for (const auto& [input, tensor] : test.inputs) {
      for (const Mutation& mutation : mutations()) {
        if (mutation.name != "last column" && mutation.name != "swapped rows") continue;
        Fate& fate = fates[input].try_emplace(mutation.name, Fate::absent).first->second;
        if (fate == Fate::caught) continue;
        HostTensors inputs = test.inputs;
        mutation.make(inputs, input, {});
        if (!differ(inputs, test.inputs)) continue;
        if (!want) want = reference::runner(op.name)(test.inputs, test.params);
        const std::optional<HostTensors> got = misread(op, test, inputs);
        const bool is_caught = !got || !compare_outputs(test, *want, *got).ok;
        fate = is_caught ? Fate::caught : Fate::escaped;
      }
    }
  }
  for (const auto& [input, mutations] : fates) {
    for (const auto& [mutation, fate] : mutations) {
      CAPTURE(op.name, input, mutation);
      const auto reason = kNoMistakes.find({op.name, input, mutation});
      CHECK((fate == Fate::escaped) == (reason != kNoMistakes.end()));
    }
  }
}

void check_family(const std::string& family) {
  const kernels::UncheckedValues as_on_a_gpu;
  for (const kernels::OpInfo& op : kernels::ops()) {
    if (op.family != family) continue;
    const std::vector<OpCase> cases = cases_of(op.name);
    check_inputs(op, cases);
    check_misread_inputs(op, cases);
    const Fates fates = fates_of(op, cases);
    CHECK_FALSE(fates.empty());
    for (const auto& [output, mutations] : fates) {
      int demanded = 0;
      for (const auto& [mutation, fate] : mutations) {
        CAPTURE(op.name, output, mutation);
        CHECK(fate != Fate::escaped);
        if (fate != Fate::absent) ++demanded;
      }
      CAPTURE(op.name, output);
      CHECK(demanded >= kLeastMutations);
    }
  }
}

}  // namespace

TESSERA_TEST_EACH_FAMILY("op tests catch every mistake of placement", "[mutants][slow]",
                         check_family)

TEST_CASE("an op without cases is named", "[support]") {
  CHECK_THROWS_WITH(cases_of("no_such_op"),
                    "op 'no_such_op' has no cases: name them in tests/support/ops/cases_of.cpp");
}
