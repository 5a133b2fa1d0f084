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
#include "dsl/base/target_facts.h"
#include "kernels/jit/count_scope.h"
#include "kernels/jit/lowered.h"
#include "kernels/jit/op_table.h"
#include "kernels/jit/plan.h"
#include "kernels/jit/prepared.h"
#include "kernels/jit/run_op.h"
#include "kernels/jit/target.h"
#include "runtime/cache/sha256.h"
#include "runtime/options.h"
#include "runtime/request.h"
#include "runtime/runtime.h"
#include "runtime/store_later.h"
#include "runtime/tensor_map.h"

namespace tessera::kernels::jit {
namespace {

KernelSource source_of(std::string_view op, const codegen::Program& program) {
  KernelSource source = codegen::cuda::emit(program);
  source.op = op;
  return source;
}

// More Specs of one op are rarely intended; usually a Spec contains the number of tokens.
constexpr int kManySpecs = 64;

struct Known {
  OpTable<Prepared> table;
  std::mutex mutex;                      // guards num_specs
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
    return new Known;  // never destroyed: kernels stay loaded
  }();
  return *made;
}
// Made before any thread starts: otherwise a child of fork could wait forever for a thread that was
// making it.
[[maybe_unused]] const Known& made_at_the_start = known();

thread_local std::optional<bool> trap_scope;  // of the innermost TrapScope

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
                 .got = fmt::format("{} on {}", to_string(view), to_string(view.device)),
                 .code = "DEVICE"});
  }
  return first ? first->device : Device::cpu();
}

bool wants_traps(Author author) {
  if (trap_scope) return *trap_scope;
  return runtime::Runtime::instance().options().traps.value_or(author == Author::caller);
}

void run_on_cpu(const Prepared& prepared, const Binding& binding,
                std::span<const TensorView> tensors, Author author) {
  std::vector<codegen::cpu::Argument> arguments;
  for (const TensorView& view : tensors) {
    arguments.emplace_back().tensor = view;
  }
  for (size_t i = 0; i < prepared.slot_types.size(); ++i) {
    const int64_t value = binding.slots[i];
    codegen::cpu::Argument& argument = arguments.emplace_back();
    argument.integer = value;
    const DType type = prepared.slot_types[i];
    if (is_float(type)) argument.number = number_in(value, type);
  }
  codegen::cpu::Options options;
  options.traps = wants_traps(author);
  if (facts_of(prepared.program->program().target).has_known_sums) {
    options.arithmetic = codegen::cpu::Arithmetic::target;
  }
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
  // The driver reads as many bytes as the parameter has: the low ones, since the host is
  // little-endian.
  std::array<void*, kMaxArguments> data;
  std::array<void*, kMaxArguments> arguments;
  const size_t num_tensors = tensors.size();
  for (size_t t = 0; t < num_tensors; ++t) {
    const bool is_empty = !is_absent(tensors[t]) && tensors[t].size() == 0;
    const LaunchPlan::Source none = {-1, LaunchPlan::kEmpty};
    data[t] = is_empty ? none.address({}) : tensors[t].data;
    arguments[t] = &data[t];
  }
  for (size_t i = 0; i < prepared.slot_types.size(); ++i) {
    arguments[num_tensors + i] = &binding.slots[i];
  }
  std::array<runtime::TensorMap, kMaxMaps> maps;
  size_t num_maps = 0;
  for (const KernelParam* param : prepared.maps) {
    maps[num_maps] =
        runtime::encode_tensor_map(*prepared.on_device, *param, mapped(*param->map, tensors));
    arguments[num_tensors + prepared.slot_types.size() + num_maps] = &maps[num_maps];
    ++num_maps;
  }
  const auto [x, y, z] = binding.grid;
  runtime::launch(*prepared.on_device, {x, y, z}, arguments.data(), stream,
                  prepared.plan.streamed(tensors));
}

void run_prepared(const Prepared& prepared, Binding& binding, std::span<const TensorView> tensors,
                  Stream stream, Author author) {
  if (prepared.device.is_cuda()) {
    run_on_gpu(prepared, binding, tensors, stream);
  } else {
    run_on_cpu(prepared, binding, tensors, author);
  }
}

void finish_call(const Prepared& prepared, Binding& binding, std::span<const TensorView> tensors,
                 Stream stream, Author author) {
  const CallMode& mode = call_mode();
  if (binding.empty) return;
  if (mode.recorder) mode.recorder->add(prepared, binding, tensors);
  if (mode.note) (*mode.note)({&prepared, binding, {tensors.begin(), tensors.end()}, author});
  if (mode.until != CallMode::Until::done) return;
  run_prepared(prepared, binding, tensors, stream, author);
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

// The key found the binary, in this process or on disk, so its parameters must be those of the
// plan.
void check_parameters(const Plan& plan, const Prepared& prepared) {
  const runtime::Image& image = *prepared.on_device->image;
  const size_t names = plan.parameter_names().size(), maps = prepared.maps.size();
  TESSERA_CHECK(
      names + maps == image.params.size() && maps <= kMaxMaps && names + maps <= kMaxArguments,
      plan.op() + ": the compiled kernel has other parameters than its declaration");
  for (const KernelParam* map : prepared.maps) {
    const int tensor = map->map->tensor;
    TESSERA_CHECK(
        tensor == TensorMapParam::kNoTensor || static_cast<size_t>(tensor) < plan.num_tensors(),
        plan.op() + ": the compiled kernel maps what is no tensor");
  }
}

/// Identifies a kernel.
struct Identity {
  std::string_view op;
  const std::string& spec;  // key of this process's table; on the CPU a target follows
  Author author = Author::caller;
  std::string_view stamp = {};  // of a caller's builder; empty: the text identifies the kernel
};

std::string digest_of(const std::string& text) {
  return runtime::to_hex(runtime::sha256(text));
}

runtime::KernelRequest request_for(const Identity& identity, const ir::Kernel& kernel) {
  runtime::KernelRequest request;
  request.op = identity.op;
  if (identity.author == Author::tessera) {
    request.spec = kernel.name + '\0' + identity.spec;
  } else if (!identity.stamp.empty()) {
    // No Spec of an op looks like this: those begin with a kernel's name and a zero.
    request.spec = fmt::format("{} {}", digest_of(ir::to_string(kernel)), identity.stamp);
  }
  request.emit = [op = request.op, kernel](Target target) {
    return source_of(op, lowered(kernel, target));
  };
  request.stop = call_mode().stop;
  return request;
}

std::unique_ptr<Prepared> make_prepared(const Identity& identity, const std::string& key,
                                        Device device, const ir::Kernel& kernel, Plan plan,
                                        Stream stream) {
  std::vector<DType> slot_types = plan.slot_types();
  auto prepared = std::make_unique<Prepared>(Prepared{std::string(identity.op),
                                                      key,
                                                      device,
                                                      std::move(plan),
                                                      std::move(slot_types),
                                                      {},
                                                      {},
                                                      kernel.reports});
  if (!device.is_cuda()) {
    prepared->reported = std::make_shared<std::atomic<int>>(0);
    codegen::Program program = lowered(kernel, target_of(device));
    runtime::Runtime& runtime = runtime::Runtime::instance();
    if (!runtime.options().dump_dir.empty()) runtime.dump(source_of(identity.op, program));
    prepared->program.emplace(std::move(program));
    return prepared;
  }
  const runtime::KernelRequest request = request_for(identity, kernel);
  prepared->on_device = runtime::Runtime::instance().load(request, device.ordinal, stream);
  for (const KernelParam& param : prepared->on_device->image->params) {
    if (param.map) prepared->maps.push_back(&param);
  }
  check_parameters(prepared->plan, *prepared);
  return prepared;
}

/// The arguments of a launch in the order of the kernel's parameters.
class Ordered {
 public:
  Ordered(std::span<const TensorView> tensors, std::span<const Scalar> scalars)
      : tensors_(tensors), scalars_(scalars) {}
  Ordered(const Plan& plan, const Arguments& arguments) {
    for (size_t i = 0; i < plan.num_tensors(); ++i) {
      own_tensors_.push_back(arguments.tensor(plan.tensor_name(i)));
    }
    for (size_t i = 0; i < plan.num_scalars(); ++i) {
      own_scalars_.push_back(arguments.scalar(plan.scalar_name(i)));
    }
    tensors_ = own_tensors_;
    scalars_ = own_scalars_;
  }
  Ordered(const Ordered&) = delete;
  Ordered& operator=(const Ordered&) = delete;

  std::span<const TensorView> tensors() const { return tensors_; }
  std::span<const Scalar> scalars() const { return scalars_; }

 private:
  std::vector<TensorView> own_tensors_;
  std::vector<Scalar> own_scalars_;
  std::span<const TensorView> tensors_;
  std::span<const Scalar> scalars_;
};

/// `order` returns the arguments for a plan.
template <class Order>
void run_kernel(const Identity& identity, const std::function<ir::Kernel()>& build, Device device,
                const Order& order, Stream stream) {
  // A program for the CPU is that of a target.
  std::string of_target;
  if (!device.is_cuda()) of_target = identity.spec + " " + to_string(target_of(device));
  const std::string& key = device.is_cuda() ? identity.spec : of_target;
  const bool is_named_only = call_mode().until == CallMode::Until::named;
  if (const Prepared* prepared =
          is_named_only ? nullptr : known().table.find(identity.op, key, device)) {
    const Ordered arguments = order(prepared->plan);
    Binding binding = prepared->plan.bind(arguments.tensors(), arguments.scalars());
    finish_call(*prepared, binding, arguments.tensors(), stream, identity.author);
    return;
  }
  const ir::Kernel kernel = build();
  Plan plan(std::string(identity.op), kernel, identity.author);
  const Ordered arguments = order(plan);
  Binding binding = plan.bind(arguments.tensors(), arguments.scalars());
  if (binding.empty) return;  // nothing to compile
  if (is_named_only) {
    call_mode().named->push_back(request_for(identity, kernel));
    return;
  }
  const runtime::StoreLater after_the_launch;
  auto made = make_prepared(identity, key, device, kernel, std::move(plan), stream);
  const Prepared* const candidate = made.get();
  const Prepared& prepared = known().table.insert(std::move(made));
  if (&prepared == candidate && device.is_cuda()) count_spec(prepared.op);
  finish_call(prepared, binding, arguments.tensors(), stream, identity.author);
}

void run_in_order(const Identity& identity, const std::function<ir::Kernel()>& build,
                  std::span<const TensorView> tensors, std::span<const Scalar> scalars,
                  Stream stream) {
  run_kernel(
      identity, build, device_of(identity.op, tensors),
      [&](const Plan&) { return Ordered(tensors, scalars); }, stream);
}

}  // namespace

void run_op(std::string_view op, const std::string& spec, const std::function<ir::Kernel()>& build,
            const Arguments& arguments, Stream stream) {
  run_kernel(
      {op, spec, Author::tessera}, build, arguments.device(),
      [&](const Plan& plan) { return Ordered(plan, arguments); }, stream);
}

void launch_noted(const NotedLaunch& launch, std::span<const TensorView> tensors, Stream stream) {
  Binding binding = launch.binding;
  run_prepared(*launch.prepared, binding, tensors, stream, launch.author);
}

struct TESSERA_LOCAL Function::State {
  ir::Kernel kernel;
  std::string spec;  // key of this process's table; no op has one like it
};

Function::Function(ir::Kernel kernel) {
  check_finished(kernel);
  const KernelSource source = codegen::cuda::emit(lowered(kernel, target_of(Device::cpu())));
  // The CUDA text determines what runs, the kernel's own text what the host checks.
  std::string spec = "text " + digest_of(source.text + ir::to_string(kernel));
  state_ = std::make_shared<const State>(State{std::move(kernel), std::move(spec)});
}

void Function::operator()(std::span<const TensorView> tensors, std::span<const Scalar> scalars,
                          Stream stream) const {
  run_in_order(
      {state_->kernel.name, state_->spec}, [&] { return state_->kernel; }, tensors, scalars,
      stream);
}

void run(const ir::Kernel& kernel, std::span<const TensorView> tensors,
         std::span<const Scalar> scalars, Stream stream) {
  Function{kernel}(tensors, scalars, stream);
}

Code Code::stamp(std::string digest) {
  if (digest.empty()) {
    throw Error({.kind = ErrorKind::argument,
                 .what = "a stamp is empty",
                 .argument = "digest",
                 .expected = "a digest of the builder's sources, other bytes after every change"});
  }
  return Code(std::move(digest));
}

void run_built(std::string_view op, const std::string& spec, const Code& code,
               const std::function<ir::Kernel()>& build, std::span<const TensorView> tensors,
               std::span<const Scalar> scalars, Stream stream) {
  run_in_order({op, spec, Author::caller, code.digest()}, build, tensors, scalars, stream);
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

TrapScope::TrapScope(bool on) : before_(std::exchange(trap_scope, on)) {}
TrapScope::~TrapScope() {
  trap_scope = before_;
}

}  // namespace tessera::kernels::jit
