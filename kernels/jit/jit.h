#pragma once
// Joins codegen and runtime: runs a DSL kernel on given tensors, on the GPU (compiled once, cached
// in memory and on disk) or, for CPU tensors, on the executor. Only this room may include both.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/base/error.h"
#include "dsl/base/tensor_view.h"
#include "dsl/ir/tile.h"
#include "kernels/jit/scalar.h"
#include "kernels/jit/spec.h"
#include "kernels/op_arguments.h"

namespace tessera::kernels::jit {

/// A caller's own kernel: lowered once, compiled on first use on each device, identified by its
/// CUDA text (so two kernels may share a name). Copies are cheap. Any thread may call it.
///
/// Example: jit::Function scale(build_scale()); scale({{x, y}}, {{0.5f}}, stream);
class TESSERA_API Function {
 public:
  /// Throws the program errors of lowering.
  explicit Function(ir::Kernel kernel);
  /// Launches once. `tensors` are in the kernel's parameter order (an absent optional one has a null
  /// data pointer and rank 0), then come its scalars. Dynamic extents and strides are read from the
  /// tensors; an empty grid is a no-op.
  ///
  /// Errors: argument if a tensor or a scalar disagrees with its declaration (extent, stride,
  /// divisibility, alignment, device, type, range), or an output shares memory with another tensor
  /// though not both were declared with `.may_alias`; compile, load and driver errors.
  void operator()(std::span<const TensorView> tensors, std::span<const Scalar> scalars,
                  Stream stream) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// Function(kernel)(...). Lowers on every call: keep a Function where speed matters.
TESSERA_API void run(const ir::Kernel& kernel, std::span<const TensorView> tensors,
                     std::span<const Scalar> scalars, Stream stream);

/// How the disk caches identify the kernels of a caller's builder.
class TESSERA_API Code {
 public:
  /// By their CUDA text. Exact; each kernel is lowered once per process.
  static Code text() { return Code({}); }
  /// By a digest of the builder's sources: a warm cache then needs no lowering.
  static Code stamp(std::string digest);

  const std::string& digest() const { return digest_; }  // empty: text()

 private:
  explicit Code(std::string digest) : digest_(std::move(digest)) {}
  std::string digest_;
};

/// A family of the caller's own kernels, one per Spec: a struct of plain bytes that holds all inputs
/// of `build`. `build` is a function or a lambda without captures, called when the Spec is new in this
/// process. Two builders never share a kernel, whatever their `op` (the name in messages) and Specs. A
/// library that holds one must stay loaded.
///
/// Example: jit::run("scale", Spec{cols}, build_scale, {{x, y}}, {}, stream);
template <class Spec>
void run(std::string_view op, const Spec& spec,
         std::type_identity_t<ir::Kernel (*)(const Spec&)> build,
         std::span<const TensorView> tensors, std::span<const Scalar> scalars, Stream stream,
         const Code& code = Code::text());

/// Returns what kernels on a device have reported (Builder::report_unless) since the last call: values
/// that break a caller's promise, such as an id out of range. Waits for `stream`; includes kernels of
/// other streams that have run. One report per kernel and call. Throws driver errors.
///
/// Example: for (const std::string& error : jit::take_value_errors(Device::cuda(0), stream)) log(error);
///          // expand_to_fused_with_sf: argument 'token_topk_to_pos' has a value out of range
TESSERA_API std::vector<std::string> take_value_errors(Device device, Stream stream);

/// While it lives, this thread's calls with CPU tensors stop at the first undefined operation with an
/// Error of kind trap, or none does. Without a TrapScope the process's options decide
/// (Options::traps, TESSERA_TRAPS). By default user kernels trap and shipped ops do not.
///
/// Example: const jit::TrapScope fast(false); own_kernel(tensors, {}, nullptr);
class TESSERA_API TrapScope {
 public:
  explicit TrapScope(bool on = true);
  ~TrapScope();
  TrapScope(const TrapScope&) = delete;
  TrapScope& operator=(const TrapScope&) = delete;

 private:
  const std::optional<bool> before_;
};

/// When each warp of one block of a launch did what Builder::mark has named.
struct Timeline {
  /// A mark from its begin to its end.
  struct Bar {
    int mark = 0;                // in `marks`
    int64_t begin = 0, end = 0;  // from the first begin of any warp on
    int depth = 0;               // marks around it
  };
  /// One warp.
  struct Row {
    int warp = 0;
    std::string role;       // empty: none
    std::vector<Bar> bars;  // by begin, outer before inner
    int64_t dropped = 0;    // begins and ends that did not fit, after 1023
  };
  std::string kernel;
  int64_t block = 0;
  std::string unit;  // "cycles" of the multiprocessor's clock, or "steps" of the executor
  std::vector<std::string> marks;  // names; the last one, "wait", is of waits for a stage of a ring
  std::vector<Row> rows;           // of warps that came to a mark
};

/// While it lives, kernels that this thread's calls run note the marks of one block, and each call waits for its kernels.
/// They are other kernels than without it: each is compiled once more. Scopes nest; the innermost gets the timelines.
/// Kernels in a capture cannot be waited for: driver error.
///
/// Example: jit::TimelineScope scope;
///          gemm({{a, b, c}}, {}, stream);  // a Function, or a shipped op
///          std::puts(tools::timeline_text(scope.timelines().front()).c_str());
class TESSERA_API TimelineScope {
 public:
  /// `block`: its number in the grid, with x fastest.
  explicit TimelineScope(int64_t block = 0);
  ~TimelineScope();
  TimelineScope(const TimelineScope&) = delete;
  TimelineScope& operator=(const TimelineScope&) = delete;

  /// One for each kernel run, in order.
  const std::vector<Timeline>& timelines() const { return timelines_; }

  int64_t block() const { return block_; }
  void add(Timeline timeline) { timelines_.push_back(std::move(timeline)); }  // for calls

 private:
  TimelineScope* outer_;
  int64_t block_;
  std::vector<Timeline> timelines_;
};

/// Implementation of the template above. `spec` is unique among the caller's kernels in this
/// process.
TESSERA_API void run_built(std::string_view op, const std::string& spec, const Code& code,
                           const std::function<ir::Kernel()>& build,
                           std::span<const TensorView> tensors, std::span<const Scalar> scalars,
                           Stream stream);

template <class Spec>
void run(std::string_view op, const Spec& spec,
         std::type_identity_t<ir::Kernel (*)(const Spec&)> build,
         std::span<const TensorView> tensors, std::span<const Scalar> scalars, Stream stream,
         const Code& code) {
  run_built(
      op, spec_bytes(build) + spec_bytes(spec) + code.digest(), code, [&] { return build(spec); },
      tensors, scalars, stream);
}

}  // namespace tessera::kernels::jit
