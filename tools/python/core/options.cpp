#include "tools/python/core/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>

#include "dsl/base/nearest_name.h"
#include "tools/python/core/dtype_names.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/interpreter_lock.h"
#include "tools/python/core/library.h"

namespace tessera::python {
namespace {

using kernels::OpInfo;
using kernels::ParamInfo;
using kernels::jit::OptionValue;

[[noreturn]] void refuse_value(const OpInfo& op, const ParamInfo& param, PyObject* value) {
  refuse(op.name, param.name, "TYPE", fmt::format("parameter '{}' has a wrong value", param.name),
         kernels::allowed_values(param), describe(value));
}

/// An integer that fits, of an int or of an object with __index__.
bool read_integer(PyObject* value, int64_t& integer) {
  if (!PyIndex_Check(value)) return false;
  const nb::object index = owned(PyNumber_Index(value));
  int overflow = 0;
  integer = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  return overflow == 0;
}

/// "e4m3" for float8_e4m3fn of torch, numpy or ml_dtypes; nothing for what is no dtype. The text of a
/// dtype is "torch.float8_e4m3fn" in torch and "float8_e4m3fn" elsewhere; ml_dtypes has classes.
std::optional<std::string_view> dtype_word(PyObject* value) {
  constexpr std::string_view kTorch = "torch.";
  const nb::handle object(value);
  const std::string text =
      str_of(PyType_Check(value) ? nb::object(object.attr("__name__")) : nb::borrow(object));
  std::string_view word = text;
  if (word.starts_with(kTorch)) word.remove_prefix(kTorch.size());
  const std::optional<DType> dtype = dtype_named(word);
  return dtype ? std::optional(name(*dtype)) : std::nullopt;
}

void add_to_key_of(const OptionValue& value, Key& key) {
  key.push_back(value.index());
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    key.push_back(static_cast<uint64_t>(*integer));
  } else if (const auto* number = std::get_if<double>(&value)) {
    key.push_back(std::bit_cast<uint64_t>(*number));
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    key.push_back(*flag ? 1 : 0);
  } else if (const auto* word = std::get_if<std::string_view>(&value)) {
    key.push_back(word->size());
    for (size_t at = 0; at < word->size(); at += 8) {
      uint64_t bytes = 0;
      std::memcpy(&bytes, word->data() + at, std::min<size_t>(8, word->size() - at));
      key.push_back(bytes);
    }
  } else if (const auto* list = std::get_if<std::span<const int64_t>>(&value)) {
    key.push_back(list->size());
    for (const int64_t item : *list) key.push_back(static_cast<uint64_t>(item));
  }
}

}  // namespace

void OptionReader::read(const OpInfo& op, PyObject* const* arguments) {
  if (options_.size() == op.params.size()) return;
  for (size_t i = 0; i < op.params.size(); ++i) {
    options_.push_back(
        kernels::CallOption(op.params[i].name.c_str(), value_of(op, op.params[i], arguments[i])));
  }
}

OptionValue OptionReader::value_of(const OpInfo& op, const ParamInfo& param, PyObject* value) {
  if (value == Py_None || value == Py_Ellipsis) return {};
  if (value == Py_True || value == Py_False) return value == Py_True;
  int64_t integer = 0;
  if (PyLong_Check(value)) {
    if (!read_integer(value, integer)) refuse_value(op, param, value);
    return integer;
  }
  if (PyUnicode_Check(value)) return text_of(value);
  if (PyFloat_Check(value)) return PyFloat_AsDouble(value);
  if (PyTuple_Check(value) || PyList_Check(value)) return list_of(op, param, value);
  if (param.type == ParamInfo::Type::word) {
    if (const auto word = dtype_word(value)) return *word;
    refuse_value(op, param, value);
  }
  if (read_integer(value, integer)) return integer;
  const nb::object number = nb::module_::import_("numbers").attr("Real");
  const int is_number = PyObject_IsInstance(value, number.ptr());
  check(is_number);
  if (is_number == 0) refuse_value(op, param, value);
  return PyFloat_AsDouble(owned(PyNumber_Float(value)).ptr());
}

OptionValue OptionReader::list_of(const OpInfo& op, const ParamInfo& param, PyObject* value) {
  const Py_ssize_t size = PySequence_Size(value);
  const size_t first = num_numbers_;
  for (Py_ssize_t i = 0; i < size; ++i) {
    const nb::object item = owned(PySequence_GetItem(value, i));
    if (num_numbers_ == numbers_.size() || item.ptr() == Py_True || item.ptr() == Py_False ||
        !read_integer(item.ptr(), numbers_[num_numbers_])) {
      refuse_value(op, param, value);
    }
    ++num_numbers_;
  }
  return std::span<const int64_t>(numbers_.data() + first, static_cast<size_t>(size));
}

namespace {

bool is_of(PyObject* object, const PyTypeObject& type) {
  return Py_TYPE(object) == &type;
}

bool is_constant(PyObject* object) {
  if (is_of(object, PyLong_Type) || is_of(object, PyUnicode_Type) || is_of(object, PyFloat_Type) ||
      is_of(object, PyBool_Type) || object == Py_None || object == Py_Ellipsis) {
    return true;
  }
  if (!is_of(object, PyTuple_Type)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_Size(object); ++i) {
    if (!is_of(PyTuple_GetItem(object, i), PyLong_Type)) return false;
  }
  return true;
}

}  // namespace

void KnownOptions::add_to_key(const OpInfo& op, PyObject* const* arguments, OptionReader& reader,
                              Key& key) {
  const size_t size = op.params.size();
  for (size_t i = 0; i < known_.size(); ++i) {
    const size_t at = (last_ + i) % known_.size();
    const Known& known = known_[at];
    if (!std::equal(known.objects.begin(), known.objects.end(), arguments,
                    [](const nb::object& a, PyObject* b) { return a.ptr() == b; })) {
      continue;
    }
    for (const uint64_t word : known.words) key.push_back(word);
    last_ = at;
    return;
  }
  const size_t first = key.size();
  reader.read(op, arguments);
  for (const kernels::CallOption& option : reader.all()) add_to_key_of(option.value, key);
  if (!std::all_of(arguments, arguments + size, is_constant)) return;
  constexpr size_t kMost = 8;
  last_ = known_.size() < kMost ? known_.size() : (last_ + 1) % kMost;
  if (last_ == known_.size()) known_.emplace_back();
  Known& known = known_[last_];
  known.objects.clear();
  for (size_t i = 0; i < size; ++i) known.objects.push_back(nb::borrow(arguments[i]));
  known.words.assign(key.data() + first, key.data() + key.size());
}

kernels::Stream stream_of(PyObject* value, std::string_view op) {
  nb::object address = nb::borrow(value);
  if (has_attribute(address, "__cuda_stream__")) {
    address = address.attr("__cuda_stream__")()[1];
  } else if (has_attribute(address, "cuda_stream")) {
    address = address.attr("cuda_stream");
  } else if (has_attribute(address, "ptr")) {
    address = address.attr("ptr");
  }
  if (!PyLong_Check(address.ptr()) || PyBool_Check(address.ptr())) {
    refuse(op, "stream", "TYPE", "argument 'stream' is no stream",
           "an address, or an object with __cuda_stream__, cuda_stream or ptr", describe(value));
  }
  void* const stream = PyLong_AsVoidPtr(address.ptr());
  if (stream == nullptr && PyErr_Occurred() != nullptr) throw nb::python_error();
  return stream;
}

nb::object sequence_of(PyObject* value, std::string_view op, std::string_view argument) {
  if (tensor_type_of(value).library != nullptr || PySequence_Check(value) == 0) {
    refuse(op, argument, "TYPE", fmt::format("argument '{}' is no list", argument),
           "a sequence of tensors", describe(value));
  }
  return owned(PySequence_Tuple(value));
}

bool waits_for_data(const kernels::Params& params) {
  const auto is = [&](const char* name, const kernels::ParamValue& value) {
    const auto found = params.find(name);
    return found == params.end() || found->second == value;
  };
  return is("num_expanded_tokens", int64_t{0}) && is("force_no_sync", false);
}

void refuse_unknown_name(const OpInfo& op, PyObject* unknown) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  PyDict_Next(unknown, &at, &key, &value);
  const std::string name(text_of(key));
  std::vector<std::string> names;
  for (const kernels::TensorInfo& tensor : op.tensors) {
    if (tensor.role != kernels::Role::out) names.push_back(tensor.name);
  }
  for (const ParamInfo& param : op.params) names.push_back(param.name);
  if (std::find(names.begin(), names.end(), "out") == names.end()) names.emplace_back("out");
  names.emplace_back("stream");
  refuse(op.name, name, "NAME", fmt::format("unknown argument '{}'", name),
         fmt::format("{}", fmt::join(names, ", ")), fmt::format("{}={}", name, describe(value)),
         did_you_mean(name, names));
}

void refuse_unknown_output(const OpInfo& op, const nb::object& name) {
  const std::string text = str_of(name);
  std::vector<std::string> names;
  for (const kernels::TensorInfo& tensor : op.tensors) {
    if (tensor.role == kernels::Role::out) names.push_back(tensor.name);
  }
  refuse(op.name, text, "NAME", fmt::format("'out' names '{}', which is no output", text),
         fmt::format("{}", fmt::join(names, ", ")), text, did_you_mean(text, names));
}

}  // namespace tessera::python
