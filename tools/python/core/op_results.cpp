// What a call writes and returns: the outputs that its caller gave, and the result.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/python/core/errors.h"
#include "tools/python/core/op_function_call.h"

namespace tessera::python {

// What `out` may be: the tensor of a single output, names with tensors, or a result.
void OpFunction::read_given_outputs(Call& call, PyObject* out, PyObject* const* arguments) const {
  for (size_t i = inputs_.size(); i > 0 && rule(inputs_[i - 1]).accumulate; --i) {
    if (!is_absent_object(arguments[i - 1])) call.given[inputs_[i - 1]] = arguments[i - 1];
  }
  if (is_absent_object(out)) return;
  if (PyDict_Check(out)) {
    PyObject *name = nullptr, *tensor = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(out, &at, &name, &tensor) != 0;) {
      const auto found = std::find_if(fields_.begin(), fields_.end(), [&](size_t slot) {
        return PyUnicode_Check(name) && text_of(name) == rule(slot).name;
      });
      if (found == fields_.end()) refuse_unknown_output(*table_, name);
      give(call, *found, tensor);
    }
  } else if (fields_.size() == 1) {
    give(call, fields_[0], out);
  } else if (PyTuple_Check(out) && PyTuple_Size(out) >= static_cast<Py_ssize_t>(fields_.size())) {
    for (size_t i = 0; i < fields_.size(); ++i) {
      give(call, fields_[i], PyTuple_GetItem(out, static_cast<Py_ssize_t>(i)));
    }
  } else {
    refuse(table_->name, "out", "TYPE", "argument 'out' has the wrong type",
           fields_.empty()
               ? "nothing: the op has no outputs"
               : fmt::format("a dict of names and tensors, or a result of the op: {} fields",
                             fields_.size()),
           describe(out));
  }
}

void OpFunction::give(Call& call, size_t slot, PyObject* tensor) const {
  if (is_absent_object(tensor) || call.given[slot] == tensor) return;
  if (is_argument(slot)) {
    refuse(table_->name, "out", "NAME",
           fmt::format("'out' names '{}', which is an argument", rule(slot).name),
           "outputs only; an accumulator is given as an argument", rule(slot).name);
  }
  call.given[slot] = tensor;
}

nb::object OpFunction::field(Call& call, size_t slot) const {
  const bool is_list = !rule(slot).list.empty();
  nb::object list = is_list ? nb::object(nb::list()) : nb::none();
  for (size_t i = 0; i < call.made.size(); ++i) {
    if (call.entry->made[i].slot != slot) continue;
    if (!is_list) return std::move(call.made[i]);
    check(PyList_Append(list.ptr(), call.made[i].ptr()));
  }
  return list;  // None for an output that was not asked for
}

nb::object OpFunction::result(Call& call) const {
  if (fields_.empty()) return nb::none();
  if (fields_.size() == 1) return field(call, fields_[0]);
  const auto size = static_cast<Py_ssize_t>(fields_.size());
  nb::object fields = owned(PyTuple_New(size + (may_wait_ ? 1 : 0)));
  for (Py_ssize_t i = 0; i < size; ++i) {
    nb::object value = field(call, fields_[static_cast<size_t>(i)]);
    if (may_wait_ && i + 1 == size) {  // the last output once more, as a list of the host
      nb::object on_host = call.waited ? nb::object(value.attr("tolist")()) : nb::none();
      PyTuple_SetItem(fields.ptr(), size, on_host.release().ptr());
    }
    PyTuple_SetItem(fields.ptr(), i, value.release().ptr());
  }
  if (!result_type_.is_valid()) return fields;
  // What `<op>_result._make(fields)` comes to, without a call of Python code.
  static const auto make_tuple =
      reinterpret_cast<newfunc>(PyType_GetSlot(&PyTuple_Type, Py_tp_new));
  const nb::object arguments = owned(PyTuple_Pack(1, fields.ptr()));
  return owned(
      make_tuple(reinterpret_cast<PyTypeObject*>(result_type_.ptr()), arguments.ptr(), nullptr));
}

}  // namespace tessera::python
