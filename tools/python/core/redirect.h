#pragma once
// Calls that go through torch's dispatcher: of fake tensors, subclasses, under modes and transforms.

#include <string>

#include "tools/python/core/python.h"

namespace tessera::python {

/// Sets who makes them: a function of the op's name and a dict of the given arguments, which
/// returns the result; or None. Returns what was set before.
nb::object set_redirect(nb::object function);

/// Has it made. Where nothing is set, imports tessera.torch, which sets it.
///
/// Errors: unsupported, naming the op, if that does not.
nb::object redirected_call(const std::string& op, const nb::dict& arguments);

}  // namespace tessera::python
