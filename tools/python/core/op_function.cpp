#include "tools/python/core/op_function.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/jit/jit.h"
#include "kernels/jit/prepared.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/op_function_call.h"
#include "tools/python/core/options.h"
#include "tools/python/core/redirect.h"
#include "tools/python/core/signals.h"

namespace tessera::python {

using kernels::OutputInfo;
using kernels::Role;
using kernels::TensorRule;

namespace {

constexpr size_t kMostEntries = 1024;  // per op; then all are forgotten

thread_local bool t_checks_values = false;

bool is_always_there(const TensorRule& tensor) {
  return !tensor.optional && !tensor.accumulate;
}

}  // namespace

namespace {

/// The tensors of a call under their names, in the order of the signature.
struct Named {
  Inline<kernels::NamedTensor, kMostSlots> tensors;
  Inline<kernels::NamedList, kMostSlots> lists;

  template <class Call>
  Named(const std::vector<TensorRule>& rules, const Call& call) {
    static const TensorView absent;
    for (size_t slot = 0; slot < rules.size(); ++slot) {
      const auto& [first, count] = call.slots[slot];
      const char* const name = rules[slot].name.c_str();
      if (!rules[slot].list.empty()) {
        lists.push_back({name, std::span<const TensorView>(call.views.data() + first, count)});
      } else {
        tensors.push_back({name, count == 0 ? absent : call.views[first]});
      }
    }
  }
  std::span<const kernels::NamedTensor> all_tensors() const {
    return {tensors.data(), tensors.size()};
  }
  std::span<const kernels::NamedList> all_lists() const { return {lists.data(), lists.size()}; }
};

}  // namespace

const TensorView& OpFunction::Call::add(size_t slot, const TensorRule& rule, PyObject* object,
                                        std::string_view op) {
  const TensorType& type = tensor_type_of(object);
  if (type.library == nullptr) {
    refuse(op, rule.name, "TYPE", fmt::format("argument '{}' is no tensor", rule.name),
           "a tensor of torch, numpy or another library that speaks DLPack", describe(object));
  }
  if (type.is_redirected) throw Redirected();
  if (library == nullptr) {
    library = type.library;
    first_tensor = object;
    first_name = &rule.name;
    if (library->is_intercepted()) throw Redirected();
  } else if (library != type.library) {
    refuse(op, rule.name, "TYPE", fmt::format("argument '{}' is of another library", rule.name),
           fmt::format("{}, as '{}' is", library->name(), *first_name),
           std::string(type.library->name()));
  }
  return borrow(slot, rule, object, op);
}

const TensorView& OpFunction::Call::borrow(size_t slot, const TensorRule& rule, PyObject* object,
                                           std::string_view op) {
  const TensorView view =
      library->borrow(object, op, rule.name, has_stream ? &stream : nullptr, loans);
  if (first_tensor == object) device = view.device;
  Views& of_slot = slots[slot];
  if (of_slot.count++ == 0) of_slot.first = views.size();
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

OpFunction::OpFunction(const kernels::ParsedOp& op)
    : op_(&op), table_(&kernels::table_of(op)), may_wait_(static_cast<bool>(table_->trim)) {
  const size_t size = op.signature.tensors.size();
  TESSERA_CHECK(size <= kMostSlots, "an op with too many tensors");
  const auto add_arguments = [&](const auto& belongs) {
    for (size_t slot = 0; slot < size; ++slot) {
      if (rule(slot).is_input() && belongs(rule(slot))) inputs_.push_back(slot);
    }
  };
  add_arguments([](const TensorRule& t) { return is_always_there(t); });
  add_arguments([](const TensorRule& t) { return !is_always_there(t) && !t.accumulate; });
  add_arguments([](const TensorRule& t) { return t.accumulate; });
  for (size_t slot = 0; slot < size; ++slot) {
    const TensorRule& tensor = rule(slot);
    if (!tensor.is_workspace && (tensor.role == Role::out || tensor.accumulate)) {
      fields_.push_back(slot);
    }
  }
}

bool OpFunction::is_argument(size_t slot) const {
  return rule(slot).is_input();
}

nb::object OpFunction::call(PyObject* const* arguments, size_t count, Stage last) {
  const size_t first_option = inputs_.size(), out = first_option + table_->params.size();
  TESSERA_CHECK(count == out + 3, "an op called with a wrong number of arguments");
  PyObject* const unknown = arguments[out + 2];
  if (unknown != Py_None && PyDict_Size(unknown) > 0) refuse_unknown_name(*table_, unknown);
  try {
    Call call;
    if (!is_absent_object(arguments[out + 1])) {
      call.has_stream = true;
      call.stream = stream_of(arguments[out + 1], table_->name);
    }
    call.options.read(*table_, arguments + first_option, call.key);
    read_given_outputs(call, arguments[out], arguments);
    if (last == Stage::read) return nb::none();
    borrow_inputs(call, arguments);
    if (!call.has_stream && call.library != nullptr) {
      call.stream = call.library->current_stream(call.device);
    }
    if (last == Stage::borrowed) return nb::none();
    call.entry = entry_of(call);
    if (last == Stage::known) return nb::none();
    place_outputs(call);
    if (last == Stage::allocated) return nb::none();
    run(call);
    if (last == Stage::launched) return nb::none();
    if (t_checks_values && call.device.is_cuda()) raise_value_errors(call);
    if (call.library != nullptr && call.library->finishes()) finish(call);
    if (may_wait_) trim(call);
    return result(call);
  } catch (const Redirected&) {
    return redirected_call(table_->name, arguments, count);
  }
}

void OpFunction::borrow_inputs(Call& call, PyObject* const* arguments) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const size_t slot = inputs_[i];
    const TensorRule& tensor = rule(slot);
    if (is_absent_object(arguments[i])) {
      call.key.push_back(~uint64_t{0});
    } else if (tensor.list.empty()) {
      call.add_to_key(call.add(slot, tensor, arguments[i], table_->name));
    } else {
      const nb::object items = sequence_of(arguments[i], table_->name, tensor.name);
      call.key.push_back(nb::len(items));
      for (const nb::handle item : items) {
        call.add_to_key(call.add(slot, tensor, item.ptr(), table_->name));
      }
      call.loans.keep(items);
    }
  }
}

std::shared_ptr<const OpFunction::Entry> OpFunction::entry_of(Call& call) {
  call.key.push_back(reinterpret_cast<uintptr_t>(call.library));
  const Key& key = call.key;
  uint64_t hash = 0;
  for (size_t i = 0; i < key.size(); ++i) {
    hash = (hash ^ key[i]) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  const auto found = entries_.find(hash);
  if (found != entries_.end() && found->second->key.size() == key.size() &&
      std::memcmp(found->second->key.data(), key.data(), key.size() * sizeof(uint64_t)) == 0) {
    return found->second;
  }
  const std::shared_ptr<const Entry> entry = make_entry(call);
  if (entries_.size() >= kMostEntries) entries_.clear();
  entries_[hash] = entry;
  return entry;
}

std::shared_ptr<const OpFunction::Entry> OpFunction::make_entry(const Call& call) const {
  const Named named(op_->signature.tensors, call);
  const kernels::Params params = checked_params(*table_, call.options.all());
  const kernels::Tensors inputs = given_tensors(*table_, named.all_tensors(), named.all_lists());
  auto entry = std::make_shared<Entry>();
  entry->key.assign(call.key.data(), call.key.data() + call.key.size());
  for (OutputInfo& output : table_->outputs(inputs, params)) {
    Made made;
    const size_t dot = output.name.find('.');
    if (dot != std::string::npos) made.item = std::stoul(output.name.substr(dot + 1));
    while (rule(made.slot).name != output.name.substr(0, dot)) ++made.slot;
    const Library& library = call.library != nullptr ? *call.library : numpy_library();
    made.allocation = library.prepare(output, call.device, call.first_tensor);
    made.info = std::move(output);
    entry->made.push_back(std::move(made));
  }
  return entry;
}

void OpFunction::place_outputs(Call& call) const {
  const size_t size = call.entry->made.size();
  call.made.resize(size);
  for (size_t number = 0; number < size; ++number) place(call, number);
  for (const size_t slot : fields_) {
    if (call.given[slot] == nullptr || is_argument(slot) || call.slots[slot].count > 0) continue;
    if (!rule(slot).list.empty()) continue;  // of length 0
    refuse(table_->name, rule(slot).name, "NAME",
           fmt::format("'out' names '{}', which this call does not write", rule(slot).name),
           "outputs that the call asks for", rule(slot).name);
  }
}

void OpFunction::place(Call& call, size_t number) const {
  const Made& made = call.entry->made[number];
  const TensorRule& tensor = rule(made.slot);
  PyObject* const given = call.given[made.slot];
  nb::object& object = call.made[number];
  if (given == nullptr) {
    object = made.allocation->make();
    call.borrow(made.slot, tensor, object.ptr(), table_->name);
    return;
  } else if (is_argument(made.slot)) {  // an accumulator: among the arguments already
    object = nb::borrow(given);
    return;
  } else if (tensor.list.empty()) {
    object = nb::borrow(given);
  } else {
    const nb::object items = sequence_of(given, table_->name, tensor.name);
    if (made.item >= nb::len(items)) {
      refuse(table_->name, tensor.name, "",
             fmt::format("list '{}' has the wrong length", tensor.name), "a tensor for each output",
             fmt::format("{}", nb::len(items)));
    }
    object = items[made.item];
  }
  const TensorView view = call.add(made.slot, tensor, object.ptr(), table_->name);
  check_room(*call.library, object, view, made.info);
}

// Ops write the padding of an output as well, which no extent or stride of a given tensor shows.
void OpFunction::check_room(const Library& library, const nb::object& given, const TensorView& view,
                            const OutputInfo& output) const {
  const int64_t element = bytes(output.dtype), needed = output.storage_elements * element;
  const bool is_like = view.dtype == output.dtype && view.shape == output.shape;
  if (needed <= view.span_bytes() || !is_like) return;  // else the op says what is wrong
  const std::optional<int64_t> there = library.bytes_behind(given);
  if (there && *there >= needed) return;
  refuse(table_->name, output.name, "",
         fmt::format("output '{}' has no room for its padding", output.name),
         fmt::format("{} elements from its first on, as the op allocates", output.storage_elements),
         there ? fmt::format("{} elements", *there / element)
               : std::string("memory whose end is not known"));
}

void OpFunction::run(Call& call) const {
  const Named named(op_->signature.tensors, call);
  kernels::call_op(*table_, named.all_tensors(), named.all_lists(), call.options.all(),
                   call.device.is_cuda() ? call.stream : nullptr,
                   [](const std::function<void()>& in_full) { run_interruptibly(in_full); });
}

void OpFunction::finish(Call& call) const {
  for (size_t i = 0; i < call.made.size(); ++i) {
    if (call.given[call.entry->made[i].slot] != nullptr) continue;
    call.made[i] = call.library->finished(std::move(call.made[i]));
  }
}

bool OpFunction::check_values(bool on) {
  return std::exchange(t_checks_values, on);
}

void OpFunction::raise_value_errors(const Call& call) const {
  std::vector<std::string> reports;
  {
    const nb::gil_scoped_release released;
    reports = kernels::jit::take_value_errors(call.device, call.stream);
  }
  if (reports.empty()) return;
  throw Error({.kind = ErrorKind::argument, .op = table_->name, .what = reports.front()});
}

void OpFunction::trim(Call& call) const {
  if (kernels::jit::call_mode().until != kernels::jit::CallMode::Until::done) return;
  const Named named(op_->signature.tensors, call);
  kernels::Tensors tensors = given_tensors(*table_, named.all_tensors(), named.all_lists());
  const kernels::Params params = checked_params(*table_, call.options.all());
  {
    const nb::gil_scoped_release released;
    table_->trim(tensors, params, call.device.is_cuda() ? call.stream : nullptr);
  }
  for (size_t i = 0; i < call.made.size(); ++i) {
    const OutputInfo& info = call.entry->made[i].info;
    const Dims& shape = tensors.at(info.name).shape;
    if (!(shape == info.shape)) call.made[i] = call.library->shortened(call.made[i], shape);
  }
  call.waited = waits_for_data(params);
}

}  // namespace tessera::python
