#pragma once
// The arguments of a call of an op, put in their places.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "kernels/op.h"
#include "tools/python/core/python.h"

namespace tessera::python {

/// The names of an op's arguments. A call gives the first ones by position or by name, all others by
/// name.
class ArgumentNames {
 public:
  ArgumentNames(const kernels::OpInfo& op, std::span<const std::string> names,
                size_t num_positional);

  size_t size() const { return names_.size(); }
  /// Writes what a vectorcall got to `places`, one per name; `...` where nothing was given. Borrowed.
  ///
  /// Errors: argument (NAME), with the nearest name, for an unknown one; TypeError for a name that is
  ///         given twice and for too many arguments by position.
  void place(PyObject* const* arguments, Py_ssize_t num_positional, PyObject* names,
             PyObject** places) const;
  /// The given arguments by name: a dict.
  nb::dict given(PyObject* const* places) const;

 private:
  [[noreturn]] void refuse_number(Py_ssize_t given) const;

  const kernels::OpInfo* op_;
  std::vector<nb::object> names_;  // interned, as those that calls are compiled with
  size_t num_positional_;
};

/// The place of a name among others, tried first at `expected`, as callers mostly keep the order; the
/// number of names if it is none of them. Interned names are equal if they are the same object.
size_t find_name(std::span<const nb::object> names, PyObject* name, size_t expected);

/// A str as Python's compiler interns it.
nb::object interned(const std::string& text);

}  // namespace tessera::python
