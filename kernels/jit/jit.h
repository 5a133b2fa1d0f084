#pragma once
// Joins codegen and runtime: runs a kernel written in the DSL on the tensors it is given, on the
// GPU (compiled once, cached in memory and on disk) or, for CPU tensors, on the executor.
// The only place that knows both rooms.

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

/// A kernel of the caller's own: lowered once, compiled on first use on each device, identified by
/// its CUDA text (so two kernels may share a name). Copies are cheap and may be called from any
/// thread.
///
/// Example: jit::Function scale(build_scale()); scale({{x, y}}, {{0.5f}}, stream);
class TESSERA_API Function {
 public:
  /// Throws the program errors of lowering.
  explicit Function(ir::Kernel kernel);
  /// One launch: `tensors` in the kernel's parameter order (a null TensorView::data with rank 0 for an
  /// absent optional one), then its scalars. Dynamic extents and strides are read off the tensors; an
  /// empty grid is a no-op.
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

/// Function(kernel)(...): lowers on every call, so keep a Function where speed matters.
TESSERA_API void run(const ir::Kernel& kernel, std::span<const TensorView> tensors,
                     std::span<const Scalar> scalars, Stream stream);

/// What identifies, in the caches on disk, the kernels that a builder of the caller's makes.
class TESSERA_API Code {
 public:
  /// Their CUDA text. Exact; each kernel is lowered once per process.
  static Code text() { return Code({}); }
  /// A digest of the sources that the builder is made of: a warm cache then needs no lowering.
  static Code stamp(std::string digest);

  const std::string& digest() const { return digest_; }  // empty: text()

 private:
  explicit Code(std::string digest) : digest_(std::move(digest)) {}
  std::string digest_;
};

/// A family of kernels of the caller's own, one per Spec: a struct of plain bytes, all that `build`
/// depends on. `build` is a function or a lambda without captures, called when the Spec is new in this
/// process. Two builders never share a kernel, whatever their `op` (the name that messages give) and
/// Specs; a library that holds one must stay loaded.
///
/// Example: jit::run("scale", Spec{cols}, build_scale, {{x, y}}, {}, stream);
template <class Spec>
void run(std::string_view op, const Spec& spec,
         std::type_identity_t<ir::Kernel (*)(const Spec&)> build,
         std::span<const TensorView> tensors, std::span<const Scalar> scalars, Stream stream,
         const Code& code = Code::text());

/// What kernels have reported (Builder::report_unless) on a device since it was last asked: values that
/// break a caller's promise, such as an id out of range. Waits for `stream`; kernels of other streams are
/// heard too if they have run. One report per kernel and question. Throws driver errors.
///
/// Example: for (const std::string& error : jit::take_value_errors(Device::cuda(0), stream)) log(error);
///          // expand_to_fused_with_sf: argument 'token_topk_to_pos' has a value out of range
TESSERA_API std::vector<std::string> take_value_errors(Device device, Stream stream);

/// While it lives, this thread's calls with CPU tensors stop at the first thing that is undefined, an
/// Error of kind trap; or none does. Without one the process's options decide (Options::traps,
/// TESSERA_TRAPS), and without these kernels of the user's own do and shipped ops do not.
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

/// Inside the template above. `spec` tells apart all kernels of the caller's in this process.
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
