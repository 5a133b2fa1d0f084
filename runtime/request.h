#pragma once
// What is wanted of the runtime: a kernel, by its name and by how its text is made.

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

/// Makes the text of a kernel for a target; also from a function that makes one text for all targets.
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

  /// Without a target: a text that every target compiles.
  KernelSource operator()(Target target = {}) const { return make_(target); }

 private:
  std::function<KernelSource(Target)> make_;
};

/// A kernel that somebody needs: how it is found in a cache, and how its text is made.
struct KernelRequest {
  std::string op;
  /// Bytes that decide the text within this op and this build of the program: a warm cache then
  /// needs no emit(). Absent (a user's kernel): the text itself is what identifies the kernel.
  std::optional<std::string> spec;
  Emit emit;
  /// Identity of the generator if it is not this program's (a kernel from a recording). Such a text
  /// identifies itself, whatever its Spec.
  std::string code = {};
  /// Ends the compile early: an error with code "CANCELLED".
  std::stop_token stop = {};
};

/// The Spec as messages show it: its bytes in hexadecimal, "(the text itself)" if there is none.
TESSERA_API std::string spec_text(const KernelRequest& request);

}  // namespace tessera::runtime
