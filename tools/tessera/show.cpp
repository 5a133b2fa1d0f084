// tessera show: what becomes of an op's kernels, stage by stage.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "dsl/base/nearest_name.h"
#include "dsl/ir/tile.h"
#include "kernels/jit/target.h"
#include "kernels/op.h"
#include "kernels/signature/param_grammar.h"
#include "runtime/driver/device.h"
#include "runtime/nvrtc/compile.h"
#include "runtime/options.h"
#include "runtime/runtime.h"
#include "tools/lib/calls/example.h"
#include "tools/lib/images/bundle_maker.h"
#include "tools/lib/images/disassemble.h"
#include "tools/lib/own_kernel.h"
#include "tools/lib/tune/tuned_entries.h"
#include "tools/lib/tune/tuner.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

constexpr std::string_view kAfter = "after:";

constexpr std::array kStages = {"ir", "layout", "thread", "cuda", "ptx", "sass", "explain"};

/// Every value of --stage.
std::vector<std::string> stages() {
  std::vector<std::string> result(kStages.begin(), kStages.end());
  for (const std::string_view pass : codegen::pass_names()) {
    result.push_back(fmt::format("{}{}", kAfter, pass));
  }
  return result;
}

/// Says why `word` is no stage; "" if it is one. Names one pass at most: --help lists all.
std::string stage_problem(const std::string& word) {
  const std::vector<std::string> known = stages();
  if (std::find(known.begin(), known.end(), word) != known.end()) return "";
  const std::string hint = did_you_mean(word, known);
  return fmt::format("unknown stage '{}', expected {} or {}PASS{}", word, fmt::join(kStages, ", "),
                     kAfter, hint.empty() ? "" : "; " + hint);
}

struct ShowOptions {
  std::string op, in, stage = "cuda", arch, gpu;
  bool full = false;
  std::vector<std::string> params;
};

/// --arch, else the switch or the device's target, else sm_90a.
runtime::Target chosen_target(const ShowOptions& options) {
  if (options.arch.empty()) {
    runtime::Runtime& runtime = runtime::Runtime::instance();
    if (runtime::num_devices() > 0) return runtime.target_for(runtime::device_info(0));
    return runtime::parse_target(runtime.options().arch).value_or(runtime::Target{9, 0, 'a'});
  }
  return reading_arguments([&] { return target_of(options.arch); });
}

/// The notes of explain(), equal ones of a section once: "note (x 3)". Titles are not indented.
std::string folded(const std::string& notes) {
  std::vector<std::string> lines;
  std::istringstream all(notes);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  std::string text;
  for (size_t begin = 0; begin < lines.size();) {
    size_t end = begin + 1;
    while (end < lines.size() && lines[end].starts_with(' ')) ++end;
    std::map<std::string, size_t> times;
    for (size_t i = begin; i < end; ++i) ++times[lines[i]];
    for (size_t i = begin; i < end; ++i) {
      const size_t equal = std::exchange(times[lines[i]], 0);
      if (equal == 0) continue;  // counted where it came first
      text += lines[i] + (equal > 1 ? fmt::format(" (x {})", equal) : "") + "\n";
    }
    begin = end;
  }
  return text;
}

std::string show_stage(const ir::Kernel& kernel, const ShowOptions& options,
                       const runtime::Target& target) {
  const std::string& stage = options.stage;
  if (stage == "ir") return ir::to_string(kernel);
  if (stage == "layout") return codegen::draw_layouts(kernel, target);
  if (stage == "explain") return folded(codegen::explain(kernel, target));
  if (stage.starts_with(kAfter)) {
    return codegen::text_after(kernel, stage.substr(kAfter.size()), target);
  }
  const codegen::Program program = codegen::lower(kernel, target);
  if (stage == "thread") return codegen::to_string(program);
  if (stage == "cuda" && !options.full) return codegen::cuda::emit_kernel_text(program);
  const KernelSource source = codegen::cuda::emit(program);
  if (stage == "cuda") return source.text;
  const runtime::Nvrtc& nvrtc = runtime::Runtime::instance().nvrtc();
  if (stage == "ptx") return runtime::compile_to_ptx(nvrtc, source, target);
  const runtime::Image image = runtime::compile(nvrtc, source, target);
  return fmt::format("// {}: {} registers, {} bytes spilled, {} bytes of static shared memory\n{}",
                     runtime::to_string(target), image.resources.registers,
                     image.resources.spill_bytes, image.resources.static_shared,
                     disassemble(image.cubin));
}

/// --gpu; without it none, and the kernels have their own rules' tile sizes.
kernels::jit::GpuModel chosen_model(const ShowOptions& options) {
  if (options.gpu.empty()) return {};
  return reading_arguments([&] { return tuned_model(options.gpu); });
}

/// Where the tile sizes came from.
std::string text_of(const std::vector<MadeChoice>& choices) {
  std::string text;
  for (const MadeChoice& one : choices) {
    text += fmt::format("// tile sizes of {}: {} ({})\n", one.ask.op,
                        runtime::to_string(named(*one.ask.space, one.chosen.choice)),
                        name(one.chosen.source));
  }
  return text;
}

int show(const ShowOptions& options) {
  const kernels::OpInfo* op = nullptr;
  std::vector<ir::Kernel> shown;
  std::string which, text;
  reading_arguments([&] { op = &kernels::find_op(program_ops(), options.op); });
  const runtime::Target target = chosen_target(options);
  const kernels::jit::TargetScope scope(target);
  if (options.in.empty()) {
    const kernels::BenchCase& example = reading_arguments(
        [&]() -> const kernels::BenchCase& { return find_example(*op, options.params); });
    which = "example " + example.label;
    const std::vector<MadeChoice> choices =
        made_choices(*op, example, target, chosen_model(options));
    const kernels::jit::TuneScope made([&](const kernels::jit::TuneAsk& ask) {
      const auto found = std::find_if(choices.begin(), choices.end(),
                                      [&](const MadeChoice& one) { return is_same(one.ask, ask); });
      return found == choices.end() ? std::nullopt : std::optional(found->chosen.choice);
    });
    shown = kernels_of(*op, example);
    if (options.stage == "explain") text = text_of(choices);
  } else {
    kernels::Params params;
    Safetensors inputs;
    reading_arguments([&] {
      params = kernels::parse_params(*op, options.params);
      inputs = read_safetensors(options.in);
    });
    which = options.in;
    shown = kernels_of(*op, params, inputs);
  }
  if (shown.empty())
    text += fmt::format("// {} for {}: empty, nothing to launch\n", op->name, which);
  for (const ir::Kernel& kernel : shown) {
    text += fmt::format("// {} for {}, stage {}\n", kernel.name, which, options.stage);
    text += show_stage(kernel, options, target);
    if (text.back() != '\n') text += '\n';
  }
  return print(text) ? kOk : kFailed;
}

}  // namespace

void add_show(CLI::App& app, Command& command) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* sub = app.add_subcommand("show", "an op's kernels as IR, CUDA, PTX, SASS, ...");
  sub->footer(
      "Examples:\n"
      "  tessera show transpose\n"
      "  tessera show per_token_cast -p num_per_channels=32 --stage explain\n"
      "  tessera show transpose --stage layout");
  sub->add_option("op", options->op, "name of the op")->required();
  sub->add_option("-p,--param", options->params, "name=value: picks the example, or goes with --in")
      ->allow_extra_args(false);
  sub->add_option("--in", options->in, "safetensors file: the kernels for its tensors");
  sub->add_option("--stage", options->stage,
                  "ir, layout, thread, cuda (default), ptx, sass, explain; after:PASS, what a pass "
                  "of lowering leaves behind")
      ->check(CLI::Validator(stage_problem, fmt::format("{{{}}}", fmt::join(stages(), ","))));
  sub->add_flag("--full", options->full,
                "with --stage cuda: the device functions too, a text that NVRTC compiles");
  sub->add_option("--arch", options->arch,
                  "target that the kernel is lowered and compiled for, such as sm_90a");
  sub->add_option(
         "--gpu", options->gpu,
         "with the tile sizes that `tessera tune` stored for this model (part of its name); "
         "--stage explain says where they are from")
      ->excludes("--in");
  sub->callback([options, &command] { command = [options] { return show(*options); }; });
}

}  // namespace tessera::tools
