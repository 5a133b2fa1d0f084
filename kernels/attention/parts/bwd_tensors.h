#pragma once
// Parameters, places and masks that the kernels of attention_bwd share.

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "dsl/builder.h"
#include "kernels/attention/parts/bwd_kernel.h"
#include "kernels/checks/value_check.h"

namespace tessera::kernels::attention {

inline constexpr auto kF32 = DType::f32;
inline constexpr auto kI32 = DType::i32;
inline constexpr float kLowest = -std::numeric_limits<float>::infinity();

/// The lengths of requests and how they stand to each other.
struct BackwardTensors {
  BackwardTensors(const char* name, const BackwardSpec& s)
      : spec(s), k(name), batch(k.dim("B")), q_rows(k.dim("Sq")), heads(k.dim("h")) {
    if (s.has_q_lengths != 0) q_lengths = k.input("q_lengths", kI32, {batch}, {.align = 4});
  }

  DType dtype() const { return spec.is_f16 != 0 ? DType::f16 : DType::bf16; }
  dsl::Ref input(const char* name, const dsl::Value& rows, const dsl::Value& of_heads,
                 int64_t width, int vector) {
    std::vector<dsl::Arg> strides;
    for (const char* of : {"_of_request", "_of_row", "_of_head"}) {
      strides.emplace_back(k.stride(std::string(name) + of, {.multiple_of = vector}));
    }
    strides.emplace_back(1);
    return k.input(name, dtype(), {batch, rows, of_heads, width},
                   {.strides = strides, .align = vector * bytes(dtype())});
  }
  dsl::Value length(const char* name, const std::optional<dsl::Ref>& lengths,
                    const dsl::Value& request, const dsl::Value& rows) {
    if (!lengths) return rows;
    dsl::Value given = (*lengths)(request);
    k.report_unless(given >= 0 && given <= rows, out_of_range(name));
    return k.let(name, min(max(given, 0), rows));
  }

  const BackwardSpec spec;
  dsl::Builder k;
  dsl::Value batch, q_rows, heads;
  std::optional<dsl::Ref> q_lengths;
};

}  // namespace tessera::kernels::attention
