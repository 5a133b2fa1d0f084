// tessera check: the program of a target on the executor with every trap on, and what it counted; what NVRTC made of
// it.

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <system_error>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "kernels/jit/target.h"
#include "kernels/op.h"
#include "runtime/nvrtc/compile.h"
#include "runtime/runtime.h"
#include "tools/lib/calls/op_check.h"
#include "tools/lib/calls/op_choice.h"
#include "tools/lib/images/bundle_maker.h"
#include "tools/lib/own_kernel.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

struct CheckOptions {
  std::string op, json, arch, cases;
  std::vector<std::string> cases_of;
  bool lines = false;
  uint64_t seed = 1;
};

int check(const CheckOptions& options) {
  const std::vector<ChosenCase> chosen = reading_arguments([&] {
    const std::vector<const kernels::OpInfo*> ops = choose_ops(program_ops(), options.op);
    if (!options.cases_of.empty()) return tools::cases_of(ops, options.cases_of);
    return choose_cases(ops, &kernels::OpInfo::examples, options.cases);
  });
  const runtime::Nvrtc* nvrtc = nullptr;
  runtime::Target target;
  std::optional<kernels::jit::TargetScope> scope;
  if (!options.arch.empty()) {
    target = reading_arguments([&] { return target_of(options.arch); });
    nvrtc = &runtime::Runtime::instance().nvrtc();
    scope.emplace(target);
  }
  const auto image_of = [&](const ir::Kernel& kernel) {
    return runtime::compile(*nvrtc, codegen::cuda::emit(codegen::lower(kernel, target)), target);
  };
  OptionalOutput json(options.json);
  std::vector<CheckResult> results;
  std::string errors;
  for (const auto& [op, example] : chosen) {
    show_progress(
        fmt::format("{} of {}: {} {}", results.size() + 1, chosen.size(), op->name, example.label));
    results.push_back(check_example(*op, example, options.seed));
    if (nvrtc != nullptr) add_resources(results.back(), *op, example, image_of);
    if (!results.back().error.empty()) errors += results.back().error + "\n";
  }
  show_progress("");
  json.write(check_json(results));
  const bool printed = print(options.lines ? access_table(results) : check_table(results));
  tell(errors);
  return printed && errors.empty() ? kOk : kFailed;
}

}  // namespace

void add_check(CLI::App& app, Command& command) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* sub = app.add_subcommand("check", "run the examples with every trap on, and count");
  sub->footer(
      "Examples:\n"
      "  tessera check all\n"
      "  tessera check transpose --lines\n"
      "  tessera check post_fwd --case-of \"T=3 n=2 H=40\"\n"
      "\n"
      "Columns:\n"
      "  moved      bytes between the caches over the least of the op; 1.00 is best\n"
      "  sectors    of 32 bytes per request to global memory\n"
      "  loads      sectors loaded over the least for the bytes asked for; 1.00 is best\n"
      "  stores     the same of stores\n"
      "  banks      wavefronts of shared memory over those without conflicts; 1.00 is best\n"
      "  barriers, shuffles, guards   how many ran\n"
      "  live       registers of a thread that hold values at a time, at most\n"
      "  registers, spilled, shared   with --arch, as the compiler says; bytes");
  sub->add_option("op", options->op, "an op, a family or all")->required();
  CLI::Option* part =
      sub->add_option("--case", options->cases, "only the cases with this text in their label");
  sub->add_option("--case-of", options->cases_of,
                  "this case instead, \"T=100 H=7168 x=bf16\"; may be given again")
      ->excludes(part)
      ->allow_extra_args(false);
  sub->add_option("--json", options->json, "write the counts to this file");
  sub->add_option("--arch", options->arch,
                  "run the program of this target, and compile it: registers, spills, shared "
                  "memory (needs NVRTC)");
  sub->add_flag("--lines", options->lines,
                "each access to memory with its line, the most wasteful first");
  // The parser takes -1 and what 64 bits do not hold for the largest.
  sub->add_option("--seed", options->seed, "of the random inputs (default 1)")
      ->check([](const std::string& word) {
        uint64_t seed = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), seed);
        const bool whole = error == std::errc() && end == word.data() + word.size();
        return whole ? std::string() : "a number of 0 to 2^64 - 1, not " + word;
      });
  sub->callback([options, &command] { command = [options] { return check(*options); }; });
}

}  // namespace tessera::tools
