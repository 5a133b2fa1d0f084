#pragma once
// The interpreter lock, given up and taken so that a daemon thread survives the end of Python.

#include <cxxabi.h>

#include <atomic>

#include "tools/python/core/python.h"

namespace tessera::python {

/// True from the begin of Python's end on: no listener and no logging is called then.
inline std::atomic<bool> g_python_ends = false;

/// Never returns: the thread sleeps until the process has ended.
[[noreturn]] void sleep_until_exit() noexcept;

/// Calls `function`, which runs Python code. When Python has ended, a thread that asks for the interpreter lock is ended by
/// pthread_exit (before 3.14, where it sleeps). That unwinds the stack and aborts the process at the first C++ function that may
/// not throw. Here the thread sleeps instead.
template <class Function>
decltype(auto) call_python(const Function& function) {
  try {
    return function();
  } catch (const abi::__forced_unwind&) {
    sleep_until_exit();
  }
}

/// nb::hasattr, which may not throw, of an attribute whose getter may be Python code.
inline bool has_attribute(nb::handle object, const char* name) {
  return call_python([&] { return PyObject_HasAttrString(object.ptr(), name) == 1; });
}

/// Gives up the interpreter lock while it lives.
class WithoutInterpreterLock {
 public:
  WithoutInterpreterLock() : state_(PyEval_SaveThread()) {}
  ~WithoutInterpreterLock() {
    call_python([this] { PyEval_RestoreThread(state_); });
  }
  WithoutInterpreterLock(const WithoutInterpreterLock&) = delete;
  WithoutInterpreterLock& operator=(const WithoutInterpreterLock&) = delete;

 private:
  PyThreadState* state_;
};

/// Holds the interpreter lock while it lives, on any thread.
class WithInterpreterLock {
 public:
  WithInterpreterLock() {
    // No lock is left for a thread that Python does not know. One that it knows may be the thread that ends it.
    if (Py_IsInitialized() == 0 && PyGILState_GetThisThreadState() == nullptr) sleep_until_exit();
    call_python([this] { state_ = PyGILState_Ensure(); });
  }
  ~WithInterpreterLock() { PyGILState_Release(state_); }
  WithInterpreterLock(const WithInterpreterLock&) = delete;
  WithInterpreterLock& operator=(const WithInterpreterLock&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace tessera::python
