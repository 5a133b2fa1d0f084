#pragma once
// Values that callers promise, such as ids in range. They are checked where that is cheap: on CPU
// tensors. On a GPU the host does not read them; the kernels fall back to the safe behaviour that
// each op documents, and report it (jit::take_value_errors).

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "kernels/checks/arg_check.h"

namespace tessera::kernels {

/// True if the values of this tensor are checked: it is given, in CPU memory, and this thread has no
/// UncheckedValues. An empty tensor, whose address may be null, is given.
bool values_are_checked(const TensorView& view);

/// Element `element`, in logical row-major order, of an i16, i32, i64 or bool CPU tensor.
int64_t integer_at(const TensorView& view, int64_t element);

/// The indices of element `element` in row-major order.
Dims place_of(const TensorView& view, int64_t element);

/// Throws an argument error naming the tensor unless all elements are in lowest .. highest or its
/// values are not checked. Elements that do not count, by their index, may have any value.
///
/// Example: require_values(check, "topk_idx", tensors.at("topk_idx"), -1, num_experts - 1);
void require_values(const ArgCheck& check, std::string_view name, const TensorView& view,
                    int64_t lowest, int64_t highest,
                    const std::function<bool(int64_t)>& counts = {});

/// Throws an argument error naming the tensor unless its elements ascend from at least 0 to at most `highest`, or its
/// values are not checked. They are the ends of ranges, as psum.
void require_ends(const ArgCheck& check, std::string_view name, const TensorView& view,
                  int64_t highest);

/// The text that a kernel reports about such a tensor, also used by require_values.
///
/// Example: k.report_unless(size > 0, out_of_range("vocab_sizes"));
std::string out_of_range(std::string_view name);

/// While it lives, this thread's CPU calls accept any values, as on a GPU.
class UncheckedValues {
 public:
  UncheckedValues();
  ~UncheckedValues();
  UncheckedValues(const UncheckedValues&) = delete;
  UncheckedValues& operator=(const UncheckedValues&) = delete;

 private:
  const bool before_;
};

}  // namespace tessera::kernels
