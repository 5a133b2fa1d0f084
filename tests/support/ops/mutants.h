#pragma once
// Mutants of meaning: copies of a reference, or the reference behind changed inputs, with one mistake
// that a kernel could make and that no generic mutation of outputs (mutations.h) stands for.

#include <functional>
#include <string>
#include <vector>

#include "kernels/checks/value_check.h"
#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"

namespace tessera::test {

/// The reference behind a mistake about its arguments.
reference::Runner misled(const std::string& op,
                         const std::function<void(HostTensors&, kernels::Params&)>& mistake);

/// The reference before a mistake about its results.
reference::Runner spoiled(
    const std::string& op,
    const std::function<void(const HostTensors& in, HostTensors& out)>& mistake);

/// Which of the mutants some case catches; those that are caught are not run on further cases.
std::vector<bool> caught_by(const std::string& op, const std::vector<OpCase>& cases,
                            const std::vector<reference::Runner>& mutants);

bool is_caught(const std::string& op, const std::vector<OpCase>& cases,
               const reference::Runner& mutant);

/// An element as the kernels see it.
float at(const HostTensor& tensor, int64_t element);

/// The cases catch every mutant of an enum, from `none`, which is right, to `last`.
///
/// Example: check_mutants("post_bwd", post_bwd_cases(), PostMutant::descending, mutated_post);
template <class Mutant, class Run>
void check_mutants(const std::string& op, const std::vector<OpCase>& cases, Mutant last,
                   const Run& run) {
  std::vector<reference::Runner> mutants;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    mutants.emplace_back([&run, i](const HostTensors& in, const kernels::Params& params) {
      return run(in, params, static_cast<Mutant>(i));
    });
  }
  const std::vector<bool> caught = caught_by(op, cases, mutants);
  for (size_t i = 0; i < caught.size(); ++i) {
    CAPTURE(op, i);
    CHECK(caught[i] == (static_cast<Mutant>(i) != Mutant::none));
  }
}

}  // namespace tessera::test
