#pragma once
// Candidates that need not be measured: by the executor's counts on a small case they do more work than another
// one, with no more threads to do it.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/jit/tune.h"
#include "kernels/op.h"
#include "runtime/nvrtc/target.h"

namespace tessera::tools {

/// The case with extents as small as leave the Specs of its tunable kernels as they are.
kernels::BenchCase small_case(const kernels::OpInfo& op, const kernels::BenchCase& one,
                              runtime::Target target);

/// The work of a candidate, summed over the kernels of a call.
struct CandidateWork {
  int64_t sectors = 0;         // of global memory, loaded and stored
  int64_t bank_conflicts = 0;  // wavefronts above the ideal
  int64_t barrier_waits = 0;   // of warps
  int64_t threads = 0;         // of all blocks
};

/// For each candidate why it need not be measured, "" if it must: another one has no more sectors, bank conflicts
/// and barrier waits, fewer of one of them, and as many threads. The first one, the standard choice, always must.
std::vector<std::string> needless(const std::vector<CandidateWork>& work,
                                  const std::vector<std::string>& names);

/// The same for the candidates of a choice that a case leaves open on a target. Runs its small case on the CPU.
std::vector<std::string> needless_candidates(const kernels::OpInfo& op,
                                             const kernels::BenchCase& one,
                                             const kernels::jit::TuneAsk& ask,
                                             runtime::Target target);

}  // namespace tessera::tools
