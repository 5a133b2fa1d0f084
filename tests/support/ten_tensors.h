#pragma once
// An op with ten tensors, as C++ callers see one: for what a call costs.

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/builder.h"
#include "kernels/jit/call_memo.h"
#include "kernels/jit/jit.h"

namespace tessera::test {

/// out = the sum of nine inputs, f32 [rows].
inline ir::Kernel sum_of_nine() {
  dsl::Builder k("sum_of_nine");
  auto rows = k.dim("rows");
  std::vector<dsl::Ref> inputs;
  for (int i = 0; i < 9; ++i) {
    inputs.push_back(k.input("x" + std::to_string(i), DType::f32, {rows}, {.align = 4}));
  }
  auto out = k.output("out", DType::f32, {rows}, {.align = 4});
  auto at = k.launch({ceil_div(rows, 64)}, {.threads = 64});
  k.parallel({64}, [&](dsl::Value i) {
    dsl::Value sum = inputs[0](at.x * 64 + i);
    for (size_t t = 1; t < inputs.size(); ++t) sum = sum + inputs[t](at.x * 64 + i);
    out(at.x * 64 + i) = sum;
  });
  return k.finish();
}

using TenTensors = std::array<TensorView, 10>;

/// A call of an op with these tensors; `checked` is the call in full.
template <class Checked>
void call_with_ten(std::string_view op, const TenTensors& t,
                   std::initializer_list<kernels::jit::OptionValue> options, kernels::Stream stream,
                   const Checked& checked) {
  kernels::jit::CallMemo memo(op);
  for (const TensorView& tensor : t) memo.add_tensor(tensor);
  for (const kernels::jit::OptionValue& option : options) memo.add_option(option);
  if (!memo.launch_again(stream)) memo.learn(checked);
}

/// The op's function, with its checks.
inline void call_sum_of_nine(const kernels::jit::Function& function, const TenTensors& t,
                             kernels::Stream stream) {
  call_with_ten("sum_of_nine", t, {}, stream, [&] { function(t, {}, stream); });
}

}  // namespace tessera::test
