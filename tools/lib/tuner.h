#pragma once
// `tessera tune`: which tile sizes an op has for a case, whether they all give the same bits, and which is the
// fastest on the GPU.

#include <optional>
#include <string>
#include <vector>

#include "kernels/jit/tune.h"
#include "kernels/op.h"
#include "runtime/cache/tuned.h"
#include "runtime/nvrtc/target.h"
#include "tools/lib/device_timer.h"
#include "tools/lib/fastest.h"
#include "tools/lib/op_call.h"

namespace tessera::tools {

/// The choices that the kernels of a call leave open, each once, in order.
std::vector<kernels::jit::TuneAsk> open_choices(OpCall& call);
/// Those of a case on a target, without a device.
std::vector<kernels::jit::TuneAsk> open_choices(const kernels::OpInfo& op,
                                                const kernels::BenchCase& one,
                                                runtime::Target target);

/// A candidate of one open choice and what is wrong with it.
struct CheckedCandidate {
  kernels::jit::TuneChoice choice;
  std::string problem;   // why it cannot run; empty: it runs
  bool differs = false;  // from the results of the standard choice: a bug of the kernel
};

/// Runs a case with every candidate of `ask`, all other choices standard, and compares the results with those of
/// the standard one byte for byte.
///
/// Errors: those of the call with the standard choice.
std::vector<CheckedCandidate> check_candidates(const kernels::OpInfo& op,
                                               const kernels::BenchCase& one,
                                               const kernels::jit::TuneAsk& ask, Device device);

/// Why a kernel of the case cannot be used with this choice on a target: it does not compile, or spills more than
/// the standard one does. Empty: it can.
std::string compile_problem(const kernels::OpInfo& op, const kernels::BenchCase& one,
                            const kernels::jit::TuneAsk& ask,
                            const kernels::jit::TuneChoice& choice, runtime::Target target);

struct TunedCase {
  std::vector<runtime::TunedEntry> entries;  // one per open choice
  std::vector<std::string> differing;        // "rows=64 ...": results of these differ
};

/// Measures every open choice of a case on the timer's device. Stores nothing.
TunedCase tune_case(const kernels::OpInfo& op, const kernels::BenchCase& one, DeviceTimer& timer,
                    const TuneRules& rules);

std::string tuned_table(const std::vector<runtime::TunedEntry>& entries);
/// An entry with all its candidates.
std::string tuned_text(const runtime::TunedEntry& entry);

/// All entries of the user's folder.
std::vector<runtime::TunedEntry> stored_entries(const runtime::Options& options);

}  // namespace tessera::tools
