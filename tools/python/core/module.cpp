// The module tessera._core.

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dsl/base/error.h"
#include "kernels/op.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/table.h"
#include "tools/python/core/arguments.h"
#include "tools/python/core/buffer.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/op_function.h"
#include "tools/python/core/op_texts.h"
#include "tools/python/core/output_shapes.h"
#include "tools/python/core/process.h"
#include "tools/python/core/redirect.h"

namespace tessera::python {
namespace {

/// An op's function behind the object that Python calls, made at its first call. Lives as long as the
/// process.
struct Function {
  const kernels::Op* op;
  std::string name, text;
  PyMethodDef method;
  nb::object result_type;
  std::unique_ptr<OpFunction> made;

  OpFunction& operator*() {
    if (!made) {
      made = std::make_unique<OpFunction>(kernels::parsed(*op));
      made->set_result_type(result_type);
    }
    return *made;
  }
};

// A built-in function without an object is named by its module alone, so that it can be pickled, and
// torch.compile can put another in its place. It tells which one it is by its address. Hence repr() is that of
// built-in functions: torch.compiler.substitute_in_graph takes functions alone, not objects of a class with a repr of
// its own, and Python allows no subclass of the built-in ones.
constexpr size_t kMostFunctions = 256;
std::vector<Function*>& functions() {
  static auto& all = *new std::vector<Function*>;
  return all;
}

template <size_t Number>
PyObject* call_function(PyObject*, PyObject* const* arguments, Py_ssize_t num_positional,
                        PyObject* names) {
  try {
    return (**functions()[Number])(arguments, num_positional, names).release().ptr();
  } catch (...) {
    set_error();
    return nullptr;
  }
}

using Entry = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*);

template <size_t... Numbers>
constexpr std::array<Entry, sizeof...(Numbers)> entries(std::index_sequence<Numbers...>) {
  return {&call_function<Numbers>...};
}

/// `result` is the class of results, a tuple, or None; `text` the signature and the documentation, as
/// inspect.signature and help read them of built-in functions.
nb::object make_function(const std::string& name, nb::object result, std::string text) {
  static constexpr auto kEntries = entries(std::make_index_sequence<kMostFunctions>());
  const auto& ops = kernels::all_ops();
  const auto found =
      std::find_if(ops.begin(), ops.end(), [&](const kernels::Op* op) { return op->name == name; });
  if (found == ops.end()) kernels::find_op(name);  // which says what is wrong
  const size_t number = functions().size();
  TESSERA_CHECK(number < kMostFunctions, "too many functions");
  auto* const function = new Function{*found, name, std::move(text), {}, {}, nullptr};
  functions().push_back(function);
  function->method = {function->name.c_str(),
                      reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(kEntries[number])),
                      METH_FASTCALL | METH_KEYWORDS, function->text.c_str()};
  if (!result.is_none()) function->result_type = std::move(result);
  return owned(PyCFunction_NewEx(&function->method, nullptr, interned("tessera").ptr()));
}

/// Nanoseconds that a call of an op takes up to each of its stages.
nb::dict time_stages(const std::string& name, const nb::tuple& arguments, const nb::dict& named,
                     int64_t calls) {
  using Stage = OpFunction::Stage;
  const auto found = std::find_if(functions().begin(), functions().end(),
                                  [&](const Function* function) { return function->name == name; });
  if (found == functions().end()) kernels::find_op(name);
  std::vector<PyObject*> given;
  for (const nb::handle argument : arguments) given.push_back(argument.ptr());
  const nb::tuple names(named.keys()), values(named.values());  // the calls may change the dict
  for (const nb::handle value : values) given.push_back(value.ptr());
  const auto num_positional = static_cast<Py_ssize_t>(nb::len(arguments));
  nb::dict times;
  for (const auto& [stage, last] : {std::pair{"read", Stage::read},
                                    {"borrowed", Stage::borrowed},
                                    {"known", Stage::known},
                                    {"allocated", Stage::allocated},
                                    {"launched", Stage::launched},
                                    {"all", Stage::all}}) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) {
      (***found).call(given.data(), num_positional, names.ptr(), last);
    }
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
    times[stage] = spent.count() / static_cast<double>(calls);
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
      nb::arg("text") = "",
      "The function of an op; `result` is the class of its results of several fields, `text` its "
      "signature and documentation (see tessera._ops).");
  module.def("time_stages", &time_stages, nb::arg("op"), nb::arg("arguments"), nb::arg("named"),
             nb::arg("calls"),
             "Nanoseconds of a call of an op up to each of its stages, for measurements.");
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
