// tessera compile: a bundle of kernels, made where a compiler is, for machines where none is.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "runtime/cache/bundle.h"
#include "runtime/code_stamp.h"
#include "runtime/options.h"
#include "runtime/parallel.h"
#include "runtime/runtime.h"
#include "tools/lib/calls/op_choice.h"
#include "tools/lib/images/bundle_maker.h"
#include "tools/lib/own_kernel.h"
#include "tools/lib/tune/tuned_entries.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

struct CompileOptions {
  std::string op, specs, arch = "sm_90a", gpu, out;
  int jobs = 0;
};

std::vector<Wanted> wanted_by(const CompileOptions& options,
                              const std::vector<runtime::Target>& targets) {
  std::vector<Wanted> wanted;
  const auto add = [&](const std::vector<runtime::KernelRequest>& requests,
                       runtime::Target target) {
    for (const runtime::KernelRequest& request : requests) wanted.push_back({request, target});
  };
  if (options.specs.empty() || !options.op.empty()) {
    const std::string op = options.op.empty() ? "all" : options.op;
    std::vector<kernels::jit::GpuModel> models = {{}};  // the standard choices are always there
    if (!options.gpu.empty()) models.push_back(tuned_model(options.gpu));
    for (const kernels::OpInfo* chosen : choose_ops(program_ops(), op)) {
      for (const runtime::Target target : targets) {
        for (const auto& model : models) add(requests_of(*chosen, target, model), target);
      }
    }
  }
  // The first of two kernels with one key is kept: that of this build and not of a recording.
  if (!options.specs.empty()) {
    const std::vector<runtime::KernelRequest> recorded = requests_in(options.specs);
    for (const runtime::Target target : targets) add(recorded, target);
  }
  return wanted;
}

void warn_about_other_programs(const std::vector<Wanted>& wanted) {
  std::set<std::string> codes;
  for (const auto& [request, target] : wanted) {
    if (!request.code.empty() && request.code != runtime::code_stamp()) codes.insert(request.code);
  }
  for (const std::string& code : codes) {
    tell(
        fmt::format("tessera: some kernels were recorded by another build (code {}); the bundle "
                    "serves them to that build\n",
                    code.substr(0, 16)));
  }
}

int compile(const CompileOptions& options) {
  const std::vector<runtime::Target> targets =
      reading_arguments([&] { return parse_targets(options.arch); });
  const std::vector<Wanted> wanted = reading_arguments([&] { return wanted_by(options, targets); });
  warn_about_other_programs(wanted);
  const int jobs =
      options.jobs > 0 ? options.jobs : runtime::num_jobs(runtime::Runtime::instance().options());
  // A bundle that a group or others could write would not be used.
  AtomicFile out(options.out, S_IWGRP | S_IWOTH);
  std::mutex mutex;
  Compiled compiled = compile_all(wanted, jobs, [&](size_t done, size_t total) {
    const std::lock_guard lock(mutex);
    show_progress(fmt::format("{} of {} kernels", done, total));
  });
  show_progress("");
  for (const std::string& problem : compiled.left_out) tell(problem + "\n");
  if (compiled.items.empty()) {
    throw Error({.kind = ErrorKind::unsupported,
                 .what = "no target can have any of the kernels",
                 .got = options.arch});
  }
  std::set<std::string> kernels;
  for (const runtime::BundleItem& item : compiled.items) kernels.insert(item.kernel.hex);
  const std::string bytes = runtime::encode_bundle(std::move(compiled.items));
  out.write(bytes);
  out.commit();
  return print(fmt::format("{}: {} kernels for {} target{}, {} bytes\n", options.out,
                           kernels.size(), targets.size(), targets.size() == 1 ? "" : "s",
                           bytes.size()))
             ? kOk
             : kFailed;
}

}  // namespace

void add_compile(CLI::App& app, Command& command) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App* sub =
      app.add_subcommand("compile", "kernels ahead of time into a bundle, no GPU needed");
  sub->footer(
      "Examples:\n"
      "  tessera compile all --arch sm_90a,sm_100a --out kernels.tsb\n"
      "  tessera compile --specs recorded.jsonl --out kernels.tsb\n"
      "  tessera compile all --gpu H200 --out kernels.tsb");
  sub->add_option("op", options->op, "an op, a family or all (default, unless --specs)");
  sub->add_option("--specs", options->specs, "the kernels that TESSERA_RECORD wrote to this file");
  sub->add_option("--arch", options->arch, "targets with commas between (default sm_90a)");
  sub->add_option(
      "--gpu", options->gpu,
      "with the tile sizes that `tessera tune` stored for this model (part of its name)");
  sub->add_option("--out", options->out, "the bundle")->required();
  sub->add_option("-j,--jobs", options->jobs, "compiles side by side (default TESSERA_JOBS)")
      ->check(CLI::Range(1, 256));
  sub->callback([options, &command] { command = [options] { return compile(*options); }; });
}

}  // namespace tessera::tools
