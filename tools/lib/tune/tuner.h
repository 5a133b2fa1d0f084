#pragma once
// `tessera tune`: the tile sizes that an op leaves open for a case, and the fastest ones on a GPU.

#include <string>
#include <vector>

#include "kernels/jit/target.h"
#include "kernels/jit/tune.h"
#include "kernels/jit/tune_run.h"
#include "kernels/op.h"
#include "runtime/nvrtc/target.h"
#include "tools/lib/calls/op_choice.h"

namespace tessera::tools {

/// The choices that the kernels of a case leave open on a target, each once, in order, without a device.
std::vector<kernels::jit::TuneAsk> open_choices(const kernels::OpInfo& op,
                                                const kernels::BenchCase& one,
                                                runtime::Target target);

/// An open choice and its answer.
struct MadeChoice {
  kernels::jit::TuneAsk ask;
  kernels::jit::Chosen chosen;
};
/// The entries that the kernels of a case take from the databases on a GPU model; without a model the standard choices.
std::vector<MadeChoice> made_choices(const kernels::OpInfo& op, const kernels::BenchCase& one,
                                     runtime::Target target,
                                     const kernels::jit::GpuModel& model = {});

/// Which candidates are measured.
enum class Prune { none, needless };

/// Tunes the kernels of a case, on random values (jit::tune::run), of the candidates those that tune_prune.h leaves.
///
/// Errors: those of the call with the standard choices; driver.
kernels::jit::TuneReport tune_case(const kernels::OpInfo& op, const kernels::BenchCase& one,
                                   Device device, kernels::jit::TuneOptions options = {},
                                   Prune prune = Prune::none);

/// The case with other values of parameters, "name=value" each, and these in its label.
///
/// Errors: argument, those of kernels::parse_params.
kernels::BenchCase with_params(const kernels::OpInfo& op, kernels::BenchCase one,
                               const std::vector<std::string>& assignments);

/// The examples and benchmark cases, for any number of tokens, of which a recording (TESSERA_RECORD) holds a
/// tunable kernel. `unknown` gets a line for each op whose recorded kernels are of none of them.
///
/// Errors: argument, those of requests_in.
std::vector<ChosenCase> cases_in(const std::string& path, const std::vector<kernels::OpInfo>& ops,
                                 runtime::Target target, std::vector<std::string>& unknown);

}  // namespace tessera::tools
