// The module tessera._core.

#include <algorithm>
#include <chrono>

#include "kernels/all_ops.h"
#include "kernels/op.h"
#include "kernels/signature/table.h"
#include "tools/python/core/buffer.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/op_function.h"
#include "tools/python/core/op_texts.h"
#include "tools/python/core/output_shapes.h"
#include "tools/python/core/process.h"
#include "tools/python/core/redirect.h"

namespace tessera::python {
namespace {

constexpr const char* kFunction = nullptr;  // the name of its capsule: none is compared

/// An op's function behind the object that Python calls, made at its first call.
struct Function {
  const kernels::Op* op;
  std::string name;
  PyMethodDef method;
  nb::object result_type;
  std::unique_ptr<OpFunction> made;
};

OpFunction& of_capsule(PyObject* capsule) {
  auto* const function = static_cast<Function*>(PyCapsule_GetPointer(capsule, kFunction));
  if (!function->made) {
    function->made = std::make_unique<OpFunction>(kernels::parsed(*function->op));
    function->made->set_result_type(function->result_type);
  }
  return *function->made;
}

extern "C" PyObject* call_function(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  try {
    return of_capsule(self)(arguments, static_cast<size_t>(count)).release().ptr();
  } catch (...) {
    set_error();
    return nullptr;
  }
}

/// `result` is the class of results, a tuple, or None. The function lives as long as the process.
nb::object make_function(const std::string& name, nb::object result) {
  const auto& ops = kernels::all_ops();
  const auto found =
      std::find_if(ops.begin(), ops.end(), [&](const kernels::Op* op) { return op->name == name; });
  if (found == ops.end()) kernels::find_op(name);  // which says what is wrong
  auto* const function = new Function{*found, name, {}, {}, nullptr};
  function->method = {function->name.c_str(),
                      reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(call_function)),
                      METH_FASTCALL, nullptr};
  if (!result.is_none()) function->result_type = std::move(result);
  const nb::object self = owned(PyCapsule_New(function, kFunction, nullptr));
  return owned(PyCFunction_NewEx(&function->method, self.ptr(), nullptr));
}

/// Nanoseconds that a call takes up to each of its stages.
nb::dict time_stages(const nb::object& function, const nb::tuple& arguments, int64_t calls) {
  using Stage = OpFunction::Stage;
  std::vector<PyObject*> given;
  for (const nb::handle argument : arguments) given.push_back(argument.ptr());
  OpFunction& op = of_capsule(PyCFunction_GetSelf(function.ptr()));
  nb::dict times;
  for (const auto& [name, last] : {std::pair{"read", Stage::read},
                                   {"borrowed", Stage::borrowed},
                                   {"known", Stage::known},
                                   {"allocated", Stage::allocated},
                                   {"launched", Stage::launched},
                                   {"all", Stage::all}}) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) op.call(given.data(), given.size(), last);
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    times[name] = spent.count() / static_cast<double>(calls);
  }
  return times;
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
      "function", &make_function, nb::arg("op"), nb::arg("result") = nb::none(),
      "The function of an op, all arguments by position (see tessera._ops); `result` is the class "
      "of its results of several fields.");
  module.def("time_stages", &time_stages, nb::arg("function"), nb::arg("arguments"),
             nb::arg("calls"),
             "Nanoseconds of a call of `function` up to each of its stages, for measurements.");
  module.def(
      "check_values", &OpFunction::check_values, nb::arg("on"),
      "Whether calls of this thread wait and raise what kernels report of values. Returns what was "
      "set before.");
  module.def(
      "set_redirect", &set_redirect, nb::arg("function").none(),
      "Sets who makes calls that go through torch's dispatcher: function(op, arguments), or None. "
      "Returns what was set before.");
  add_op_texts(module);
  add_output_shapes(module);
  add_buffer(module);
  add_process(module);
}

}  // namespace tessera::python
