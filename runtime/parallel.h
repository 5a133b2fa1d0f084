#pragma once
// Runs tasks on threads that are joined when the call returns, so fork and exit meet none of them.

#include <cstddef>
#include <functional>
#include <stop_token>

#include "runtime/options.h"

namespace tessera::runtime {

/// Number of threads for compiling: options.jobs, else one per core, at most 8, and at most one per
/// 512 MB of free memory, the need of one NVRTC.
int num_jobs(const Options& options);

/// Runs task(0) ... task(count - 1) on `jobs` threads, or on fewer if threads cannot be created.
/// Runs all of them, or after a `stop` request those that have begun. Then throws the error of the
/// lowest index.
void run_in_parallel(size_t count, int jobs, const std::stop_token& stop,
                     const std::function<void(size_t)>& task);

}  // namespace tessera::runtime
