#include "tools/python/core/op_texts.h"

#include <algorithm>
#include <regex>

#include "dsl/base/error.h"
#include "kernels/jit/prepare.h"
#include "kernels/op.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/table.h"
#include "tools/lib/calls/op_call.h"
#include "tools/lib/calls/op_listing.h"

namespace tessera::python {
namespace {

nb::object object_of(const kernels::ParamValue& value) {
  return std::visit(
      [](const auto& v) -> nb::object {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nb::none();
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          return nb::tuple(nb::cast(v));
        } else {
          return nb::cast(v);
        }
      },
      value);
}

nb::tuple tuple_of(const Dims& dims) {
  nb::list list;
  for (const int64_t value : dims) list.append(value);
  return nb::tuple(list);
}

bool has_empty_inputs(const kernels::BenchCase& one) {
  return std::any_of(one.inputs.begin(), one.inputs.end(),
                     [](const auto& input) { return num_elements(input.shape) == 0; });
}

int64_t elements_of(const kernels::BenchCase& one) {
  int64_t sum = 0;
  for (const kernels::BenchCase::Input& input : one.inputs) sum += num_elements(input.shape);
  return sum;
}

/// True if the op takes the case, the values of its tensors included.
bool is_taken(const kernels::OpInfo& op, const kernels::BenchCase& one) {
  try {
    tools::OpCall call(op, one, Device::cpu(), 1);
    kernels::jit::kernels_needed([&] { call.run(); });
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// The smallest that the op takes of its examples, and of the same with fewer tokens.
kernels::BenchCase smallest_case(const kernels::OpInfo& op, std::string_view examples) {
  std::vector<kernels::BenchCase> cases = op.examples;
  for (const std::string& line : kernels::case_lines(examples)) {
    for (const char* const tokens : {"T=2", "T=16", "T=128"}) {
      try {
        cases.push_back(op.case_of(std::regex_replace(line, std::regex("\\bT=[0-9,]+"), tokens)));
      } catch (const Error&) {  // it fits no such number
      }
    }
  }
  std::stable_sort(cases.begin(), cases.end(),
                   [](const auto& a, const auto& b) { return elements_of(a) < elements_of(b); });
  const auto found = std::find_if(cases.begin(), cases.end(), [&](const auto& one) {
    return !has_empty_inputs(one) && is_taken(op, one);
  });
  return found == cases.end() ? op.examples.front() : *found;
}

/// An example: parameters, and inputs as (name, dtype word, shape, strides, values or None).
nb::dict example_of(const kernels::BenchCase& example) {
  nb::dict params;
  for (const auto& [name, value] : example.params) params[name.c_str()] = object_of(value);
  nb::list inputs;
  for (const kernels::BenchCase::Input& input : example.inputs) {
    nb::object values = nb::none();
    if (input.values) {
      nb::list list;
      for (int64_t i = 0; i < num_elements(input.shape); ++i) list.append(input.values(i));
      values = list;
    }
    inputs.append(nb::make_tuple(input.name, std::string(name(input.dtype)), tuple_of(input.shape),
                                 tuple_of(input.strides), values));
  }
  nb::dict made;
  made["params"] = params;
  made["inputs"] = inputs;
  return made;
}

nb::list examples(const std::string& name) {
  nb::list made;
  for (const kernels::BenchCase& example : kernels::find_op(name).examples) {
    made.append(example_of(example));
  }
  return made;
}

nb::dict op_texts(const std::string& name) {
  const kernels::OpInfo& op = kernels::find_op(name);
  nb::dict texts;
  texts["listing"] = tools::list_text({op}, "");
  texts["may_wait"] = static_cast<bool>(op.trim);
  for (const kernels::Op* one : kernels::all_ops()) {
    if (one->name != name) continue;
    texts["signature"] = std::string(one->signature);
    texts["example"] = example_of(smallest_case(op, one->examples));
  }
  return texts;
}

}  // namespace

void add_op_texts(nb::module_& module) {
  module.def(
      "table_json", [] { return tools::list_json(kernels::ops(), ""); },
      "The table of ops, as `tessera list --json` prints it.");
  module.def(
      "examples", &examples, nb::arg("op"),
      "The examples of an op: dicts of parameters and of inputs as (name, dtype word, shape, "
      "strides, values); no values where any will do.");
  module.def("op_texts", &op_texts, nb::arg("op"), "What write_ops.py writes of an op.");
}

}  // namespace tessera::python
