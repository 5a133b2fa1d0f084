#pragma once
// Runs the kernels of Tessera's own ops. The stamp of this build covers their builders
// (runtime/code_stamp.h), so op and Spec identify a kernel on disk, and a warm cache needs no
// lowering. For other kernels see jit.h.

#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

#include "dsl/base/tensor_view.h"
#include "dsl/ir/tile.h"
#include "kernels/call_types.h"
#include "kernels/jit/scalar.h"

namespace tessera::kernels::jit {

/// The tensors and scalars of a launch, bound to kernel parameters by name, so that no order can be
/// wrong.
class Arguments {
 public:
  virtual ~Arguments() = default;
  virtual Device device() const = 0;
  virtual TensorView tensor(std::string_view name) const = 0;  // rank 0 without data: absent
  virtual Scalar scalar(std::string_view name) const = 0;
};

/// Launches once. Calls `build` only for a Spec that is new in this process.
///
/// Errors: those of Function::operator().
void run_op(std::string_view op, const std::string& spec, const std::function<ir::Kernel()>& build,
            const Arguments& arguments, Stream stream);

}  // namespace tessera::kernels::jit
