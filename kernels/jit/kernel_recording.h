#pragma once
// Kernels that a recording (TESSERA_RECORD) gets in addition to those that its calls launch.

#include <functional>
#include <string>

#include "dsl/base/tensor_view.h"

namespace tessera::kernels::jit {

/// True if the kernels of this thread's calls on the device are recorded.
bool is_recorded(Device device);

/// Compiles the kernels that `calls` would launch and adds them to the recording. Loads and launches
/// nothing. An error is a warning, once per op: recording must not fail a call.
void record(const std::string& op, Device device, const std::function<void()>& calls);

}  // namespace tessera::kernels::jit
