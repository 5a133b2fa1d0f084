#pragma once
// The kernels of one call, in order. Tensors and scalars are bound by the names that a kernel
// declares.

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/jit/run_op.h"
#include "kernels/jit/spec.h"
#include "kernels/signature/call.h"

namespace tessera::kernels {

/// Arguments of one launch that the signature lacks, or has in another form.
struct Args {
  struct Tensor {
    std::string name;
    TensorView view;
  };
  struct Scalar {
    std::string_view name;
    jit::Scalar value;
  };
  std::vector<Tensor> tensors = {};
  std::vector<Scalar> scalars = {};
};

class Launches {
 public:
  /// Launches the kernels of a call, or only collects them.
  Launches(const Call& call, Stream stream) : call_(&call), stream_(stream) {}
  Launches(const Call& call, std::vector<ir::Kernel>& collected)
      : call_(&call), collected_(&collected) {}

  /// Adds the kernel that `build` makes for a Spec. Every tensor that it declares is bound to one of
  /// `args`, else to the call's of that name; every scalar to one of `args`, else to an integer,
  /// flag or number of the call. Kernels of one op whose Specs have equal bytes need different
  /// `kind`s.
  template <class Spec, class Build>
  void add(const Build& build, const Spec& spec, const Args& args = {},
           std::string_view kind = {}) {
    add_bytes(
        std::string(kind) + jit::spec_bytes(spec), [&] { return ir::Kernel(build(spec)); }, args);
  }

  /// Adds the kernels of another op as a part of this call.
  void add(const Call& part);

  /// Calls `add` with the largest cluster of the call's device; see jit::launch_in_clusters.
  void in_clusters(const std::function<void(int limit)>& add) const;

 private:
  void add_bytes(const std::string& spec, const std::function<ir::Kernel()>& build,
                 const Args& args);

  const Call* call_;
  Stream stream_ = nullptr;
  std::vector<ir::Kernel>* collected_ = nullptr;
};

}  // namespace tessera::kernels
