#include "kernels/linear/parts/chunk_tensors.h"

#include "kernels/checks/value_check.h"

namespace tessera::kernels::linear {

using namespace dsl;

Ref rows_of(Builder& k, const std::string& name, DType dtype, const std::vector<Arg>& shape,
            int64_t width) {
  const DimOptions apart{.multiple_of = width};
  return k.input(name, dtype, shape,
                 {.strides = {k.stride(name + "_request", apart), k.stride(name + "_token", apart),
                              k.stride(name + "_head", apart), 1},
                  .align = int64_t{bytes(dtype)} * width});
}

Value length_of(Builder& k, const Ref& lengths, const Value& request, const Value& tokens) {
  auto given = k.let("given_length", lengths(request));
  k.report_unless(given >= 0 && given <= tokens, out_of_range("lengths"));
  return k.let("length", k.uniform(max(min(given, tokens), 0)));
}

}  // namespace tessera::kernels::linear
