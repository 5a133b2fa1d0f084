// tessera run: one op on the tensors of a file.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "kernels/jit/jit.h"
#include "kernels/op.h"
#include "kernels/signature/param_grammar.h"
#include "tools/lib/calls/op_call.h"
#include "tools/lib/own_kernel.h"
#include "tools/lib/safetensors.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

struct RunOptions {
  std::string op, in, out, device = "auto";
  std::vector<std::string> params;
  bool traps = false;
};

/// An argument error that names a parameter is wrong usage too where only the other parameters or
/// the tensors show that its value is not allowed.
template <class Fn>
void calling(const kernels::OpInfo& op, const Fn& fn) {
  try {
    fn();
  } catch (const Error& error) {
    const auto& params = op.params;
    if (error.kind() == ErrorKind::argument &&
        std::any_of(params.begin(), params.end(), [&](const kernels::ParamInfo& param) {
          return param.name == error.argument();
        })) {
      throw UsageError(error);
    }
    throw;
  }
}

int run(const RunOptions& options) {
  const kernels::OpInfo* op = nullptr;
  kernels::Params params;
  Safetensors inputs;
  reading_arguments([&] {
    op = &kernels::find_op(program_ops(), options.op);
    params = kernels::parse_params(*op, options.params);
    inputs = read_safetensors(options.in);
  });
  // A GPU that is not there is a failure, a word that names none is wrong usage.
  const Device device = [&] {
    try {
      return parse_device(options.device);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::argument) throw UsageError(error);
      throw;
    }
  }();

  AtomicFile out(options.out);
  if (device.is_cuda()) calling(*op, [&] { check_values(*op, params, inputs); });
  std::optional<OpCall> call;
  calling(*op, [&] { call.emplace(*op, params, inputs, device); });
  const auto begin = std::chrono::steady_clock::now();
  std::optional<kernels::jit::TrapScope> traps;
  if (options.traps) traps.emplace();
  calling(*op, [&] { call->run(); });
  wait_for(device);
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
  write_safetensors(out, call->results());
  const bool printed =
      print(fmt::format("{} on {}: {:.3f} ms, first call included; {} bytes of tensors\n", op->name,
                        describe(device), spent.count(), call->bytes()));
  return printed ? kOk : kFailed;
}

}  // namespace

void add_run(CLI::App& app, Command& command) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* sub = app.add_subcommand("run", "run an op on the tensors of a safetensors file");
  sub->footer(
      "Examples:\n"
      "  tessera run transpose --in x.safetensors --out y.safetensors\n"
      "  tessera run per_token_cast -p format=e4m3 -p num_per_channels=128 --in x.safetensors "
      "--out y.safetensors --device cpu");
  sub->add_option("op", options->op, "name of the op")->required();
  sub->add_option("-p,--param", options->params, "name=value, any number of times")
      ->allow_extra_args(false);
  sub->add_option("--in", options->in, "safetensors file with the inputs")->required();
  sub->add_option("--out", options->out, "safetensors file to write")->required();
  sub->add_option("--device", options->device, "auto (GPU if there is one), cpu or cuda:N");
  sub->add_flag("--traps", options->traps,
                "on the CPU: stop at the first thing that is undefined; slower");
  sub->callback([options, &command] { command = [options] { return run(*options); }; });
}

}  // namespace tessera::tools
