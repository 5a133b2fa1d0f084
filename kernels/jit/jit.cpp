#include "kernels/jit/jit.h"

#include <fmt/format.h>
#include <pthread.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "codegen/cpu/executor.h"
#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "kernels/jit/count_scope.h"
#include "kernels/jit/op_table.h"
#include "kernels/jit/plan.h"
#include "kernels/jit/prepared.h"
#include "runtime/cache/sha256.h"
#include "runtime/runtime.h"

namespace tessera::kernels::jit {
namespace {

// More Specs of one op than this are rarely meant: "one kernel per number of tokens" is the usual
// cause.
constexpr int kManySpecs = 64;

struct Known {
  OpTable<Prepared> table;
  std::mutex mutex;                      // of num_specs
  std::map<std::string, int> num_specs;  // per op
};

Known& known();

void before_fork() {
  known().table.before_fork();
  known().mutex.lock();
}
void after_fork() {
  known().mutex.unlock();
  known().table.after_fork();
}

Known& known() {
  static auto* made = [] {
    pthread_atfork(before_fork, after_fork, after_fork);
    return new Known;  // lives as long as the process: kernels stay loaded
  }();
  return *made;
}
// Before there are threads: a child of fork would wait for ever for a thread that was making it.
[[maybe_unused]] const Known& made_at_the_start = known();

thread_local int trap_depth = 0;

Device device_of(std::string_view op, std::span<const TensorView> tensors) {
  const TensorView* first = nullptr;
  for (const TensorView& view : tensors) {
    if (is_absent(view)) continue;
    if (!first) first = &view;
    if (view.device == first->device) continue;
    throw Error({.kind = ErrorKind::argument,
                 .op = std::string(op),
                 .what = "the tensors are on different devices",
                 .expected = fmt::format("all on {}, like the first", to_string(first->device)),
                 .got = fmt::format("{} on {}", to_string(view), to_string(view.device))});
  }
  return first ? first->device : Device::cpu();
}

std::vector<DType> slot_types_of(const ir::Kernel& kernel) {
  std::vector<DType> types;
  for (const auto* vars : {&kernel.dims, &kernel.scalars}) {
    for (const ir::VarRef& var : *vars) {
      TESSERA_CHECK(!is_float(var->type) || var->type == DType::f32,
                    kernel.name + ": float scalars are f32");
      types.push_back(var->type);
    }
  }
  return types;
}

void run_on_cpu(const Prepared& prepared, const Binding& binding,
                std::span<const TensorView> tensors) {
  std::vector<codegen::cpu::Argument> arguments;
  for (const TensorView& view : tensors) {
    arguments.emplace_back().tensor = view;
  }
  for (size_t i = 0; i < prepared.slot_types.size(); ++i) {
    const int64_t value = binding.slots[i];
    codegen::cpu::Argument& argument = arguments.emplace_back();
    argument.integer = value;
    if (prepared.slot_types[i] == DType::f32) {
      argument.number = std::bit_cast<float>(static_cast<int32_t>(value));
    }
  }
  codegen::cpu::Options options;
  options.traps = trap_depth > 0;
  options.reported = prepared.reported.get();
  KernelCounts counted{prepared.program->program().name, {}, {}};
  CountScope* scope = CountScope::active();
  if (scope) {
    options.counts = &counted.counts;
    options.accesses = &counted.accesses;
  }
  prepared.program->run(arguments, options);
  if (scope) scope->add(std::move(counted));
}

void run_on_gpu(const Prepared& prepared, Binding& binding, std::span<const TensorView> tensors,
                Stream stream) {
  // The driver reads as many bytes as the parameter has: the low ones, on a little-endian host.
  std::array<void*, kMaxArguments> data;
  std::array<void*, kMaxArguments> arguments;
  const size_t num_tensors = tensors.size();
  for (size_t t = 0; t < num_tensors; ++t) {
    data[t] = tensors[t].data;
    arguments[t] = &data[t];
  }
  for (size_t i = 0; i < prepared.slot_types.size(); ++i) {
    arguments[num_tensors + i] = &binding.slots[i];
  }
  const auto [x, y, z] = binding.grid;
  runtime::launch(*prepared.on_device, {x, y, z}, arguments.data(), stream,
                  prepared.plan.streamed(tensors));
}

void finish_call(const Prepared& prepared, Binding& binding, std::span<const TensorView> tensors,
                 Stream stream) {
  const CallMode& mode = call_mode();
  if (binding.empty) return;
  if (mode.recorder) mode.recorder->add(prepared, binding, tensors);
  if (mode.until != CallMode::Until::done) return;
  if (prepared.device.is_cuda()) {
    run_on_gpu(prepared, binding, tensors, stream);
  } else {
    run_on_cpu(prepared, binding, tensors);
  }
}

void count_spec(const std::string& op) {
  {
    const std::lock_guard lock(known().mutex);
    if (++known().num_specs[op] != kManySpecs) return;
  }
  runtime::Runtime::instance().warn_once(
      "specs " + op, fmt::format("{}: {} different kernels in this process; something that varies "
                                 "from call to call is part of its Spec",
                                 op, kManySpecs));
}

// The binary came by its key, from this process or from disk: its parameters must be those of the
// plan.
void check_parameters(const Plan& plan, const runtime::Image& image) {
  const std::vector<std::string> names = plan.parameter_names();
  TESSERA_CHECK(names.size() == image.params.size() && names.size() <= kMaxArguments,
                plan.op() + ": the compiled kernel has other parameters than its declaration");
}

/// How a kernel gets to a device: as one of an op's (its Spec names it) or as a user's own (its
/// text does).
struct Kind {
  bool is_shipped = true;
};

runtime::KernelRequest request_for(std::string_view op, const std::string& spec,
                                   const ir::Kernel& kernel, Kind kind) {
  runtime::KernelRequest request;
  request.op = op;
  if (kind.is_shipped) request.spec = kernel.name + '\0' + spec;
  request.emit = [op = std::string(op), kernel] {
    KernelSource source = codegen::cuda::emit(codegen::lower(kernel));
    source.op = op;
    return source;
  };
  request.stop = call_mode().stop;
  return request;
}

std::unique_ptr<Prepared> make_prepared(std::string_view op, const std::string& spec, Device device,
                                        const ir::Kernel& kernel, Plan plan, Stream stream,
                                        Kind kind) {
  auto prepared = std::make_unique<Prepared>(Prepared{std::string(op),
                                                      spec,
                                                      device,
                                                      std::move(plan),
                                                      slot_types_of(kernel),
                                                      {},
                                                      {},
                                                      kernel.reports});
  if (!device.is_cuda()) {
    prepared->reported = std::make_shared<std::atomic<int>>(0);
    codegen::Program program = codegen::lower(kernel);
    runtime::Runtime& runtime = runtime::Runtime::instance();
    if (!runtime.options().dump_dir.empty()) {
      KernelSource source = codegen::cuda::emit(program);
      source.op = op;
      runtime.dump(source);
    }
    prepared->program.emplace(std::move(program));
    return prepared;
  }
  const runtime::KernelRequest request = request_for(op, spec, kernel, kind);
  prepared->on_device = runtime::Runtime::instance().load(request, device.ordinal, stream);
  check_parameters(prepared->plan, *prepared->on_device->image);
  return prepared;
}

void run_kernel(std::string_view op, const std::string& spec,
                const std::function<ir::Kernel()>& build, std::span<const TensorView> tensors,
                std::span<const int64_t> scalars, Stream stream, Kind kind) {
  const Device device = device_of(op, tensors);
  const bool is_named_only = call_mode().until == CallMode::Until::named;
  if (const Prepared* prepared = is_named_only ? nullptr : known().table.find(op, spec, device)) {
    Binding binding = prepared->plan.bind(tensors, scalars);
    finish_call(*prepared, binding, tensors, stream);
    return;
  }
  const ir::Kernel kernel = build();
  Plan plan(std::string(op), kernel);
  Binding binding = plan.bind(tensors, scalars);
  if (binding.empty) return;  // nothing to compile for
  if (is_named_only) {
    call_mode().named->push_back(request_for(op, spec, kernel, kind));
    return;
  }
  const runtime::StoreLater after_the_launch;
  auto made = make_prepared(op, spec, device, kernel, std::move(plan), stream, kind);
  const Prepared* const candidate = made.get();
  const Prepared& prepared = known().table.insert(std::move(made));
  if (&prepared == candidate && device.is_cuda()) count_spec(prepared.op);
  finish_call(prepared, binding, tensors, stream);
}

}  // namespace

void run(std::string_view op, const std::string& spec, const std::function<ir::Kernel()>& build,
         std::span<const TensorView> tensors, std::span<const int64_t> scalars, Stream stream) {
  run_kernel(op, spec, build, tensors, scalars, stream, {.is_shipped = true});
}

struct Function::State {
  ir::Kernel kernel;
  std::string spec;  // of the process's table: no op has one like it
};

Function::Function(ir::Kernel kernel) {
  const KernelSource source = codegen::cuda::emit(codegen::lower(kernel));
  // The CUDA text says what runs, the kernel's own text what the host checks.
  const std::string digest = runtime::to_hex(runtime::sha256(source.text + ir::to_string(kernel)));
  state_ = std::make_shared<const State>(State{std::move(kernel), "text " + digest});
}

void Function::operator()(std::span<const TensorView> tensors, std::span<const int64_t> scalars,
                          Stream stream) const {
  run_kernel(state_->kernel.name, state_->spec, [&] { return state_->kernel; }, tensors, scalars,
             stream, {.is_shipped = false});
}

void run(const ir::Kernel& kernel, std::span<const TensorView> tensors,
         std::span<const int64_t> scalars, Stream stream) {
  Function{kernel}(tensors, scalars, stream);
}

std::vector<std::string> take_value_errors(Device device, Stream stream) {
  std::vector<std::string> errors;
  known().table.for_each([&](const Prepared& prepared) {
    if (prepared.device != device || prepared.reports.empty()) return;
    const auto made = device.is_cuda()
                          ? runtime::take_variable(*prepared.on_device, "tessera_report", stream)
                          : static_cast<uint32_t>(prepared.reported->exchange(0));
    if (made > 0) errors.push_back(prepared.op + ": " + prepared.reports.at(made - 1));
  });
  return errors;
}

TrapScope::TrapScope() {
  ++trap_depth;
}
TrapScope::~TrapScope() {
  --trap_depth;
}

}  // namespace tessera::kernels::jit
