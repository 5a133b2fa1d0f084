// Every op's C++ function goes through call_op, which makes the second call of one kind cheap, and
// checks its arguments.

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/ops/bench_inputs.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/places.h"

using namespace tessera;

namespace {

/// The ops of all call_op(name_op(), ...) in the sources of the kernels.
std::set<std::string> remembered_ops() {
  std::set<std::string> names;
  const std::regex call(R"rx(call_op\(\s*(\w+)_op\(\))rx");
  const std::filesystem::path folder = test::in_source("kernels");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".cpp") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const std::string source = text.str();
    for (std::sregex_iterator it(source.begin(), source.end(), call), end; it != end; ++it) {
      names.insert((*it)[1]);
    }
  }
  return names;
}

}  // namespace

TEST_CASE("the C++ function of every op remembers its calls", "[kernels][call]") {
  const std::set<std::string> remembered = remembered_ops();
  for (const kernels::OpInfo& op : kernels::ops()) {
    CAPTURE(op.name);
    CHECK(remembered.contains(op.name));
  }
  CHECK(remembered.size() == kernels::ops().size());
}

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
      if (bytes(tensor.dtype()) == 1) continue;
      CAPTURE(op.name, name);
      kernels::Tensors moved = views;
      moved[name].data = static_cast<char*>(moved[name].data) + 1;
      const std::string text = test::run_error(op.name, moved, example.params);
      CHECK(text.starts_with(
          fmt::format("tessera: {}: argument '{}' is not aligned\n", op.name, name)));
    }
  }
}
