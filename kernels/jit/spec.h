#pragma once
// The key that distinguishes the kernels of one builder.

#include <string>
#include <type_traits>

namespace tessera::kernels::jit {

/// The plain bytes of a Spec, a struct without padding.
template <class Spec>
std::string spec_bytes(const Spec& spec) {
  static_assert(std::has_unique_object_representations_v<Spec>,
                "a Spec is compared as bytes: no padding, no floats");
  return std::string(reinterpret_cast<const char*>(&spec), sizeof(Spec));
}

}  // namespace tessera::kernels::jit
