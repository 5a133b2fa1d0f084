#include "tools/python/core/torch_state.h"

#include <dlfcn.h>

#include <cstring>

namespace tessera::python {
namespace {

/// A function of a library that is loaded; null if either is not there.
template <class Function>
Function function_of(const char* library, const char* mangled_name) {
  void* const loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (loaded == nullptr) return nullptr;
  const auto function = reinterpret_cast<Function>(dlsym(loaded, mangled_name));
  dlclose(loaded);  // the count only: torch keeps it
  return function;
}

const void* word_of(PyObject* object, size_t word) {
  return reinterpret_cast<const char*>(object) + word * sizeof(void*);
}

/// The word of a tensor's object that holds the pointer that torch calls its `_cdata`; 0 if none does.
size_t find_word(const nb::object& tensor) {
  const nb::object address = tensor.attr("_cdata");
  void* const wanted = PyLong_AsVoidPtr(address.ptr());
  const auto size = nb::cast<size_t>(nb::handle(tensor.type()).attr("__basicsize__"));
  for (size_t word = 1; word < size / sizeof(void*); ++word) {
    if (std::memcmp(word_of(tensor.ptr(), word), &wanted, sizeof(wanted)) == 0) return word;
  }
  return 0;
}

}  // namespace

TorchState::TorchState()
    : python_count_modes_(nb::module_::import_("torch._C").attr("_len_torch_dispatch_stack")),
      python_is_negative_(nb::module_::import_("torch").attr("Tensor").attr("is_neg")) {
  count_modes_ =
      function_of<int64_t (*)()>("libc10.so", "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv");
  const auto is_negative =
      function_of<bool (*)(const void*)>("libtorch_cpu.so", "_ZN2at6native6is_negERKNS_6TensorE");
  const nb::object torch = nb::module_::import_("torch");
  if (is_negative == nullptr || !nb::hasattr(torch, "_neg_view")) return;
  const nb::object plain = torch.attr("zeros")(1);
  const nb::object negative = torch.attr("_neg_view")(plain);
  const size_t word = find_word(plain);
  if (word == 0 || find_word(negative) != word || is_negative(word_of(plain.ptr(), word)) ||
      !is_negative(word_of(negative.ptr(), word))) {
    return;
  }
  is_negative_ = is_negative;
  word_ = word;
}

bool TorchState::any_mode() const {
  if (count_modes_ != nullptr) return count_modes_() != 0;
  const nb::object modes = owned(PyObject_CallNoArgs(python_count_modes_.ptr()));
  return PyLong_AsLong(modes.ptr()) != 0;
}

bool TorchState::is_negative(PyObject* tensor) const {
  if (is_negative_ != nullptr) return is_negative_(word_of(tensor, word_));
  return owned(PyObject_Vectorcall(python_is_negative_.ptr(), &tensor, 1, nullptr)).ptr() !=
         Py_False;
}

}  // namespace tessera::python
