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
#include "kernels/jit/argument_binder.h"
#include "kernels/jit/call_context.h"
#include "kernels/jit/count_scope.h"
#include "kernels/jit/dry_launch.h"
#include "kernels/jit/lower_kernel.h"
#include "kernels/jit/op_table.h"
#include "kernels/jit/plan_builder.h"
#include "kernels/jit/ready_kernel.h"
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

/// All that this process can run.
struct ReadyKernels {
  OpTable<ReadyKernel> table;
  std::mutex mutex;                      // guards num_specs
  std::map<std::string, int> num_specs;  // per op
};

ReadyKernels& ready_kernels();

void before_fork() {
  ready_kernels().table.before_fork();
  ready_kernels().mutex.lock();
}
void after_fork() {
  ready_kernels().mutex.unlock();
  ready_kernels().table.after_fork();
}

ReadyKernels& ready_kernels() {
  static auto* made = [] {
    pthread_atfork(before_fork, after_fork, after_fork);
    return new ReadyKernels;  // never destroyed: kernels stay loaded
  }();
  return *made;
}
// Made before any thread starts: otherwise a child of fork could wait forever for a thread that was
// making it.
[[maybe_unused]] const ReadyKernels& made_at_the_start = ready_kernels();

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

bool wants_traps(const CallContext& context, Author author) {
  if (context.traps) return *context.traps;
  return runtime::Runtime::instance().options().traps.value_or(author == Author::caller);
}

void run_on_cpu(const CallContext& context, const ReadyKernel& ready, const Binding& binding,
                std::span<const TensorView> tensors, Author author) {
  std::vector<codegen::cpu::Argument> arguments;
  for (const TensorView& view : tensors) {
    arguments.emplace_back().tensor = view;
  }
  for (size_t i = 0; i < ready.slot_types.size(); ++i) {
    const int64_t value = binding.slots[i];
    codegen::cpu::Argument& argument = arguments.emplace_back();
    argument.integer = value;
    const DType type = ready.slot_types[i];
    if (is_float(type)) argument.number = number_in(value, type);
  }
  codegen::cpu::Options options;
  options.traps = wants_traps(context, author);
  if (facts_of(ready.program->program().target).has_known_sums) {
    options.arithmetic = codegen::cpu::Arithmetic::target;
  }
  options.reported = ready.reported.get();
  KernelCounts counted{ready.program->program().name, {}, {}};
  if (context.counts != nullptr) {
    options.counts = &counted.counts;
    options.accesses = &counted.accesses;
  }
  std::vector<codegen::cpu::WarpMarks> marks;
  const bool is_marked = ready.marked && context.timeline != nullptr;
  if (is_marked) options.marks = &marks;
  ready.program->run(arguments, options);
  if (is_marked) context.timeline->add(timeline_of(*ready.marked, marks));
  if (context.counts != nullptr) context.counts->add(std::move(counted));
}

void run_on_gpu(const ReadyKernel& ready, Binding& binding, std::span<const TensorView> tensors,
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
  for (size_t i = 0; i < ready.slot_types.size(); ++i) {
    arguments[num_tensors + i] = &binding.slots[i];
  }
  std::array<runtime::TensorMap, kMaxMaps> maps;
  size_t num_maps = 0;
  for (const KernelParam* param : ready.maps) {
    maps[num_maps] =
        runtime::encode_tensor_map(*ready.on_device, *param, mapped(*param->map, tensors));
    arguments[num_tensors + ready.slot_types.size() + num_maps] = &maps[num_maps];
    ++num_maps;
  }
  const auto [x, y, z] = binding.grid;
  runtime::launch(*ready.on_device, {x, y, z}, arguments.data(), stream,
                  ready.binder.streamed(tensors));
}

void run_ready(const CallContext& context, const ReadyKernel& ready, Binding& binding,
               std::span<const TensorView> tensors, Stream stream, Author author) {
  if (ready.device.is_cuda()) {
    run_on_gpu(ready, binding, tensors, stream);
    if (!ready.marked || context.timeline == nullptr) return;
    context.timeline->add(
        timeline_of(*ready.marked, runtime::take_array(*ready.on_device, "tessera_marks", stream)));
  } else {
    run_on_cpu(context, ready, binding, tensors, author);
  }
}

void finish_call(const CallContext& context, const ReadyKernel& ready, Binding& binding,
                 std::span<const TensorView> tensors, Stream stream, Author author) {
  const CallMode& mode = context.mode;
  if (binding.empty) return;
  if (mode.plan) mode.plan->add(ready, binding, tensors);
  if (mode.note) (*mode.note)({&ready, binding, {tensors.begin(), tensors.end()}, author});
  if (mode.until != CallMode::Until::done) return;
  run_ready(context, ready, binding, tensors, stream, author);
}

void count_spec(const std::string& op) {
  {
    const std::lock_guard lock(ready_kernels().mutex);
    if (++ready_kernels().num_specs[op] != kManySpecs) return;
  }
  runtime::Runtime::instance().warn_once(
      "specs " + op, fmt::format("{}: {} different kernels in this process; something that varies "
                                 "from call to call is part of its Spec",
                                 op, kManySpecs));
}

// The key found the binary, in this process or on disk, so its parameters must be those of the
// declaration.
void check_parameters(const ArgumentBinder& binder, const ReadyKernel& ready) {
  const runtime::Image& image = *ready.on_device->image;
  const size_t names = binder.parameter_names().size(), maps = ready.maps.size();
  TESSERA_CHECK(
      names + maps == image.params.size() && maps <= kMaxMaps && names + maps <= kMaxArguments,
      binder.op() + ": the compiled kernel has other parameters than its declaration");
  for (const KernelParam* map : ready.maps) {
    const int tensor = map->map->tensor;
    TESSERA_CHECK(
        tensor == TensorMapParam::kNoTensor || static_cast<size_t>(tensor) < binder.num_tensors(),
        binder.op() + ": the compiled kernel maps what is no tensor");
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

runtime::KernelRequest request_for(const CallContext& context, const Identity& identity,
                                   const ir::Kernel& kernel) {
  runtime::KernelRequest request;
  request.op = identity.op;
  if (identity.author == Author::tessera) {
    request.spec = kernel.name + '\0' + identity.spec;
    if (kernel.marked_block) *request.spec += fmt::format(" marks of {}", *kernel.marked_block);
  } else if (!identity.stamp.empty()) {
    // No Spec of an op looks like this: those begin with a kernel's name and a zero.
    request.spec = fmt::format("{} {}", digest_of(ir::to_string(kernel)), identity.stamp);
  }
  request.emit = [op = request.op, kernel](Target target) {
    return source_of(op, lower_kernel(kernel, target));
  };
  request.stop = context.mode.stop;
  return request;
}

std::unique_ptr<ReadyKernel> make_ready(const CallContext& context, const Identity& identity,
                                        const std::string& key, Device device,
                                        const ir::Kernel& kernel, ArgumentBinder binder,
                                        Stream stream) {
  std::vector<DType> slot_types = binder.slot_types();
  auto ready = std::make_unique<ReadyKernel>(ReadyKernel{std::string(identity.op),
                                                         key,
                                                         device,
                                                         std::move(binder),
                                                         std::move(slot_types),
                                                         {},
                                                         {},
                                                         kernel.reports});
  if (!device.is_cuda()) {
    ready->reported = std::make_shared<std::atomic<int>>(0);
    codegen::Program program = lower_kernel(kernel, target_of(context, device));
    runtime::Runtime& runtime = runtime::Runtime::instance();
    if (!runtime.options().dump_dir.empty()) runtime.dump(source_of(identity.op, program));
    if (kernel.marked_block) ready->marked = marked(program);
    ready->program.emplace(std::move(program));
    return ready;
  }
  const runtime::KernelRequest request = request_for(context, identity, kernel);
  ready->on_device = runtime::Runtime::instance().load(request, device.ordinal, stream);
  for (const KernelParam& param : ready->on_device->image->params) {
    if (param.map) ready->maps.push_back(&param);
  }
  check_parameters(ready->binder, *ready);
  if (kernel.marked_block) ready->marked = marked(lower_kernel(kernel, target_of(context, device)));
  return ready;
}

/// The arguments of a launch in the order of the kernel's parameters.
class OrderedArguments {
 public:
  OrderedArguments(std::span<const TensorView> tensors, std::span<const Scalar> scalars)
      : tensors_(tensors), scalars_(scalars) {}
  OrderedArguments(const ArgumentBinder& binder, const Arguments& arguments) {
    for (size_t i = 0; i < binder.num_tensors(); ++i) {
      own_tensors_.push_back(arguments.tensor(binder.tensor_name(i)));
    }
    for (size_t i = 0; i < binder.num_scalars(); ++i) {
      own_scalars_.push_back(arguments.scalar(binder.scalar_name(i)));
    }
    tensors_ = own_tensors_;
    scalars_ = own_scalars_;
  }
  OrderedArguments(const OrderedArguments&) = delete;
  OrderedArguments& operator=(const OrderedArguments&) = delete;

  std::span<const TensorView> tensors() const { return tensors_; }
  std::span<const Scalar> scalars() const { return scalars_; }

 private:
  std::vector<TensorView> own_tensors_;
  std::vector<Scalar> own_scalars_;
  std::span<const TensorView> tensors_;
  std::span<const Scalar> scalars_;
};

/// `order` returns the arguments for a binder.
template <class Order>
void run_kernel(const CallContext& context, const Identity& identity,
                const std::function<ir::Kernel()>& build, Device device, const Order& order,
                Stream stream) {
  // A program for the CPU is that of a target, one with marks that of a block.
  std::string longer;
  if (!device.is_cuda()) longer = identity.spec + " " + to_string(target_of(context, device));
  // A launch that somebody else makes later has nobody who takes its marks.
  const bool is_launched = context.mode.plan == nullptr && context.mode.note == nullptr;
  const TimelineScope* const timeline = is_launched ? context.timeline : nullptr;
  if (timeline != nullptr) {
    longer =
        fmt::format("{} marks of {}", longer.empty() ? identity.spec : longer, timeline->block());
  }
  const std::string& key = longer.empty() ? identity.spec : longer;
  const bool is_named_only = context.mode.until == CallMode::Until::named;
  if (const ReadyKernel* ready =
          is_named_only ? nullptr : ready_kernels().table.find(identity.op, key, device)) {
    const OrderedArguments arguments = order(ready->binder);
    Binding binding = ready->binder.bind(arguments.tensors(), arguments.scalars());
    finish_call(context, *ready, binding, arguments.tensors(), stream, identity.author);
    return;
  }
  ir::Kernel kernel = build();
  if (timeline != nullptr) kernel.marked_block = timeline->block();
  ArgumentBinder binder(std::string(identity.op), kernel, identity.author);
  const OrderedArguments arguments = order(binder);
  Binding binding = binder.bind(arguments.tensors(), arguments.scalars());
  if (binding.empty) return;  // nothing to compile
  if (is_named_only) {
    const std::span<const TensorView> tensors = arguments.tensors();
    context.mode.named->push_back({request_for(context, identity, kernel),
                                   kernel,
                                   binding,
                                   {tensors.begin(), tensors.end()}});
    return;
  }
  const runtime::StoreLater after_the_launch;
  auto made = make_ready(context, identity, key, device, kernel, std::move(binder), stream);
  const ReadyKernel* const candidate = made.get();
  const ReadyKernel& ready = ready_kernels().table.insert(std::move(made));
  if (&ready == candidate && device.is_cuda()) count_spec(ready.op);
  finish_call(context, ready, binding, arguments.tensors(), stream, identity.author);
}

void run_in_order(const Identity& identity, const std::function<ir::Kernel()>& build,
                  std::span<const TensorView> tensors, std::span<const Scalar> scalars,
                  Stream stream) {
  run_kernel(
      call_context(), identity, build, device_of(identity.op, tensors),
      [&](const ArgumentBinder&) { return OrderedArguments(tensors, scalars); }, stream);
}

}  // namespace

void run_op(std::string_view op, const std::string& spec, const std::function<ir::Kernel()>& build,
            const Arguments& arguments, Stream stream) {
  run_kernel(
      call_context(), {op, spec, Author::tessera}, build, arguments.device(),
      [&](const ArgumentBinder& binder) { return OrderedArguments(binder, arguments); }, stream);
}

void launch_noted(const NotedLaunch& launch, std::span<const TensorView> tensors, Stream stream) {
  Binding binding = launch.binding;
  run_ready(call_context(), *launch.ready, binding, tensors, stream, launch.author);
}

struct TESSERA_LOCAL Function::State {
  ir::Kernel kernel;
  std::string spec;  // key of this process's table; no op has one like it
};

Function::Function(ir::Kernel kernel) {
  check_finished(kernel);
  const KernelSource source = codegen::cuda::emit(lower_kernel(kernel, target_of(Device::cpu())));
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
  ready_kernels().table.for_each([&](const ReadyKernel& ready) {
    if (ready.device != device || ready.reports.empty()) return;
    const auto made = device.is_cuda()
                          ? runtime::take_variable(*ready.on_device, "tessera_report", stream)
                          : static_cast<uint32_t>(ready.reported->exchange(0));
    if (made > 0) errors.push_back(ready.op + ": " + ready.reports.at(made - 1));
  });
  return errors;
}

TrapScope::TrapScope(bool on) : before_(std::exchange(call_context().traps, on)) {}
TrapScope::~TrapScope() {
  call_context().traps = before_;
}

}  // namespace tessera::kernels::jit
