#pragma once
// An op made of other ops: its kernels are those of the parts, in order.
//
//   void parts(Chain& chain) {
//     chain.add(fused_weight_op);
//     chain.add(engram_gate_fwd_op);
//   }
//   int64_t elements(const Call& c) { return chained_elements(c, parts); }  // of its workspace
//   void launches(const Call& c, Launches& go) { launch_chain(c, go, parts); }

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "kernels/signature/launches.h"

namespace tessera::kernels {

class Chain {
 public:
  /// A tensor or parameter of a part, with its name in the chain.
  struct Name {
    std::string_view in_part, here;
  };

  /// Adds a part. Its tensors and parameters are the call's of the same names, or those in `names`.
  /// An output that the call lacks goes to the workspace, and later parts can read it.
  ///
  /// Errors: those of the part, under the call's names.
  void add(const Op& part, std::initializer_list<Name> names = {}, Params params = {});
  /// Allocates a tensor of the workspace, for an in-place tensor of a part.
  void allocate(const std::string& name, DType dtype, const Dims& shape);
  /// Gives a tensor of the chain another name.
  void set(std::string name, const TensorView& view);

  const Call& call() const { return *call_; }

 private:
  friend int64_t chained_elements(const Call& call, void (*parts)(Chain&));
  friend void launch_chain(const Call& call, Launches& go, void (*parts)(Chain&));

  Chain(const Call& call, Launches* go);
  void add_part(const ParsedOp& parsed, std::initializer_list<Name> names, Params params);
  TensorView find(const std::string& name) const;
  TensorView in_workspace(const OutputInfo& info);

  const Call* call_;
  Launches* go_;  // null while the workspace is measured
  std::map<std::string, TensorView> between_;
  int64_t elements_ = 0;
};

/// The f32 elements of workspace that the parts of a call need.
int64_t chained_elements(const Call& call, void (*parts)(Chain&));
void launch_chain(const Call& call, Launches& go, void (*parts)(Chain&));

}  // namespace tessera::kernels
