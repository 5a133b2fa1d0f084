#pragma once
// Joins codegen and runtime: runs a kernel written in the DSL on the tensors it is given, on the
// GPU (compiled once per Spec, cached in memory and on disk) or, for CPU tensors, on the executor.
// The only place that knows both rooms.

#include <bit>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "dsl/base/tensor_view.h"
#include "dsl/ir/tile.h"
#include "kernels/op.h"

namespace tessera::kernels::jit {

/// What identifies a kernel within one op, as plain bytes. Fill with `spec_bytes(spec)` from a
/// struct without padding.
template <class Spec>
std::string spec_bytes(const Spec& spec) {
  static_assert(std::has_unique_object_representations_v<Spec>,
                "a Spec is compared as bytes: no padding, no floats");
  return std::string(reinterpret_cast<const char*>(&spec), sizeof(Spec));
}

/// One launch: `tensors` in the kernel's parameter order (a null TensorView::data with rank 0 for
/// an absent optional one), then the scalar parameters as integers (an f32 scalar as its bits, see
/// `scalar_bits`). Dynamic extents and strides are read off the tensors; an empty grid is a no-op.
/// `build` is called only when the Spec is new in this process.
///
/// Errors: ArgumentError if a tensor disagrees with the kernel's declaration (extent, stride,
/// divisibility, alignment, device); compile, load and driver errors.
void run(std::string_view op, const std::string& spec, const std::function<ir::Kernel()>& build,
         std::span<const TensorView> tensors, std::span<const int64_t> scalars, Stream stream);

/// The same for a Spec as a struct and the function that builds its kernel.
///
/// Example: jit::run("post_fwd", spec, build, arguments, {}, stream);
template <class Spec, class Build>
requires std::is_invocable_r_v<ir::Kernel, Build, const Spec&>
void run(std::string_view op, const Spec& spec, const Build& build,
         std::span<const TensorView> tensors, std::span<const int64_t> scalars, Stream stream) {
  run(
      op, spec_bytes(spec), [&] { return build(spec); }, tensors, scalars, stream);
}

/// How a float scalar parameter is passed to run().
inline int64_t scalar_bits(float value) {
  return std::bit_cast<int32_t>(value);
}
/// The same of a parameter of the op.
inline int64_t scalar_bits(const Params& params, const std::string& name) {
  return scalar_bits(static_cast<float>(std::get<double>(params.at(name))));
}

/// A kernel of the user's own: lowered once, compiled on first use on each device, identified by
/// its CUDA text (so two kernels may share a name). Copies are cheap and may be called from any
/// thread.
///
/// Example: jit::Function scale(build_scale()); scale({{x, y}}, {}, stream);
class Function {
 public:
  /// Throws the program errors of lowering.
  explicit Function(ir::Kernel kernel);
  /// As run().
  void operator()(std::span<const TensorView> tensors, std::span<const int64_t> scalars,
                  Stream stream) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// Function(kernel)(...): lowers on every call, so keep a Function where speed matters.
void run(const ir::Kernel& kernel, std::span<const TensorView> tensors,
         std::span<const int64_t> scalars, Stream stream);

/// What kernels have reported (Builder::report_unless) on a device since it was last asked: values that
/// break a caller's promise, such as an id out of range. Waits for `stream`; kernels of other streams are
/// heard too if they have run. One report per kernel and question. Throws driver errors.
///
/// Example: for (const std::string& error : jit::take_value_errors(Device::cuda(0), stream)) log(error);
///          // expand_to_fused_with_sf: argument 'token_topk_to_pos' has a value out of range
std::vector<std::string> take_value_errors(Device device, Stream stream);

/// CPU calls made by this thread run with traps on while it lives.
class TrapScope {
 public:
  TrapScope();
  ~TrapScope();
  TrapScope(const TrapScope&) = delete;
  TrapScope& operator=(const TrapScope&) = delete;
};

}  // namespace tessera::kernels::jit
