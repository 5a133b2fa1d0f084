#pragma once
// Facts about the candidates of an open choice before they are measured: whether each compiles without
// spills, and whether all give the bits of the standard one.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/jit/call_copy.h"
#include "kernels/jit/target.h"
#include "kernels/jit/tune.h"
#include "runtime/nvrtc/target.h"

namespace tessera::kernels::jit {

/// Answers `ask` with `choice` and every other question with the standard one.
TuneScope::Decide deciding(const TuneAsk& ask, TuneChoice choice);
/// Adds new questions to `asked`, and answers with the standard choice.
TuneScope::Decide noting(std::vector<TuneAsk>& asked);

/// A candidate of one open choice and what is wrong with it.
struct CheckedCandidate {
  TuneChoice choice;
  std::string problem;   // why it cannot run; empty: it runs
  bool differs = false;  // from the results of the standard choice: a bug of the kernel
  CallCopy::Launches launches = {};
};

/// Why kernels of `call` cannot be used on a target with each of the choices, the first one standard: they do not
/// compile, or spill more than the standard one's. Empty: they can. Compiles side by side; makes `call` on this
/// thread, for its names alone.
std::vector<std::string> compile_problems(const std::function<void()>& call, const TuneAsk& ask,
                                          const std::vector<TuneChoice>& choices,
                                          runtime::Target target, const GpuModel& model = {});

/// Runs `call` on copies of its memory with every candidate of `ask`, all other choices standard, and compares
/// the results with those of the standard one byte for byte (unless TuneSpace::changes_bits). `problems` has a
/// line per candidate, or is empty: a candidate with a problem is not run.
///
/// Errors: those of the call with the standard choice.
std::vector<CheckedCandidate> check_candidates(const std::function<void()>& call,
                                               const TuneAsk& ask, CallCopy& copy,
                                               std::vector<std::string> problems);
/// The same, on copies of its own.
std::vector<CheckedCandidate> check_candidates(const std::function<void()>& call,
                                               const TuneAsk& ask);

}  // namespace tessera::kernels::jit
