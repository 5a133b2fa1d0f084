// tessera bench: GPU times against the copy rate and the peer, host launch cost, compile cost.
//
// Without a GPU: one message and exit code 1, or, with --skip-without-gpu (for test runs),
// "SKIPPED: ..." and 0.
// --compile needs no GPU.

#include "tools/lib/bench/bench.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "runtime/driver/device.h"
#include "runtime/runtime.h"
#include "tools/lib/bench/cold_start.h"
#include "tools/lib/bench/compile_cost.h"
#include "tools/lib/bench/measured.h"
#include "tools/lib/calls/op_choice.h"
#include "tools/lib/images/bundle_maker.h"
#include "tools/lib/own_kernel.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

struct BenchOptions {
  std::string op = "all", cases, json, peer, record, against, arch = "sm_90a";
  bool launch = false, compile = false, cold = false, skip_without_gpu = false;
  std::optional<double> fail_at;
  std::vector<std::string> cases_of;
};

[[noreturn]] void fail_without_gpu() {
  throw Error({.kind = ErrorKind::unsupported,
               .what = "bench needs a GPU",
               .expected = "a CUDA device",
               .got = runtime::why_no_device()});
}

PeerTimes load_peer(const BenchOptions& options) {
  if (!options.peer.empty()) return PeerTimes::load(options.peer);
  const char* folder = std::getenv("TESSERA_PEER_DIR");
  return folder == nullptr || *folder == '\0' ? PeerTimes() : PeerTimes::load(folder);
}

void check_factor(const BenchOptions& options) {
  if (!options.fail_at || *options.fail_at > 0) return;  // NaN is not
  throw UsageError(Error({.kind = ErrorKind::argument,
                          .what = "argument 'fail-at' has a wrong value",
                          .argument = "fail-at",
                          .expected = "a number above 0: times the limit",
                          .got = fmt::format("{}", *options.fail_at)}));
}

int bench_compile(const BenchOptions& options) {
  check_factor(options);
  std::vector<const kernels::OpInfo*> chosen;
  runtime::Target target;
  reading_arguments([&] {
    chosen = choose_ops(program_ops(), options.op);
    target = target_of(options.arch);
  });
  OptionalOutput json(options.json);
  const runtime::Nvrtc& nvrtc = runtime::Runtime::instance().nvrtc();
  std::vector<CompileCost> costs;
  for (const kernels::OpInfo* op : chosen) {
    for (const kernels::BenchCase* example : representatives(*op)) {
      show_progress(fmt::format("{} {}", op->name, example->label));
      for (CompileCost& cost : compile_costs(*op, *example, nvrtc, target, options.fail_at)) {
        costs.push_back(std::move(cost));
      }
    }
  }
  show_progress("");
  json.write(compile_json(costs));
  const auto above = [&](double share) {
    return std::count_if(costs.begin(), costs.end(),
                         [&](const CompileCost& cost) { return cost.share_of_limit() > share; });
  };
  const bool printed =
      print(fmt::format("{}, {}: CPU time per kernel, {}; {} of {} kernels over their limit\n\n{}",
                        nvrtc.describe(), runtime::to_string(target),
                        options.fail_at ? "once where that is far below the limit" : "median of 5",
                        above(1), costs.size(), compile_table(costs)));
  const double tolerated = options.fail_at.value_or(std::numeric_limits<double>::infinity());
  const auto failing = above(tolerated);
  if (failing > 0) {
    tell(fmt::format("tessera: {} of {} kernels take more than {} times their limit\n", failing,
                     costs.size(), tolerated));
  }
  return printed && failing == 0 ? kOk : kFailed;
}

// Whether there is a GPU, asked in another process: this one must stay without a driver.
bool has_gpu() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(runtime::num_devices() > 0 ? 0 : 1);
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

int bench_cold(const BenchOptions& options) {
  const std::vector<const kernels::OpInfo*> chosen =
      reading_arguments([&] { return choose_ops(program_ops(), options.op); });
  const runtime::Target target = reading_arguments([&] { return target_of(options.arch); });
  OptionalOutput json(options.json);
  const bool on_gpu = has_gpu();
  std::vector<ColdStart> costs;
  for (const kernels::OpInfo* op : chosen) {
    if (op->examples.empty()) continue;
    show_progress(fmt::format("{} {}", op->name, op->examples.front().label));
    costs.push_back(cold_start(*op, op->examples.front(), on_gpu, target));
  }
  show_progress("");
  json.write(cold_json(costs));
  const char* what = on_gpu ? "first call of a process until it is done"
                            : "no GPU: first kernel of a process, up to its cubin";
  return print(fmt::format("{}, median of 3\n\n{}", what, cold_table(costs))) ? kOk : kFailed;
}

int bench(const BenchOptions& options) {
  if (options.compile) return bench_compile(options);
  if (options.cold) return bench_cold(options);
  const std::vector<const kernels::OpInfo*> chosen =
      reading_arguments([&] { return choose_ops(program_ops(), options.op); });
  const std::vector<ChosenCase> cases = reading_arguments([&] {
    return options.cases_of.empty() ? choose_cases(chosen, &kernels::OpInfo::bench, options.cases)
                                    : tools::cases_of(chosen, options.cases_of);
  });
  const PeerTimes peer = reading_arguments([&] { return load_peer(options); });
  if (!peer.unread().empty()) {
    tell(fmt::format(
        "tessera: {} lines of the peer's times are no cases of our ops, the first:\n{}\n",
        peer.unread().size(), peer.unread().front()));
  }
  const PeerTimes before = reading_arguments(
      [&] { return options.against.empty() ? PeerTimes() : PeerTimes::load(options.against); });
  if (runtime::num_devices() == 0) {
    if (!options.skip_without_gpu) fail_without_gpu();
    return print(fmt::format("SKIPPED: no CUDA device ({})\n", runtime::why_no_device())) ? kOk
                                                                                          : kFailed;
  }
  OptionalOutput json(options.json), record(options.record);
  constexpr int kDevice = 0;
  runtime::DeviceTimer timer(kDevice);  // first: CUPTI wants to see the context being made
  const BenchMachine machine = bench_machine(timer);
  std::vector<BenchResult> results;
  std::vector<LaunchCost> costs;
  CopyRate copy(timer);
  StreamTime stream(timer);
  if (options.launch) {
    for (const kernels::OpInfo* op : chosen) {
      if (op->examples.empty()) continue;
      costs.push_back(launch_cost(*op, op->examples.front(), kDevice));
    }
  } else {
    for (const auto& [op, one] : cases) {
      show_progress(fmt::format("{} {}", op->name, one.label));
      results.push_back(bench_case(*op, one, timer, copy, stream, peer));
      results.back().before_us = before.find(*op, one);
    }
  }
  show_progress("");
  json.write(bench_json(machine, results, costs));
  record.write(
      run_line(machine.device, fmt::format("tessera bench {} --record FILE", options.op), results) +
      bench_record(results));
  std::string text = fmt::format("{}, driver {}, NVRTC {}, times from {}\n\n", machine.device,
                                 machine.driver, machine.nvrtc, machine.method);
  text += options.launch ? launch_table(costs) : bench_table(results);
  if (!options.against.empty()) text += "\n" + slower_text(results);
  const bool got_slower = std::any_of(results.begin(), results.end(),
                                      [](const BenchResult& r) { return r.is_slower(); });
  return print(text) && !got_slower ? kOk : kFailed;
}

}  // namespace

void add_bench(CLI::App& app, Command& command) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* sub = app.add_subcommand("bench", "GPU time against copy rate and peer");
  sub->footer(
      "Examples:\n"
      "  tessera bench per_token_cast\n"
      "  tessera bench all --json bench.json --record times.jsonl\n"
      "  tessera bench all --against tools/measured/h200.jsonl\n"
      "  tessera bench quant --compile");
  sub->add_option("op", options->op, "an op, a family or all (default)");
  sub->add_option("--json", options->json, "write the numbers to this file");
  sub->add_option("--peer", options->peer,
                  "peer times: a JSON-lines file or a folder (default: TESSERA_PEER_DIR)");
  CLI::Option* launch =
      sub->add_flag("--launch", options->launch, "host time of a call instead of GPU time");
  CLI::Option* compile = sub->add_flag("--compile", options->compile,
                                       "CPU time of lowering and NVRTC per kernel, no GPU");
  CLI::Option* cold = sub->add_flag(
      "--cold", options->cold, "the first call of a process, with an empty and with a warm cache");
  CLI::Option* part =
      sub->add_option("--case", options->cases, "only the cases with this text in their label")
          ->excludes(launch)
          ->excludes(compile)
          ->excludes(cold);
  sub->add_option("--case-of", options->cases_of,
                  "this case instead, \"T=100 H=7168 x=bf16\"; may be given again")
      ->excludes(part)
      ->excludes(launch)
      ->excludes(compile)
      ->excludes(cold)
      ->allow_extra_args(false);
  sub->add_option("--record", options->record,
                  "write a line of JSON with the time of each case to this file")
      ->excludes(launch)
      ->excludes(compile)
      ->excludes(cold);
  sub->add_option("--against", options->against,
                  "say what got slower than in this file of --record, and fail if something did")
      ->excludes(launch)
      ->excludes(compile)
      ->excludes(cold);
  sub->add_option("--arch", options->arch,
                  "target of --compile, and of --cold without a GPU (default sm_90a)");
  sub->add_option("--fail-at", options->fail_at,
                  "with --compile: fail if a kernel takes more than so many times its limit")
      ->needs(compile);
  sub->add_flag("--skip-without-gpu", options->skip_without_gpu,
                "without a GPU say SKIPPED and succeed");
  sub->callback([options, &command] { command = [options] { return bench(*options); }; });
}

}  // namespace tessera::tools
