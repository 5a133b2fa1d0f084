#pragma once
// What torch knows of a thread and of a tensor, without a call of Python.

#include <cstddef>
#include <cstdint>

#include "tools/python/core/python.h"

namespace tessera::python {

/// Asks functions of torch's C++ libraries that need no header of torch: they are looked up by name in
/// the libraries that are loaded, and tried on two tensors before they are trusted. Where one is not
/// there or says another thing than expected, torch's Python functions are asked, which cost 40 and
/// 100 ns more.
class TorchState {
 public:
  TorchState();

  /// True if a dispatch mode is active on this thread.
  bool any_mode() const;
  /// True of a tensor that means "minus what is in memory". `tensor` is of torch's own types.
  bool is_negative(PyObject* tensor) const;

 private:
  const nb::object python_count_modes_, python_is_negative_;
  int64_t (*count_modes_)() = nullptr;
  bool (*is_negative_)(const void* tensor) = nullptr;
  size_t word_ = 0;  // of a Python object, where its C++ tensor is
};

}  // namespace tessera::python
