#include "tools/python/core/signals.h"

#include <chrono>
#include <exception>
#include <future>
#include <optional>
#include <thread>

#include "dsl/base/interrupt.h"
#include "tools/python/core/interpreter_lock.h"

namespace tessera::python {
namespace {

/// Raises what the handlers of the signals that have come raise.
class Signals {
 public:
  /// True if one raised. Takes the interpreter lock.
  bool have_raised() {
    const WithInterpreterLock held;
    if (PyErr_CheckSignals() == 0) return false;
    error_.emplace();
    return true;
  }
  void raise() {
    if (error_) throw nb::python_error(*error_);
  }

 private:
  std::optional<nb::python_error> error_;
};

}  // namespace

void run_interruptibly(const std::function<void()>& work) {
  Signals signals;
  std::exception_ptr failed;
  {
    const WithoutInterpreterLock released;
    const InterruptScope scope([&] { return signals.have_raised(); });
    try {
      work();
    } catch (...) {
      failed = std::current_exception();
    }
  }
  signals.raise();
  if (failed) std::rethrow_exception(failed);
}

void run_interruptibly_elsewhere(const std::function<void(std::stop_token)>& work) {
  Signals signals;
  std::stop_source stop;
  std::exception_ptr failed;
  {
    const WithoutInterpreterLock released;
    std::promise<void> ended;
    std::future<void> end = ended.get_future();
    std::thread worker([&] {
      try {
        work(stop.get_token());
        ended.set_value();
      } catch (...) {
        ended.set_exception(std::current_exception());
      }
    });
    while (end.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      if (!stop.stop_requested() && signals.have_raised()) stop.request_stop();
    }
    worker.join();
    try {
      end.get();
    } catch (...) {
      failed = std::current_exception();
    }
  }
  signals.raise();
  if (failed) std::rethrow_exception(failed);
}

}  // namespace tessera::python
