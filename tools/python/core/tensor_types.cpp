// The library of a tensor, by its Python type.

#include <string>
#include <unordered_map>
#include <utility>

#include "tools/python/core/interpreter_lock.h"
#include "tools/python/core/library.h"

namespace tessera::python {
namespace {

/// An attribute of a module that is already imported, else null.
nb::object attribute_of_loaded(const char* module, const char* name) {
  PyObject* modules = PyImport_GetModuleDict();  // borrowed
  const nb::object loaded = nb::borrow(PyDict_GetItemString(modules, module));
  if (!loaded.is_valid() || !has_attribute(loaded, name)) return {};
  return owned(PyObject_GetAttrString(loaded.ptr(), name));
}

bool is_subclass(PyObject* type, const nb::object& base) {
  if (!base.is_valid()) return false;
  const int answer = PyObject_IsSubclass(type, base.ptr());
  check(answer);
  return answer == 1;
}

TensorType look_at(PyObject* given) {
  PyObject* const object = reinterpret_cast<PyObject*>(Py_TYPE(given));
  const nb::object tensor = attribute_of_loaded("torch", "Tensor");
  if (is_subclass(object, tensor)) {
    const nb::object parameter = attribute_of_loaded("torch.nn", "Parameter");
    const bool is_plain = object == tensor.ptr() || object == parameter.ptr();
    return {&torch_library(), !is_plain};
  }
  if (is_subclass(object, attribute_of_loaded("numpy", "ndarray"))) return {&numpy_library()};
  if (has_attribute(object, "__dlpack__")) return {&dlpack_library(given)};
  return {};
}

}  // namespace

TensorType tensor_type_of(PyObject* object) {
  // An entry holds a reference to its type, so no other type can have its address. Classes that a program makes again and again
  // must not stay: when the table is full, all are forgotten.
  constexpr size_t kMost = 64;
  using Types = std::unordered_map<PyTypeObject*, std::pair<nb::object, TensorType>>;
  static Types& types = *new Types;
  static PyTypeObject* last_type = nullptr;
  static TensorType last;
  PyTypeObject* const type = Py_TYPE(object);
  if (type == last_type) return last;
  auto found = types.find(type);
  if (found == types.end()) {
    const TensorType fresh = look_at(object);    // runs Python code, which may come here too
    if (fresh.library == nullptr) return fresh;  // not kept: any object may be passed by mistake
    Types forgotten;  // destroyed last: the end of a type runs Python code
    if (types.size() >= kMost) {
      types.swap(forgotten);
      last_type = nullptr;
    }
    types.try_emplace(type, nb::borrow(reinterpret_cast<PyObject*>(type)), fresh);
    return fresh;
  }
  last_type = type;
  last = found->second.second;
  return last;
}

}  // namespace tessera::python
