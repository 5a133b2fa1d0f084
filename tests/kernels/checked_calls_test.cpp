// Every op checks the memory of its arguments.

#include <fmt/format.h>

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/ops/bench_inputs.h"
#include "tests/support/ops/op_errors.h"

using namespace tessera;

TEST_CASE("no op takes a tensor that begins between two elements", "[kernels][call][errors]") {
  for (const kernels::OpInfo& op : kernels::ops()) {
    const test::OpCase example = test::case_of(op.examples.front());
    test::HostTensors all = example.inputs;
    kernels::Tensors views;
    for (const auto& [name, tensor] : all) views[name] = tensor.view();
    for (const kernels::OutputInfo& info :
         op.outputs(views, kernels::check_params(op, example.params))) {
      all.try_emplace(info.name, info.dtype, info.shape, info.strides, info.storage_elements);
    }
    for (const auto& [name, tensor] : all) views[name] = tensor.view();
    for (const auto& [name, tensor] : all) {
      if (bytes(tensor.dtype()) == 1 || tensor.size() == 0) continue;
      CAPTURE(op.name, name);
      kernels::Tensors moved = views;
      moved[name].data = static_cast<char*>(moved[name].data) + 1;
      const std::string text = test::run_error(op.name, moved, example.params);
      CHECK(text.starts_with(
          fmt::format("tessera: {}: argument '{}' is not aligned\n", op.name, name)));
    }
  }
}
