#pragma once
// Work on several threads that are gone when the call returns, so that fork and exit meet none.

#include <cstddef>
#include <functional>
#include <stop_token>

#include "runtime/options.h"

namespace tessera::runtime {

/// Threads for compiling: options.jobs, else one per core, at most 8, and at most one per 512 MB of
/// free memory, which is what an NVRTC at work may take.
int num_jobs(const Options& options);

/// Runs task(0) ... task(count - 1), `jobs` at a time, or fewer where threads cannot be had. All are
/// run, or, once `stop` is requested, those that have begun; then the error of the lowest index is
/// thrown.
void run_in_parallel(size_t count, int jobs, const std::stop_token& stop,
                     const std::function<void(size_t)>& task);

}  // namespace tessera::runtime
