#pragma once
// Values that several ops give to their inputs in cases.

#include <algorithm>
#include <cstdint>

#include "kernels/signature/case.h"

namespace tessera::kernels {

/// Pages of a cache of P, those of a request apart: the step is a prime.
inline int64_t scattered_page(const Case& c, int64_t i) {
  constexpr int64_t kStep = 7919;
  return i * kStep % std::max<int64_t>(c["P"], 1);
}

/// Pages of a cache that no input of the op holds.
inline int64_t slot_page(const Case&, int64_t i) {
  return i * 7 % 1021;
}

}  // namespace tessera::kernels
