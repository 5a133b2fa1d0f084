// Outputs and result of a call: the outputs that its caller gave, and the result.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tools/python/core/errors.h"
#include "tools/python/core/op_function_call.h"

namespace tessera::python {

using kernels::TensorRule;

// Forms of `out`: the tensor of a single output, names with tensors, or a result.
void OpFunction::read_given_outputs(Call& call, PyObject* out) const {
  for (size_t i = inputs_.size(); i > 0 && rule(inputs_[i - 1]).accumulate; --i) {
    PyObject* const accumulator = call.arguments[i - 1];
    if (!is_absent_object(accumulator)) call.given[inputs_[i - 1]] = accumulator;
  }
  if (is_absent_object(out)) return;
  if (PyDict_Check(out)) {
    PyObject *name = nullptr, *tensor = nullptr;
    size_t expected = 0;
    for (Py_ssize_t at = 0; PyDict_Next(out, &at, &name, &tensor) != 0;) {
      const size_t field = find_name(field_names_, name, expected);
      if (field == fields_.size()) refuse_unknown_output(*table_, nb::borrow(name));
      give(call, fields_[field], tensor);
      expected = field + 1;
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
  call.given_outputs.push_back(nb::borrow(tensor));
}

void OpFunction::add_given_outputs(Call& call) const {
  for (const size_t slot : fields_) {
    PyObject* const given = call.given[slot];
    if (given == nullptr || is_argument(slot)) continue;
    const TensorRule& tensor = rule(slot);
    call.key.push_back(slot);
    if (tensor.list.empty()) {
      call.add(slot, tensor, given, table_->name);
      continue;
    }
    const nb::object items = sequence_of(given, table_->name, tensor.name);
    call.key.push_back(nb::len(items));
    for (const nb::handle item : items) call.add(slot, tensor, item.ptr(), table_->name);
    call.loans.keep(items);
  }
}

// The demands on outputs of this kind of call, as far as the op itself does not say it.
void OpFunction::check_given(const Call& call, Entry& entry) const {
  for (const size_t slot : fields_) {
    if (call.given[slot] == nullptr || is_argument(slot)) continue;
    const TensorRule& tensor = rule(slot);
    const auto is_of_slot = [&](const Made& made) { return made.slot == slot; };
    const auto written = std::count_if(entry.made.begin(), entry.made.end(), is_of_slot);
    if (!tensor.list.empty() && call.slots[slot].count != written) {
      refuse(table_->name, tensor.name, "SHAPE",
             fmt::format("list '{}' has the wrong length", tensor.name), "a tensor for each output",
             fmt::format("{}", call.slots[slot].count));
    }
    if (tensor.list.empty() && written == 0) {
      refuse(table_->name, tensor.name, "NAME",
             fmt::format("'out' names '{}', which this call does not write", tensor.name),
             "outputs that the call asks for", tensor.name);
    }
  }
  for (Made& made : entry.made) {
    if (call.given[made.slot] == nullptr || is_argument(made.slot)) continue;
    const TensorView& view = call.views[call.slots[made.slot].first + made.item];
    const kernels::OutputInfo& output = made.info;
    const int64_t needed = output.storage_elements * bytes(output.dtype);
    const bool is_like = view.dtype == output.dtype && view.shape == output.shape;
    made.needs_room = is_like && needed > view.span_bytes();  // else the op says what is wrong
  }
}

// Ops write the padding of an output as well, which no extent or stride of a given tensor shows. Memory that holds other
// elements too would lose them.
void OpFunction::check_room(const Call& call, const Made& made, PyObject* given) const {
  const kernels::OutputInfo& output = made.info;
  const int64_t element = bytes(output.dtype), needed = output.storage_elements * element;
  const std::optional<MemoryAround> memory = call.library->memory_around(given);
  const int64_t before = memory ? memory->bytes_before : 0;
  const int64_t behind = memory ? memory->bytes_behind : 0;
  if (before == 0 && behind == needed) return;
  const std::string expected =
      fmt::format("memory of its own of {} elements, as the op allocates", output.storage_elements);
  if (behind < needed) {
    refuse(table_->name, output.name, "STRIDES",
           fmt::format("output '{}' has no room for its padding", output.name), expected,
           memory ? fmt::format("{} elements", behind / element)
                  : std::string("memory whose end is not known"));
  }
  refuse(table_->name, output.name, "STRIDES",
         fmt::format("output '{}' is a part of larger memory, which its padding would overwrite",
                     output.name),
         expected,
         fmt::format("memory of {} bytes, the output begins at byte {}", before + behind, before));
}

// Before the outputs are placed: what the call allocates, nobody else knows.
void OpFunction::announce_writes(const Call& call) const {
  if (call.library == nullptr) return;
  const auto each = [&](const std::vector<size_t>& slots, const auto& visit) {
    for (const size_t slot : slots) {
      const auto& [first, count] = call.slots[slot];
      for (size_t i = first; i < size_t{first} + count; ++i) visit(call.tensors[i].object, slot);
    }
  };
  if (call.library->may_have_tangents()) {
    each(inputs_,
         [&](PyObject* tensor, size_t) { call.library->refuse_tangent(tensor, table_->name); });
  }
  each(written_, [&](PyObject* tensor, size_t slot) {
    call.library->will_write(tensor, table_->name, rule(slot).name);
  });
}

void OpFunction::place_outputs(Call& call) const {
  for (const Made& made : call.entry->made) {
    PyObject* const given = call.given[made.slot];
    if (given == nullptr) {
      call.made.push_back(made.allocation->make());
      call.add_known(made.slot, rule(made.slot), call.made.back(), table_->name);
    } else if (is_argument(made.slot)) {  // an accumulator
      call.made.push_back(nb::borrow(given));
    } else {
      PyObject* const tensor = call.tensors[call.slots[made.slot].first + made.item].object;
      call.made.push_back(nb::borrow(tensor));
      if (made.needs_room) check_room(call, made, tensor);
    }
  }
}

nb::object OpFunction::field(Call& call, size_t slot) const {
  const bool is_list = !rule(slot).list.empty();
  nb::object list = is_list ? nb::object(nb::list()) : nb::none();
  for (size_t i = 0; i < call.made.size(); ++i) {
    if (call.entry->made[i].slot != slot) continue;
    if (!is_list) return nb::borrow(call.made[i]);
    check(PyList_Append(list.ptr(), call.made[i]));
  }
  return list;  // None for an output that was not asked for
}

nb::object OpFunction::result(Call& call) const {
  if (fields_.empty()) return nb::none();
  if (fields_.size() == 1) return field(call, fields_[0]);
  const auto size = static_cast<Py_ssize_t>(fields_.size());
  // An instance of the class, as its own `_make` would fill it, without a call of Python code.
  const nb::handle type = result_type_.is_valid()
                              ? nb::handle(result_type_)
                              : nb::handle(reinterpret_cast<PyObject*>(&PyTuple_Type));
  const nb::object fields = owned(
      PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(type.ptr()), size + (may_wait_ ? 1 : 0)));
  for (Py_ssize_t i = 0; i < size; ++i) {
    nb::object value = field(call, fields_[static_cast<size_t>(i)]);
    if (may_wait_ && i + 1 == size) {  // the last output once more, as a list of the host
      nb::object on_host = call.waited ? nb::object(value.attr("tolist")()) : nb::none();
      check(PyTuple_SetItem(fields.ptr(), size, on_host.release().ptr()));
    }
    check(PyTuple_SetItem(fields.ptr(), i, value.release().ptr()));
  }
  return fields;
}

}  // namespace tessera::python
