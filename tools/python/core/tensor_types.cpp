// The library of a tensor, by its Python type.

#include <string>
#include <unordered_map>

#include "tools/python/core/library.h"

namespace tessera::python {
namespace {

/// An attribute of a module that is already imported, else null.
nb::object attribute_of_loaded(const char* module, const char* name) {
  PyObject* modules = PyImport_GetModuleDict();  // borrowed
  PyObject* loaded = PyDict_GetItemString(modules, module);
  if (loaded == nullptr || !PyObject_HasAttrString(loaded, name)) return {};
  return owned(PyObject_GetAttrString(loaded, name));
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
  if (PyObject_HasAttrString(object, "__dlpack__")) return {&dlpack_library(given)};
  return {};
}

}  // namespace

const TensorType& tensor_type_of(PyObject* object) {
  // Types stay: an entry holds a reference, so no other type can have its address.
  static std::unordered_map<PyTypeObject*, TensorType>& types =
      *new std::unordered_map<PyTypeObject*, TensorType>;
  static PyTypeObject* last_type = nullptr;
  static const TensorType* last = nullptr;
  PyTypeObject* const type = Py_TYPE(object);
  if (type == last_type) return *last;
  auto found = types.find(type);
  if (found == types.end()) {
    const TensorType fresh = look_at(object);
    static const TensorType none;
    if (fresh.library == nullptr) return none;  // not kept: any object may be passed by mistake
    Py_INCREF(reinterpret_cast<PyObject*>(type));
    found = types.emplace(type, fresh).first;
  }
  last_type = type;
  last = &found->second;  // addresses of entries stay
  return *last;
}

}  // namespace tessera::python
