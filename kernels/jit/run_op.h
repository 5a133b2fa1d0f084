#pragma once
// How Tessera's own ops run their kernels. Their builders are part of the code that the stamp of this
// build covers (runtime/code_stamp.h), so that op and Spec identify a kernel on disk, which needs no
// lowering when the cache is warm. Kernels of others: jit.h.

#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

#include "dsl/base/tensor_view.h"
#include "dsl/ir/tile.h"
#include "kernels/call_types.h"
#include "kernels/jit/scalar.h"

namespace tessera::kernels::jit {

/// What a launch binds to the parameters of a kernel, by the names of their declarations: no order can
/// be wrong.
class Arguments {
 public:
  virtual ~Arguments() = default;
  virtual Device device() const = 0;
  virtual TensorView tensor(std::string_view name) const = 0;  // rank 0 without data: absent
  virtual Scalar scalar(std::string_view name) const = 0;
};

/// One launch. `build` is called only when the Spec is new in this process.
///
/// Errors: those of Function::operator().
void run_op(std::string_view op, const std::string& spec, const std::function<ir::Kernel()>& build,
            const Arguments& arguments, Stream stream);

}  // namespace tessera::kernels::jit
