#include "tools/python/core/errors.h"

#include <fmt/format.h>

#include <exception>

namespace tessera::python {
namespace {

bool is_about_type(std::string_view code) {
  return code == "DTYPE" || code == "NAME" || code == "TYPE";
}

const char* class_of(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::argument:
      return is_about_type(error.code()) ? "ArgumentTypeError" : "ArgumentError";
    case ErrorKind::unsupported:
      return "UnsupportedError";
    case ErrorKind::capture:
      return "CaptureError";
    case ErrorKind::compile:
      return "CompileError";
    case ErrorKind::load:
      return "LoadError";
    case ErrorKind::driver:
      return "DriverError";
    case ErrorKind::trap:
      return "TrapError";
    case ErrorKind::program:
    case ErrorKind::internal:
      return "InternalError";
  }
  return "InternalError";
}

}  // namespace

void set_error() noexcept {
  try {
    throw;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const Error& error) {
    try {
      const nb::object type = nb::module_::import_("tessera._errors").attr(class_of(error));
      const nb::object value = type(error.what(), error.op(), error.argument(), error.expected(),
                                    error.got(), error.hint(), error.code());
      PyErr_SetObject(type.ptr(), value.ptr());
    } catch (nb::python_error& other) {
      other.restore();
    }
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "tessera: an exception of unknown type");
  }
}

void refuse(std::string_view op, std::string_view argument, std::string_view code, std::string what,
            std::string expected, std::string got, std::string hint) {
  throw Error({.kind = ErrorKind::argument,
               .op = std::string(op),
               .what = std::move(what),
               .argument = std::string(argument),
               .expected = std::move(expected),
               .got = std::move(got),
               .hint = std::move(hint),
               .code = std::string(code)});
}

std::string describe(nb::handle value) {
  constexpr size_t kMost = 80;
  std::string text = nb::cast<std::string>(nb::repr(value));
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return fmt::format("{} ({})", text, str_of(value.type().attr("__name__")));
}

}  // namespace tessera::python
