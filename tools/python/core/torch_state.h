#pragma once
// Facts that torch keeps of a thread and of a tensor, asked without a call of Python.

#include <cstddef>
#include <cstdint>

#include "tools/python/core/python.h"

namespace tessera::python {

/// Asks functions of torch's C++ libraries that need no header of torch: they are looked up by name in
/// the libraries that are loaded, and tried on tensors before they are trusted. Where one is not there
/// or says another thing than expected, torch's Python functions are asked, which cost 40 to 100 ns
/// more. Each `tensor` is of torch's own types.
class TorchState {
 public:
  TorchState();

  /// True if a dispatch mode is active on this thread.
  bool any_mode() const;
  /// True inside of torch.autograd.forward_ad.dual_level().
  bool in_dual_level() const;
  /// True if autograd records on this thread.
  bool is_grad_enabled() const;
  /// True of a tensor that means "minus what is in memory".
  bool is_negative(PyObject* tensor) const;
  bool requires_grad(PyObject* tensor) const;
  /// Tells graphs that saved the tensor, or one that shares memory with it, that it changes.
  void bump_version(PyObject* tensor) const;

 private:
  using Ask = bool (*)(const void*);

  void try_is_negative(const nb::object& torch, const nb::object& plain);
  void try_bump_version(const nb::object& plain);
  const void* pointer_of(PyObject* tensor) const;

  const nb::object python_count_modes_, python_is_negative_, python_is_grad_enabled_, forward_ad_;
  const nb::object level_name_;
  nb::object python_bump_version_;
  int64_t (*count_modes_)() = nullptr;
  bool (*is_grad_enabled_)() = nullptr;
  Ask is_negative_ = nullptr, is_inference_ = nullptr;
  Ask requires_grad_ = nullptr;  // a method of the C++ tensor's memory, not of the pointer to it
  void (*bump_version_)(const void* tensor) = nullptr;
  size_t word_ = 0;  // of a Python object, where its C++ tensor is
};

}  // namespace tessera::python
