#include "tools/python/core/op_function.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "kernels/jit/call_context.h"
#include "kernels/jit/jit.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/interpreter_lock.h"
#include "tools/python/core/op_function_call.h"
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

void add_to_key(const TensorView& view, Key& key) {
  key.push_back(static_cast<uint64_t>(view.dtype) | static_cast<uint64_t>(view.rank()) << 8 |
                static_cast<uint64_t>(view.device.ordinal) << 16 |
                uint64_t{view.device.is_cuda()} << 48 | uint64_t{view.read_only} << 49);
  key.push_back(kernels::jit::alignment_of(view.data));
  for (int i = 0; i < view.rank(); ++i) {
    key.push_back(static_cast<uint64_t>(view.shape[i]));
    key.push_back(static_cast<uint64_t>(view.strides[i]));
  }
}

}  // namespace

void OpFunction::Call::add(size_t slot, const TensorRule& rule, PyObject* object,
                           const std::string& op) {
  const TensorType type = tensor_type_of(object);
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
  add_known(slot, rule, object, op);
}

void OpFunction::Call::add_known(size_t slot, const TensorRule& rule, PyObject* object,
                                 const std::string& op) {
  LentTensor lent;
  if (library->lends()) {
    lent = library->lend(object, op, rule.name, key);
  } else {
    const TensorView& view = views.push_back(view_of(rule, object, op));
    lent = {view.data, view.device};
    add_to_key(view, key);
  }
  if (first_tensor == object) device = lent.device;
  Range& of_slot = slots[slot];
  if (of_slot.count++ == 0) of_slot.first = static_cast<uint16_t>(tensors.size());
  tensors.push_back({object, lent.data});
}

TensorView OpFunction::Call::view_of(const TensorRule& rule, PyObject* object,
                                     const std::string& op) {
  return library->borrow(object, op, rule.name, has_stream ? &stream : nullptr, loans);
}

OpFunction::Named::Named(const OpFunction& function, Call& call, Which which) {
  static const TensorView absent;
  const std::vector<TensorRule>& rules = function.op_->signature.tensors;
  // Tensors of a library that lends are looked at here, in the order in which they were added.
  for (size_t i = call.views.size(); i < call.tensors.size(); ++i) {
    size_t slot = 0;
    while (i < call.slots[slot].first ||
           i >= size_t{call.slots[slot].first} + call.slots[slot].count) {
      ++slot;
    }
    call.views.push_back(call.view_of(rules[slot], call.tensors[i].object, function.table_->name));
  }
  for (size_t slot = 0; slot < rules.size(); ++slot) {
    Call::Range range = call.slots[slot];
    if (which == Which::arguments && !function.is_argument(slot)) range = {};
    const auto& [first, count] = range;
    const char* const name = rules[slot].name.c_str();
    if (!rules[slot].list.empty()) {
      lists.push_back({name, std::span<const TensorView>(call.views.data() + first, count)});
    } else {
      tensors.push_back({name, count == 0 ? absent : call.views[first]});
    }
  }
}

OpFunction::OpFunction(const kernels::ParsedOp& op)
    : op_(&op), table_(&kernels::table_of(op)), may_wait_(static_cast<bool>(table_->trim)) {
  const size_t size = op.signature.tensors.size();
  TESSERA_CHECK(size <= kMostSlots, "an op with too many tensors");
  std::vector<std::string> names;
  const auto add_arguments = [&](const auto& belongs) {
    for (size_t slot = 0; slot < size; ++slot) {
      if (!rule(slot).is_input() || !belongs(rule(slot))) continue;
      inputs_.push_back(slot);
      names.push_back(rule(slot).name);
    }
    return names.size();
  };
  const size_t num_positional =
      add_arguments([](const TensorRule& t) { return is_always_there(t); });
  add_arguments([](const TensorRule& t) { return !is_always_there(t) && !t.accumulate; });
  add_arguments([](const TensorRule& t) { return t.accumulate; });
  for (const kernels::ParamInfo& param : table_->params) names.push_back(param.name);
  // A tensor that is named so is what "out" names: no call can name the last but one argument then.
  const bool is_taken = std::find(names.begin(), names.end(), "out") != names.end();
  names.insert(names.end(), {is_taken ? "" : "out", "stream"});
  TESSERA_CHECK(names.size() <= kMostArguments, "an op with too many arguments");
  names_.emplace(*table_, names, num_positional);
  for (const bool is_list : {false, true}) {
    for (size_t slot = 0; slot < size; ++slot) {
      if (rule(slot).list.empty() != is_list) addresses_.push_back(slot);
    }
  }
  for (size_t slot = 0; slot < size; ++slot) {
    const TensorRule& tensor = rule(slot);
    if (!tensor.is_workspace && tensor.role != Role::in) written_.push_back(slot);
    if (!tensor.is_workspace && (tensor.role == Role::out || tensor.accumulate)) {
      fields_.push_back(slot);
      field_names_.push_back(interned(tensor.name));
    }
  }
}

bool OpFunction::is_argument(size_t slot) const {
  return rule(slot).is_input();
}

nb::object OpFunction::call(PyObject* const* arguments, Py_ssize_t num_positional, PyObject* names,
                            Stage last) {
  Call call;  // outside: a thread that Python's end stops gives nothing back
  return call_python([&] { return run_stages(call, arguments, num_positional, names, last); });
}

nb::object OpFunction::run_stages(Call& call, PyObject* const* arguments, Py_ssize_t num_positional,
                                  PyObject* names, Stage last) {
  names_->place(arguments, num_positional, names, call.arguments.data());
  const size_t first_option = inputs_.size(), out = first_option + table_->params.size();
  try {
    if (PyObject* const stream = call.arguments[out + 1]; !is_absent_object(stream)) {
      call.has_stream = true;
      call.stream = stream_of(stream, table_->name);
    }
    known_options_.add_to_key(*table_, &call.arguments[first_option], call.options, call.key);
    read_given_outputs(call, call.arguments[out]);
    if (last == Stage::read) return nb::none();
    add_inputs(call);
    add_given_outputs(call);
    if (!call.has_stream && call.library != nullptr) {
      call.stream = call.library->current_stream(call.device);
    }
    if (last == Stage::borrowed) return nb::none();
    find_entry(call);
    if (last == Stage::known) return nb::none();
    announce_writes(call);
    place_outputs(call);
    if (last == Stage::allocated) return nb::none();
    run(call);
    if (last == Stage::launched) return nb::none();
    if (t_checks_values && call.device.is_cuda()) raise_value_errors(call);
    if (call.library != nullptr && call.library->finishes()) finish(call);
    if (may_wait_) trim(call);
    return result(call);
  } catch (const Redirected&) {
    return redirected_call(table_->name, names_->given(call.arguments.data()));
  }
}

void OpFunction::add_inputs(Call& call) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const size_t slot = inputs_[i];
    const TensorRule& tensor = rule(slot);
    PyObject* const argument = call.arguments[i];
    if (is_absent_object(argument)) {
      call.key.push_back(~uint64_t{0});
    } else if (tensor.list.empty()) {
      call.add(slot, tensor, argument, table_->name);
    } else {
      const nb::object items = sequence_of(argument, table_->name, tensor.name);
      call.key.push_back(nb::len(items));
      for (const nb::handle item : items) call.add(slot, tensor, item.ptr(), table_->name);
      call.loans.keep(items);
    }
  }
}

void OpFunction::find_entry(Call& call) {
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
    call.entry = found->second;
    return;
  }
  call.entry = make_entry(call);
  if (entries_.size() >= kMostEntries) entries_.clear();
  entries_[hash] = call.entry;
}

std::shared_ptr<OpFunction::Entry> OpFunction::make_entry(Call& call) const {
  call.options.read(*table_, &call.arguments[inputs_.size()]);
  const kernels::Params params = checked_params(*table_, call.options.all());
  const Named named(*this, call, Named::Which::arguments);
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
  check_given(call, *entry);
  return entry;
}

void OpFunction::run(Call& call) {
  if (!has_warned_ && call.library != nullptr) warn_of_gradients(call);
  if (launch_again(call)) return;
  run_in_full(call);
}

// Said once per op.
void OpFunction::warn_of_gradients(const Call& call) {
  for (const size_t slot : inputs_) {
    const auto& [first, count] = call.slots[slot];
    for (size_t i = first; i < size_t{first} + count; ++i) {
      if (!call.library->records(call.tensors[i].object)) continue;
      has_warned_ = true;
      call.library->warn_of_gradient(table_->name, rule(slot).name);
      return;
    }
  }
}

bool OpFunction::launch_again(const Call& call) const {
  const Entry& entry = *call.entry;
  if (!entry.again) return false;
  // The alignment of given tensors is part of the key.
  for (const Made& made : entry.made) {
    const void* const data = call.tensors[call.slots[made.slot].first + made.item].data;
    if (kernels::jit::alignment_of(data) != made.alignment) return false;
  }
  Inline<void*, kMostSlots> data;
  for (const size_t slot : addresses_) {
    const auto& [first, count] = call.slots[slot];
    for (size_t i = 0; i < count; ++i) data.push_back(call.tensors[first + i].data);
    if (count == 0 && rule(slot).list.empty()) data.push_back(nullptr);
  }
  return entry.again->launch_again({data.data(), data.size()}, call.stream_of_kernels());
}

void OpFunction::run_in_full(Call& call) const {
  call.options.read(*table_, &call.arguments[inputs_.size()]);
  const Named named(*this, call, Named::Which::all);
  std::optional<kernels::jit::RepeatableCall> again;
  run_interruptibly([&] {
    again = kernels::call_in_full(*table_, named.all_tensors(), named.all_lists(),
                                  call.options.all(), call.stream_of_kernels());
  });
  if (!again) return;
  Entry& entry = *call.entry;
  for (Made& made : entry.made) {
    made.alignment =
        kernels::jit::alignment_of(call.tensors[call.slots[made.slot].first + made.item].data);
  }
  entry.again = std::move(again);
}

void OpFunction::finish(Call& call) const {
  for (size_t i = 0; i < call.made.size(); ++i) {
    if (call.given[call.entry->made[i].slot] != nullptr) continue;
    nb::object made = nb::borrow(call.made[i]);
    call.made.replace(i, call.library->finished(std::move(made)));
  }
}

bool OpFunction::check_values(bool on) {
  return std::exchange(t_checks_values, on);
}

void OpFunction::raise_value_errors(const Call& call) const {
  std::vector<std::string> reports;
  {
    const WithoutInterpreterLock released;
    reports = kernels::jit::take_value_errors(call.device, call.stream);
  }
  if (reports.empty()) return;
  throw Error({.kind = ErrorKind::argument, .op = table_->name, .what = reports.front()});
}

void OpFunction::trim(Call& call) const {
  if (kernels::jit::call_context().mode.until != kernels::jit::CallMode::Until::done) return;
  call.options.read(*table_, &call.arguments[inputs_.size()]);
  const Named named(*this, call, Named::Which::all);
  kernels::Tensors tensors = given_tensors(*table_, named.all_tensors(), named.all_lists());
  const kernels::Params params = checked_params(*table_, call.options.all());
  {
    const WithoutInterpreterLock released;
    table_->trim(tensors, params, call.stream_of_kernels());
  }
  for (size_t i = 0; i < call.made.size(); ++i) {
    const OutputInfo& info = call.entry->made[i].info;
    const Dims& shape = tensors.at(info.name).shape;
    if (shape == info.shape) continue;
    call.made.replace(i, call.library->shortened(nb::borrow(call.made[i]), shape));
  }
  call.waited = waits_for_data(params);
}

}  // namespace tessera::python
