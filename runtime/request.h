#pragma once
// A request for a kernel: its name, and how its text is made.

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>

#include "dsl/base/api.h"
#include "dsl/base/kernel_source.h"
#include "dsl/base/target.h"

namespace tessera::runtime {

/// Makes the text of a kernel for a target. Also wraps a function that makes one text for all
/// targets.
///
///   Emit emit = [] { return KernelSource{...}; };
class Emit {
 public:
  Emit() = default;
  template <class Fn>
  requires std::is_invocable_r_v<KernelSource, Fn&, Target> Emit(Fn fn) : make_(std::move(fn)) {}
  template <class Fn>
  requires std::is_invocable_r_v<KernelSource, Fn&> Emit(Fn fn)
      : make_([fn = std::move(fn)](Target) mutable { return fn(); }) {}

  /// For sm_90a where no target is given.
  KernelSource operator()(Target target = {}) const { return make_(target); }

 private:
  std::function<KernelSource(Target)> make_;
};

/// A kernel that is needed: how to find it in a cache, and how to make its text.
struct KernelRequest {
  std::string op;
  /// Bytes that determine the text within this op and this build of the program, so a warm cache
  /// needs no emit(). Absent (a user's kernel): the text itself identifies the kernel.
  std::optional<std::string> spec;
  Emit emit;
  /// Identity of the code generator, if it is not this program's (a kernel from a recording). The
  /// text then identifies the kernel, whatever its Spec.
  std::string code = {};
  /// Cancels the compile: an error with code "CANCELLED".
  std::stop_token stop = {};
};

/// The Spec as messages show it: hexadecimal bytes, or "(the text itself)" without a Spec.
TESSERA_API std::string spec_text(const KernelRequest& request);

}  // namespace tessera::runtime
