#include "runtime/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <fstream>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tessera::runtime {

namespace {

// Memory that programs may still take, reclaimable page cache included.
int64_t available_bytes() {
  std::ifstream facts("/proc/meminfo");
  for (std::string word; facts >> word;) {
    int64_t kilobytes = 0;
    if (word == "MemAvailable:" && facts >> kilobytes) return kilobytes * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

}  // namespace

int num_jobs(const Options& options) {
  if (options.jobs > 0) return options.jobs;
  constexpr int64_t kMostJobs = 8;
  constexpr int64_t kBytesPerJob = int64_t{512} << 20;
  const int64_t by_cores = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, kMostJobs);
  const int64_t by_memory = std::max<int64_t>(available_bytes() / kBytesPerJob, 1);
  return static_cast<int>(std::min(by_cores, by_memory));
}

void run_in_parallel(size_t count, int jobs, const std::stop_token& stop,
                     const std::function<void(size_t)>& task) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  size_t failed = count;
  std::exception_ptr error;
  const auto work = [&] {
    while (!stop.stop_requested()) {
      const size_t i = next++;
      if (i >= count) return;
      try {
        task(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) {
          failed = i;
          error = std::current_exception();
        }
      }
    }
  };
  std::vector<std::jthread> threads;
  try {
    for (size_t i = 1; i < std::min(count, static_cast<size_t>(jobs)); ++i)
      threads.emplace_back(work);
  } catch (const std::exception&) {
    // No more threads can be created: the existing ones, at least this one, do the work.
  }
  work();
  threads.clear();  // joins
  if (error) std::rethrow_exception(error);
}

}  // namespace tessera::runtime
