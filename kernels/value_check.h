#pragma once
// Values that callers promise, such as ids in range. They are looked at where that costs next to
// nothing: on CPU tensors. On a GPU nothing reads them on the host; there the kernels do the safe
// thing that each op names, and report it (jit::take_value_errors).

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "kernels/arg_check.h"

namespace tessera::kernels {

/// True if the values of this tensor are to be checked: it lies in CPU memory, and no
/// UncheckedValues lives in this thread.
bool values_are_checked(const TensorView& view);

/// Element number `element`, in logical row-major order, of an i32, i64 or bool CPU tensor.
int64_t integer_at(const TensorView& view, int64_t element);

/// Throws, of kind argument naming the tensor, unless all elements lie in lowest .. highest or
/// its values are not checked. Elements that do not count, by their number, may have any value.
///
/// Example: require_values(check, "topk_idx", tensors.at("topk_idx"), -1, num_experts - 1);
void require_values(const ArgCheck& check, std::string_view name, const TensorView& view,
                    int64_t lowest, int64_t highest,
                    const std::function<bool(int64_t)>& counts = {});

/// What a kernel reports of such a tensor, and require_values says of it.
///
/// Example: k.report_unless(size > 0, out_of_range("vocab_sizes"));
std::string out_of_range(std::string_view name);

/// While it lives, CPU calls of this thread take any values, as a GPU does.
class UncheckedValues {
 public:
  UncheckedValues();
  ~UncheckedValues();
  UncheckedValues(const UncheckedValues&) = delete;
  UncheckedValues& operator=(const UncheckedValues&) = delete;
};

}  // namespace tessera::kernels
