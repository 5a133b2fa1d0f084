#include "tools/python/core/output_shapes.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>

#include "kernels/op.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/options.h"

namespace tessera::python {
namespace {

using kernels::OutputInfo;

nb::tuple tuple_of(const Dims& dims) {
  nb::list list;
  for (const int64_t value : dims) list.append(value);
  return nb::tuple(list);
}

Dims dims_of(nb::handle values) {
  Dims dims;
  for (const nb::handle value : values) dims.push_back(nb::cast<int64_t>(value));
  return dims;
}

/// (dtype word, shape) or (dtype word, shape, strides): a view that no memory is behind.
TensorView view_of(const std::string& op, const std::string& name, nb::handle given) {
  const nb::tuple parts = nb::cast<nb::tuple>(given);
  const auto word = nb::cast<std::string>(parts[0]);
  const auto dtype = dtype_from_name(word);
  if (!dtype) refuse(op, name, "DTYPE", "no such dtype", "a dtype word", word);
  const Dims shape = dims_of(parts[1]);
  const bool has_strides = parts.size() > 2 && !parts[2].is_none();
  constexpr uintptr_t kNowhere = uintptr_t{1} << 20;
  return {reinterpret_cast<void*>(kNowhere), *dtype, shape,
          has_strides ? dims_of(parts[2]) : row_major_strides(shape), Device::cpu()};
}

std::vector<OutputInfo> outputs(const std::string& name, const nb::dict& tensors,
                                const nb::dict& params) {
  const kernels::OpInfo& op = kernels::find_op(name);
  kernels::Tensors given;
  const nb::list rows = tensors.items();  // a copy: reading a number may run Python code
  for (const nb::handle row : rows) {
    const nb::object value = row[1];
    const auto tensor = nb::cast<std::string>(row[0]);
    if (value.is_none()) continue;
    if (nb::isinstance<nb::list>(value)) {
      size_t i = 0;
      for (const nb::handle item : nb::tuple(value)) {
        const std::string item_name = tensor + "." + std::to_string(i++);
        given[item_name] = view_of(name, item_name, item);
      }
    } else {
      given[tensor] = view_of(name, tensor, value);
    }
  }
  std::vector<nb::object> values;
  std::vector<PyObject*> arguments;
  for (const kernels::ParamInfo& param : op.params) {
    values.push_back(params.contains(param.name.c_str()) ? nb::object(params[param.name.c_str()])
                                                         : nb::borrow(Py_Ellipsis));
    arguments.push_back(values.back().ptr());
  }
  OptionReader options;
  options.read(op, arguments.data());
  return op.outputs(given, checked_params(op, options.all()));
}

}  // namespace

void add_output_shapes(nb::module_& module) {
  nb::class_<OutputInfo>(module, "OutputInfo",
                         "What an output or a workspace of a call looks like.")
      .def_prop_ro("name", [](const OutputInfo& info) { return info.name; })
      .def_prop_ro("dtype", [](const OutputInfo& info) { return std::string(name(info.dtype)); })
      .def_prop_ro("shape", [](const OutputInfo& info) { return tuple_of(info.shape); })
      .def_prop_ro("strides", [](const OutputInfo& info) { return tuple_of(info.strides); })
      .def_ro("storage_elements", &OutputInfo::storage_elements)
      .def_ro("workspace", &OutputInfo::workspace)
      .def_ro("starts_at_zero", &OutputInfo::starts_at_zero);
  module.def(
      "outputs", &outputs, nb::arg("op"), nb::arg("tensors"), nb::arg("params") = nb::dict(),
      "The outputs and workspaces of a call whose tensors are given by name as (dtype word, shape) "
      "or (dtype word, shape, strides), lists of these for lists. In-place tensors and "
      "accumulators that are given are tensors too.");
}

}  // namespace tessera::python
