#include "tools/python/core/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/python/core/options.h"

namespace tessera::python {
namespace {

[[noreturn]] void raise_type_error(const std::string& text) {
  PyErr_SetString(PyExc_TypeError, text.c_str());
  throw nb::python_error();
}

}  // namespace

nb::object interned(const std::string& text) {
  return owned(PyUnicode_InternFromString(text.c_str()));
}

size_t find_name(std::span<const nb::object> names, PyObject* name, size_t expected) {
  const size_t size = names.size();
  for (size_t i = expected; i < size; ++i) {
    if (names[i].ptr() == name) return i;
  }
  for (size_t i = 0; i < std::min(expected, size); ++i) {
    if (names[i].ptr() == name) return i;
  }
  if (PyUnicode_Check(name) == 0) return size;
  const std::string_view text = text_of(name);
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const nb::object& known) { return text_of(known) == text; });
  return static_cast<size_t>(found - names.begin());
}

ArgumentNames::ArgumentNames(const kernels::OpInfo& op, std::span<const std::string> names,
                             size_t num_positional)
    : op_(&op), num_positional_(num_positional) {
  for (const std::string& name : names) names_.push_back(interned(name));
}

void ArgumentNames::place(PyObject* const* arguments, Py_ssize_t num_positional, PyObject* names,
                          PyObject** places) const {
  const auto given = static_cast<size_t>(num_positional);
  if (given > num_positional_) refuse_number(num_positional);
  std::copy_n(arguments, given, places);
  std::fill(places + given, places + names_.size(), Py_Ellipsis);
  if (names == nullptr) return;
  const auto num_names = static_cast<size_t>(PyTuple_Size(names));
  size_t expected = given;
  for (size_t i = 0; i < num_names; ++i) {
    PyObject* const name = PyTuple_GetItem(names, static_cast<Py_ssize_t>(i));  // borrowed
    PyObject* const value = arguments[given + i];
    const size_t place = find_name(names_, name, expected);
    if (place == names_.size()) {
      nb::dict unknown;
      unknown[nb::handle(name)] = nb::handle(value);
      refuse_unknown_name(*op_, unknown.ptr());
    }
    if (place < given) {
      raise_type_error(
          fmt::format("{}() got multiple values for argument '{}'", op_->name, text_of(name)));
    }
    places[place] = value;
    expected = place + 1;
  }
}

nb::dict ArgumentNames::given(PyObject* const* places) const {
  nb::dict given;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (places[i] != Py_Ellipsis) given[names_[i]] = nb::handle(places[i]);
  }
  return given;
}

void ArgumentNames::refuse_number(Py_ssize_t given) const {
  raise_type_error(fmt::format("{}() takes {} positional argument{} but {} were given", op_->name,
                               num_positional_, num_positional_ == 1 ? "" : "s", given));
}

}  // namespace tessera::python
