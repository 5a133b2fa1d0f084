#include "tools/python/core/op_function.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/nearest_name.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/options.h"
#include "tools/python/core/redirect.h"

namespace tessera::python {

using kernels::OpInfo;
using kernels::OutputInfo;
using kernels::ParamInfo;
using kernels::Role;
using kernels::TensorInfo;

namespace {

constexpr size_t kNone = static_cast<size_t>(-1);
constexpr size_t kMostFields = 32;
constexpr size_t kMostEntries = 1024;  // per op; then all are forgotten

bool is_absent_object(PyObject* object) {
  return object == Py_Ellipsis || object == Py_None;
}

bool is_always_there(const TensorInfo& tensor) {
  return tensor.role != Role::out && !tensor.optional && !tensor.accumulate;
}

std::string stem_of(const std::string& name) {
  return name.substr(0, name.find('.'));
}

}  // namespace

/// One call on its way. Views, and what they are views of, stand in the order: arguments, outputs.
struct OpFunction::Call {
  struct Slot {
    const char* name;
    size_t first, count;
    bool is_list;
  };

  const Library* library = nullptr;
  PyObject* first_tensor = nullptr;
  const char* first_name = nullptr;
  Device device;
  bool has_stream = false;
  kernels::Stream stream = nullptr;
  Inline<TensorView, 24> views;
  Inline<Slot, 32> slots;
  OptionReader options;
  Inline<uint64_t, 256> key;
  std::array<PyObject*, kMostFields> given = {};  // outputs that the caller gave, by field
  std::shared_ptr<const Entry> entry;
  std::vector<nb::object> made;  // by entry->made
  std::vector<Dims> trimmed;     // the same, where data decided
  Loans loans;

  Inline<kernels::NamedTensor, 32> tensors;
  Inline<kernels::NamedList, 8> lists;

  void begin_slot(const char* name, bool is_list) {
    slots.push_back({name, views.size(), 0, is_list});
  }
  const TensorView& add(PyObject* object, std::string_view op, const char* name);
  void add_absent() {
    views.push_back(TensorView());
    ++slots[slots.size() - 1].count;
  }
  void add_to_key(const TensorView& view);
  void name_tensors();
};

/// One tensor that a kind of call writes.
struct OpFunction::Made {
  OutputInfo info;
  std::unique_ptr<Allocation> allocation;
  size_t field = kNone;  // kNone: a workspace
  size_t item = 0;       // of a list
};

struct OpFunction::Entry {
  std::vector<uint64_t> key;
  std::vector<Made> made;
};

const TensorView& OpFunction::Call::add(PyObject* object, std::string_view op, const char* name) {
  const TensorType& type = tensor_type_of(object);
  if (type.library == nullptr) {
    refuse(op, name, "TYPE", fmt::format("argument '{}' is no tensor", name),
           "a tensor of torch, numpy or another library that speaks DLPack", describe(object));
  }
  if (type.is_redirected) throw Redirected();
  if (library == nullptr) {
    library = type.library;
    first_tensor = object;
    first_name = name;
    if (library->is_intercepted()) throw Redirected();
  } else if (library != type.library) {
    refuse(op, name, "TYPE", fmt::format("argument '{}' is of another library", name),
           fmt::format("{}, as '{}' is", library->name(), first_name),
           std::string(type.library->name()));
  }
  const TensorView view = library->borrow(object, op, name, has_stream ? &stream : nullptr, loans);
  if (first_tensor == object) device = view.device;
  ++slots[slots.size() - 1].count;
  return views.push_back(view);
}

void OpFunction::Call::add_to_key(const TensorView& view) {
  key.push_back(static_cast<uint64_t>(view.dtype) | static_cast<uint64_t>(view.rank()) << 8 |
                static_cast<uint64_t>(view.device.ordinal) << 16 |
                uint64_t{view.device.is_cuda()} << 48 | uint64_t{view.read_only} << 49);
  for (int i = 0; i < view.rank(); ++i) {
    key.push_back(static_cast<uint64_t>(view.shape[i]));
    key.push_back(static_cast<uint64_t>(view.strides[i]));
  }
}

void OpFunction::Call::name_tensors() {
  for (size_t i = tensors.size() + lists.size(); i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    if (slot.is_list) {
      lists.push_back({slot.name, std::span<const TensorView>(&views[slot.first], slot.count)});
    } else {
      tensors.push_back({slot.name, views[slot.first]});
    }
  }
}

OpFunction::OpFunction(const OpInfo& op) : op_(&op) {
  const auto add = [&](const auto& belongs) {
    for (const TensorInfo& tensor : op.tensors) {
      if (belongs(tensor)) inputs_.push_back(&tensor);
    }
  };
  add(is_always_there);
  add([](const TensorInfo& t) {
    return t.role != Role::out && !t.accumulate && !is_always_there(t);
  });
  add([](const TensorInfo& t) { return t.accumulate; });
  for (const TensorInfo& tensor : op.tensors) {
    if (tensor.role != Role::out && !tensor.accumulate) continue;
    const auto at = std::find(inputs_.begin(), inputs_.end(), &tensor);
    fields_.push_back(&tensor);
    argument_of_field_.push_back(at == inputs_.end() ? kNone
                                                     : static_cast<size_t>(at - inputs_.begin()));
  }
  TESSERA_CHECK(fields_.size() <= kMostFields, "an op with too many outputs");
}

nb::object OpFunction::operator()(PyObject* const* arguments, size_t count) {
  const size_t first_option = inputs_.size(), out = first_option + op_->params.size();
  TESSERA_CHECK(count == out + 3, "an op called with a wrong number of arguments");
  PyObject* const unknown = arguments[out + 2];
  if (unknown != Py_None && PyDict_Size(unknown) > 0) refuse_unknown_name(*op_, inputs_, unknown);
  try {
    Call call;
    if (!is_absent_object(arguments[out + 1])) {
      call.has_stream = true;
      call.stream = stream_of(arguments[out + 1], op_->name);
    }
    borrow_inputs(call, arguments);
    call.options.read(*op_, arguments + first_option, call.key);
    read_given_outputs(call, arguments[out], arguments);
    call.entry = entry_of(call);
    place_outputs(call);
    if (!call.has_stream && call.library != nullptr) {
      call.stream = call.library->current_stream(call.device);
    }
    run(call);
    if (op_->trim) trim(call);
    return result(call);
  } catch (const Redirected&) {
    return redirected_call(op_->name, arguments, count);
  }
}

void OpFunction::borrow_inputs(Call& call, PyObject* const* arguments) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const TensorInfo& info = *inputs_[i];
    const char* const name = info.name.c_str();
    call.begin_slot(name, info.list);
    if (is_absent_object(arguments[i])) {
      call.key.push_back(~uint64_t{0});
      if (!info.list) call.add_absent();
    } else if (!info.list) {
      call.add_to_key(call.add(arguments[i], op_->name, name));
    } else {
      const nb::object items = sequence_of(arguments[i], op_->name, name);
      call.key.push_back(nb::len(items));
      for (const nb::handle item : items) call.add_to_key(call.add(item.ptr(), op_->name, name));
      call.loans.keep(items);
    }
  }
}

// What `out` may be: the tensor of a single output, names with tensors, or a result.
void OpFunction::read_given_outputs(Call& call, PyObject* out, PyObject* const* arguments) const {
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (argument_of_field_[i] == kNone) continue;
    PyObject* const accumulator = arguments[argument_of_field_[i]];
    if (!is_absent_object(accumulator)) call.given[i] = accumulator;
  }
  if (is_absent_object(out)) return;
  const auto give = [&](size_t field, PyObject* tensor) {
    if (is_absent_object(tensor)) return;
    if (argument_of_field_[field] != kNone) {
      if (call.given[field] == tensor) return;
      refuse(op_->name, "out", "NAME",
             fmt::format("'out' names '{}', which is an argument", fields_[field]->name),
             "outputs only; an accumulator is given as an argument", fields_[field]->name);
    }
    call.given[field] = tensor;
  };
  if (PyDict_Check(out)) {
    PyObject *name = nullptr, *tensor = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(out, &at, &name, &tensor) != 0;) {
      const auto found = std::find_if(fields_.begin(), fields_.end(), [&](const TensorInfo* field) {
        return PyUnicode_Check(name) && text_of(name) == field->name;
      });
      if (found == fields_.end()) refuse_unknown_output(*op_, fields_, name);
      give(static_cast<size_t>(found - fields_.begin()), tensor);
    }
  } else if (PyTuple_Check(out) && fields_.size() > 1) {
    const auto size = static_cast<size_t>(PyTuple_Size(out));
    if (size < fields_.size()) {
      refuse(op_->name, "out", "TYPE", "argument 'out' has too few tensors",
             fmt::format("a result of the op, {} fields", fields_.size()), fmt::format("{}", size));
    }
    for (size_t i = 0; i < fields_.size(); ++i) {
      give(i, PyTuple_GetItem(out, static_cast<Py_ssize_t>(i)));
    }
  } else if (fields_.size() == 1) {
    give(0, out);
  } else {
    refuse(op_->name, "out", "TYPE", "argument 'out' has the wrong type",
           fields_.empty() ? "nothing: the op has no outputs"
                           : "a dict of names and tensors, or a result of the op",
           describe(out));
  }
}

std::shared_ptr<const OpFunction::Entry> OpFunction::entry_of(Call& call) {
  call.key.push_back(reinterpret_cast<uintptr_t>(call.library));
  uint64_t hash = 0;
  for (size_t i = 0; i < call.key.size(); ++i) {
    hash = (hash ^ call.key[i]) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  const auto found = entries_.find(hash);
  if (found != entries_.end() && found->second->key.size() == call.key.size() &&
      std::memcmp(found->second->key.data(), call.key.data(), call.key.size() * sizeof(uint64_t)) ==
          0) {
    return found->second;
  }
  call.name_tensors();
  const std::span options = call.options.all();
  const kernels::Params params = checked_params(*op_, options);
  const std::vector<OutputInfo> outputs =
      op_->outputs(given_tensors(*op_, {call.tensors.data(), call.tensors.size()},
                                 {call.lists.data(), call.lists.size()}),
                   params);
  auto entry = std::make_shared<Entry>();
  entry->key.assign(call.key.data(), call.key.data() + call.key.size());
  for (const OutputInfo& output : outputs) {
    Made made{output, nullptr, kNone, 0};
    const std::string stem = stem_of(output.name);
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (fields_[i]->name == (fields_[i]->list ? stem : output.name)) made.field = i;
    }
    if (stem != output.name) made.item = std::stoul(output.name.substr(stem.size() + 1));
    const Library& library = call.library != nullptr ? *call.library : numpy_library();
    made.allocation = library.prepare(output, call.device, call.first_tensor);
    entry->made.push_back(std::move(made));
  }
  if (entries_.size() >= kMostEntries) entries_.clear();
  entries_[hash] = entry;
  return entry;
}

void OpFunction::place_outputs(Call& call) const {
  const std::vector<Made>& made = call.entry->made;
  call.made.resize(made.size());
  std::array<bool, kMostFields> is_made = {};
  for (size_t i = 0; i < made.size(); ++i) {
    const size_t field = made[i].field;
    const bool is_list = field != kNone && fields_[field]->list;
    if (field != kNone) is_made[field] = true;
    if (field != kNone && argument_of_field_[field] != kNone && call.given[field] != nullptr) {
      call.made[i] = nb::borrow(call.given[field]);  // an accumulator: among the arguments already
      continue;
    }
    const char* const name =
        field == kNone ? made[i].info.name.c_str() : fields_[field]->name.c_str();
    if (!is_list || made[i].item == 0) call.begin_slot(name, is_list);
    if (field == kNone || call.given[field] == nullptr) {
      call.made[i] = made[i].allocation->make();
    } else if (is_list) {
      const nb::object items = sequence_of(call.given[field], op_->name, name);
      if (made[i].item >= nb::len(items)) {
        refuse(op_->name, name, "", fmt::format("list '{}' has the wrong length", name),
               "a tensor for each output", fmt::format("{}", nb::len(items)));
      }
      call.made[i] = items[made[i].item];
    } else {
      call.made[i] = nb::borrow(call.given[field]);
    }
    call.add(call.made[i].ptr(), op_->name, name);
  }
  for (size_t field = 0; field < fields_.size(); ++field) {  // given, not asked for: the op says so
    if (call.given[field] == nullptr || is_made[field] || argument_of_field_[field] != kNone)
      continue;
    if (fields_[field]->list) continue;
    call.begin_slot(fields_[field]->name.c_str(), false);
    call.add(call.given[field], op_->name, fields_[field]->name.c_str());
  }
}

void OpFunction::run(Call& call) const {
  call.name_tensors();
  kernels::call_op(
      *op_, std::span<const kernels::NamedTensor>(call.tensors.data(), call.tensors.size()),
      std::span<const kernels::NamedList>(call.lists.data(), call.lists.size()), call.options.all(),
      call.device.is_cuda() ? call.stream : nullptr, [](const std::function<void()>& in_full) {
        const nb::gil_scoped_release released;
        in_full();
      });
}

void OpFunction::trim(Call& call) const {
  kernels::Tensors tensors = given_tensors(*op_, {call.tensors.data(), call.tensors.size()}, {});
  const kernels::Params params = checked_params(*op_, call.options.all());
  {
    const nb::gil_scoped_release released;
    op_->trim(tensors, params, call.device.is_cuda() ? call.stream : nullptr);
  }
  for (size_t i = 0; i < call.made.size(); ++i) {
    const OutputInfo& info = call.entry->made[i].info;
    const Dims& shape = tensors.at(info.name).shape;
    if (!(shape == info.shape)) call.made[i] = call.library->shortened(call.made[i], shape);
  }
}

nb::object OpFunction::result(Call& call) const {
  if (fields_.empty()) return nb::none();
  const bool has_counts = static_cast<bool>(op_->trim);
  const auto size = static_cast<Py_ssize_t>(fields_.size() + (has_counts ? 1 : 0));
  nb::object fields = owned(PyTuple_New(size));
  for (size_t field = 0; field < fields_.size(); ++field) {
    nb::object value = fields_[field]->list ? nb::object(nb::list()) : nb::none();
    for (size_t i = 0; i < call.made.size(); ++i) {
      if (call.entry->made[i].field != field) continue;
      if (fields_[field]->list) {
        check(PyList_Append(value.ptr(), call.made[i].ptr()));
      } else {
        value = std::move(call.made[i]);
      }
    }
    if (fields_.size() == 1 && !has_counts) return value;
    PyTuple_SetItem(fields.ptr(), static_cast<Py_ssize_t>(field), value.release().ptr());
  }
  if (has_counts) {
    const bool waited = waits_for_data(*op_, call.options.all());
    nb::object last = nb::borrow(PyTuple_GetItem(fields.ptr(), size - 2));
    PyTuple_SetItem(fields.ptr(), size - 1,
                    (waited ? nb::object(last.attr("tolist")()) : nb::none()).release().ptr());
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
