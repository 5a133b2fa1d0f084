#pragma once
// Tessera's errors as Python's.

#include "dsl/base/error.h"
#include "tools/python/core/python.h"

namespace tessera::python {

/// Sets the Python error that the C++ exception in flight stands for: to be called inside of a handler.
/// An Error becomes the class of tessera._errors that its kind and code say, with the same text.
void set_error() noexcept;

/// An argument error about the way an op is called. `code` is TYPE (a value of another type than its
/// parameter) or NAME (a name that is unknown or given twice); both become ArgumentTypeError.
[[noreturn]] void refuse(std::string_view op, std::string_view argument, std::string_view code,
                         std::string what, std::string expected, std::string got,
                         std::string hint = {});

/// "True (bool)", "array of shape (2, 3) (ndarray)": a value in messages; its text is cut at 80 bytes.
std::string describe(nb::handle value);

}  // namespace tessera::python
