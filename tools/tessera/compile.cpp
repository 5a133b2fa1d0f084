// tessera compile: a bundle of kernels, made where a compiler is, for machines where none is; or the kernels of a call as C,
// for programs without Tessera.

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
#include "tools/lib/c_export/c_export.h"
#include "tools/lib/calls/op_choice.h"
#include "tools/lib/images/bundle_maker.h"
#include "tools/lib/own_kernel.h"
#include "tools/lib/tune/tuned_entries.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

struct CompileOptions {
  std::string op, specs, arch = "sm_90a", gpu, out, format = "bundle", case_of, free, name;
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

int num_jobs(const CompileOptions& options) {
  return options.jobs > 0 ? options.jobs
                          : runtime::num_jobs(runtime::Runtime::instance().options());
}

/// The one op of --format c.
const kernels::OpInfo& exported_op(const CompileOptions& options) {
  const auto chosen = choose_ops(program_ops(), options.op);
  if (chosen.size() == 1 && chosen[0]->name == options.op && options.specs.empty()) {
    return *chosen[0];
  }
  throw Error({.kind = ErrorKind::argument,
               .what = "--format c takes one op",
               .argument = "op",
               .expected = "the name of an op, and no --specs",
               .got = options.op.empty() ? "none" : fmt::format("'{}'", options.op)});
}

/// A name, case or free extent that cannot be is wrong usage; an op that cannot be exported is not.
CFiles exported(const kernels::OpInfo& op, const CExportOptions& options) {
  try {
    return export_c(op, options);
  } catch (const Error& error) {
    if (error.fields().kind != ErrorKind::argument) throw;
    throw UsageError(error);
  }
}

int compile_to_c(const CompileOptions& options, const std::vector<runtime::Target>& targets) {
  if (options.out.empty()) {
    throw UsageError(Error({.kind = ErrorKind::argument,
                            .what = "there is no folder to write to",
                            .argument = "out",
                            .expected = "a folder",
                            .got = "''"}));
  }
  const kernels::OpInfo& op = reading_arguments([&]() -> auto& { return exported_op(options); });
  CExportOptions of_export{options.name, options.case_of, options.free, targets};
  of_export.jobs = num_jobs(options);
  if (!options.gpu.empty()) {
    of_export.model = reading_arguments([&] { return tuned_model(options.gpu); });
  }
  const std::string path =
      fmt::format("{}/{}", options.out, options.name.empty() ? op.name : options.name);
  for (const char* ending : {".h", ".c"}) {
    reading_arguments([&] { check_replaceable(path + ending); });
  }
  AtomicFile header(path + ".h"), source(path + ".c");
  const CFiles files = exported(op, of_export);
  header.write(files.header);
  source.write(files.source);
  header.commit();
  source.commit();
  return print(fmt::format("{0}.h, {0}.c: {1} kernels for {2} target{3}\n", path, files.num_kernels,
                           targets.size(), targets.size() == 1 ? "" : "s"))
             ? kOk
             : kFailed;
}

int compile_to_bundle(const CompileOptions& options, const std::vector<runtime::Target>& targets) {
  const std::vector<Wanted> wanted = reading_arguments([&] { return wanted_by(options, targets); });
  warn_about_other_programs(wanted);
  // A bundle that a group or others could write would not be used.
  AtomicFile out(options.out, S_IWGRP | S_IWOTH);
  std::mutex mutex;
  Compiled compiled = compile_all(wanted, num_jobs(options), [&](size_t done, size_t total) {
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

/// Throws for an option that only --format c has.
void check_bundle_options(const CompileOptions& options) {
  for (const auto& [name, value] :
       {std::pair("case-of", &options.case_of), std::pair("free", &options.free),
        std::pair("name", &options.name)}) {
    if (value->empty()) continue;
    throw Error({.kind = ErrorKind::argument,
                 .what = fmt::format("--{} goes with --format c", name),
                 .argument = name,
                 .expected = "no such option for a bundle",
                 .got = fmt::format("'{}'", *value)});
  }
}

int compile(const CompileOptions& options) {
  const std::vector<runtime::Target> targets =
      reading_arguments([&] { return parse_targets(options.arch); });
  if (options.format == "c") return compile_to_c(options, targets);
  reading_arguments([&] { check_bundle_options(options); });
  return compile_to_bundle(options, targets);
}

}  // namespace

void add_compile(CLI::App& app, Command& command) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App* sub =
      app.add_subcommand("compile", "kernels ahead of time into a bundle or C, no GPU needed");
  sub->footer(
      "Examples:\n"
      "  tessera compile all --arch sm_90a,sm_100a --out kernels.tsb\n"
      "  tessera compile --specs recorded.jsonl --out kernels.tsb\n"
      "  tessera compile all --gpu H200 --out kernels.tsb\n"
      "  tessera compile transpose --format c --case-of \"R=64 C=128 x=bf16\" --out src\n"
      "  tessera compile per_token_cast --format c --free T --arch sm_80,sm_90a --out src");
  sub->add_option("op", options->op, "an op, a family or all (default, unless --specs)");
  sub->add_option("--specs", options->specs, "the kernels that TESSERA_RECORD wrote to this file");
  sub->add_option("--arch", options->arch, "targets with commas between (default sm_90a)");
  sub->add_option(
      "--gpu", options->gpu,
      "with the tile sizes that `tessera tune` stored for this model (part of its name)");
  sub->add_option("--out", options->out,
                  "the bundle; with --format c the folder of NAME.h and NAME.c")
      ->required();
  sub->add_option(
         "--format", options->format,
         "bundle (default), or c: the launches of one call as a header and a source, which need "
         "nothing of Tessera")
      ->check(CLI::IsMember({"bundle", "c"}));
  sub->add_option(
      "--case-of", options->case_of,
      "with --format c: the call, \"T=100 H=7168 x=bf16\" (default: the op's first example)");
  sub->add_option(
      "--free", options->free,
      "with --format c: T or P, the number of tokens that the function takes any value of");
  sub->add_option("--name", options->name,
                  "with --format c: of the function and the files (default: that of the op)");
  sub->add_option("-j,--jobs", options->jobs, "compiles side by side (default TESSERA_JOBS)")
      ->check(CLI::Range(1, 256));
  sub->callback([options, &command] { command = [options] { return compile(*options); }; });
}

}  // namespace tessera::tools
