#pragma once
// What is wanted of the runtime: a kernel, by its name and by how its text is made.

#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "dsl/base/api.h"
#include "dsl/base/kernel_source.h"

namespace tessera::runtime {

/// A kernel that somebody needs: how it is found in a cache, and how its text is made.
struct KernelRequest {
  std::string op;
  /// Bytes that decide the text within this op and this build of the program: a warm cache then
  /// needs no emit(). Absent (a user's kernel): the text itself is what identifies the kernel.
  std::optional<std::string> spec;
  std::function<KernelSource()> emit;
  /// Identity of the generator if it is not this program's (a kernel from a recording). Such a text
  /// identifies itself, whatever its Spec.
  std::string code = {};
  /// Ends the compile early: an error with code "CANCELLED".
  std::stop_token stop = {};
};

/// The Spec as messages show it: its bytes in hexadecimal, "(the text itself)" if there is none.
TESSERA_API std::string spec_text(const KernelRequest& request);

}  // namespace tessera::runtime
