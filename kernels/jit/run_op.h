#pragma once
// How Tessera's own ops run their kernels. Their builders are part of the code that the stamp of this
// build covers (runtime/code_stamp.h), so that op and Spec identify a kernel on disk, which needs no
// lowering when the cache is warm. Kernels of others: jit.h.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "dsl/base/tensor_view.h"
#include "dsl/ir/tile.h"
#include "kernels/jit/scalar.h"
#include "kernels/jit/spec.h"
#include "kernels/op.h"

namespace tessera::kernels::jit {

/// One launch, with the arguments and errors of Function::operator(). `build` is called only when the
/// Spec is new in this process.
void run_op(std::string_view op, const std::string& spec, const std::function<ir::Kernel()>& build,
            std::span<const TensorView> tensors, std::span<const Scalar> scalars, Stream stream);

/// The same for a Spec as a struct and the function that builds its kernel.
///
/// Example: jit::run_op("post_fwd", spec, build, arguments, {}, stream);
template <class Spec, class Build>
requires std::is_invocable_r_v<ir::Kernel, Build, const Spec&>
void run_op(std::string_view op, const Spec& spec, const Build& build,
            std::span<const TensorView> tensors, std::span<const Scalar> scalars, Stream stream) {
  run_op(
      op, spec_bytes(spec), [&] { return build(spec); }, tensors, scalars, stream);
}

}  // namespace tessera::kernels::jit
