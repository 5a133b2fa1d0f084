// The module tessera._core.

#include "kernels/op.h"
#include "tools/lib/op_listing.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/op_function.h"
#include "tools/python/core/output_shapes.h"
#include "tools/python/core/redirect.h"

namespace tessera::python {
namespace {

/// What is known of an op's function, behind the object that Python calls.
struct Function {
  OpFunction function;
  PyMethodDef method;
};

extern "C" PyObject* call_function(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  auto* const function = static_cast<Function*>(PyCapsule_GetPointer(self, nullptr));
  try {
    return function->function(arguments, static_cast<size_t>(count)).release().ptr();
  } catch (...) {
    set_error();
    return nullptr;
  }
}

Function& function_of(const std::string& op) {
  static auto& functions = *new std::unordered_map<std::string, std::unique_ptr<Function>>;
  std::unique_ptr<Function>& function = functions[op];
  if (!function) {
    const kernels::OpInfo& info = kernels::find_op(op);
    function = std::make_unique<Function>(Function{OpFunction(info), {}});
    function->method = {info.name.c_str(),
                        reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(call_function)),
                        METH_FASTCALL, nullptr};
  }
  return *function;
}

}  // namespace

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const Error&) {
      set_error();
    }
  });
  module.attr("version") = TESSERA_VERSION;
  module.def(
      "function",
      [](const std::string& op) {
        Function& function = function_of(op);
        const nb::object self = owned(PyCapsule_New(&function, nullptr, nullptr));
        return owned(PyCFunction_NewEx(&function.method, self.ptr(), nullptr));
      },
      nb::arg("op"), "The function of an op, all arguments by position; see tessera._ops.");
  module.def(
      "set_result_type",
      [](const std::string& op, nb::object type) {
        function_of(op).function.set_result_type(std::move(type));
      },
      nb::arg("op"), nb::arg("type"), "Sets the class of an op's results of several fields.");
  module.def(
      "table_json", [] { return tools::list_json(kernels::ops(), ""); },
      "The table of ops, as `tessera list --json` prints it.");
  module.def(
      "may_wait",
      [](const std::string& op) { return static_cast<bool>(kernels::find_op(op).trim); },
      nb::arg("op"), "True if calls of the op may wait for data, to learn how long outputs are.");
  module.def("set_redirect", &set_redirect, nb::arg("function"),
             "Sets who makes calls that go through torch's dispatcher: function(op, arguments).");
  add_output_shapes(module);
}

}  // namespace tessera::python
