#pragma once
// Long work without the interpreter lock, which Ctrl-C ends.

#include <functional>
#include <stop_token>

#include "tools/python/core/python.h"

namespace tessera::python {

/// Runs `work` without the interpreter lock. A signal whose handler raises (Ctrl-C: KeyboardInterrupt)
/// ends it within a moment; then that error is thrown. Signals are seen on the main thread only.
void run_interruptibly(const std::function<void()>& work);

/// The same for work that is spread over threads of its own and is told to stop by a token.
void run_interruptibly_elsewhere(const std::function<void(std::stop_token)>& work);

}  // namespace tessera::python
