#include "tools/python/core/torch_state.h"

#include <dlfcn.h>

#include <cstring>

#include "tools/python/core/arguments.h"
#include "tools/python/core/interpreter_lock.h"

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
      python_is_negative_(nb::module_::import_("torch").attr("Tensor").attr("is_neg")),
      python_is_grad_enabled_(nb::module_::import_("torch").attr("is_grad_enabled")),
      forward_ad_(nb::module_::import_("torch.autograd.forward_ad").attr("__dict__")),
      level_name_(interned("_current_level")),
      python_bump_version_(nb::module_::import_("torch.autograd.graph").attr("increment_version")) {
  count_modes_ =
      function_of<int64_t (*)()>("libc10.so", "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv");
  is_grad_enabled_ = function_of<bool (*)()>("libc10.so", "_ZN3c108GradMode10is_enabledEv");
  const nb::object torch = nb::module_::import_("torch");
  const nb::object plain = torch.attr("zeros")(1), leaf = torch.attr("zeros")(1);
  leaf.attr("requires_grad_")();
  const size_t word = find_word(plain);
  if (word == 0 || find_word(leaf) != word) return;
  word_ = word;
  const auto ask = function_of<Ask>("libc10.so", "_ZNK3c1010TensorImpl13requires_gradEv");
  if (ask != nullptr && !ask(pointer_of(plain.ptr())) && ask(pointer_of(leaf.ptr()))) {
    requires_grad_ = ask;
  }
  try_is_negative(torch, plain);
  try_bump_version(plain);
}

void TorchState::try_is_negative(const nb::object& torch, const nb::object& plain) {
  const auto is_negative =
      function_of<Ask>("libtorch_cpu.so", "_ZN2at6native6is_negERKNS_6TensorE");
  if (is_negative == nullptr || !has_attribute(torch, "_neg_view")) return;
  const nb::object negative = torch.attr("_neg_view")(plain);
  if (find_word(negative) != word_ || is_negative(word_of(plain.ptr(), word_)) ||
      !is_negative(word_of(negative.ptr(), word_))) {
    return;
  }
  is_negative_ = is_negative;
}

void TorchState::try_bump_version(const nb::object& plain) {
  const auto is_inference =
      function_of<Ask>("libtorch_cpu.so", "_ZN2at6native12is_inferenceERKNS_6TensorE");
  const auto bump = function_of<void (*)(const void*)>(
      "libtorch_cpu.so", "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE");
  // Made in inference mode itself, if that is on: then nothing can be tried.
  if (is_inference == nullptr || bump == nullptr || is_inference(word_of(plain.ptr(), word_)))
    return;
  const auto before = nb::cast<int64_t>(plain.attr("_version"));
  bump(word_of(plain.ptr(), word_));
  if (nb::cast<int64_t>(plain.attr("_version")) != before + 1) return;
  is_inference_ = is_inference;
  bump_version_ = bump;
}

const void* TorchState::pointer_of(PyObject* tensor) const {
  const void* pointer = nullptr;
  std::memcpy(&pointer, word_of(tensor, word_), sizeof(pointer));
  return pointer;
}

bool TorchState::any_mode() const {
  if (count_modes_ != nullptr) return count_modes_() != 0;
  const nb::object modes = owned(PyObject_CallNoArgs(python_count_modes_.ptr()));
  return PyLong_AsLong(modes.ptr()) != 0;
}

bool TorchState::in_dual_level() const {
  PyObject* const level = PyDict_GetItemWithError(forward_ad_.ptr(), level_name_.ptr());
  return level != nullptr && PyLong_AsLong(level) >= 0;
}

bool TorchState::is_grad_enabled() const {
  if (is_grad_enabled_ != nullptr) return is_grad_enabled_();
  return owned(PyObject_CallNoArgs(python_is_grad_enabled_.ptr())).ptr() == Py_True;
}

bool TorchState::is_negative(PyObject* tensor) const {
  if (is_negative_ != nullptr) return is_negative_(word_of(tensor, word_));
  return owned(PyObject_Vectorcall(python_is_negative_.ptr(), &tensor, 1, nullptr)).ptr() !=
         Py_False;
}

bool TorchState::requires_grad(PyObject* tensor) const {
  if (requires_grad_ != nullptr) return requires_grad_(pointer_of(tensor));
  return nb::cast<bool>(nb::handle(tensor).attr("requires_grad"));
}

void TorchState::bump_version(PyObject* tensor) const {
  if (bump_version_ == nullptr) {
    python_bump_version_(nb::handle(tensor));
  } else if (!is_inference_(word_of(tensor, word_))) {  // one that is has no version
    bump_version_(word_of(tensor, word_));
  }
}

}  // namespace tessera::python
