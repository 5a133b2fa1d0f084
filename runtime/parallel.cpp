#include "runtime/parallel.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::runtime {

int num_jobs(const Options& options) {
  if (options.jobs > 0) return options.jobs;
  constexpr int64_t kMostJobs = 8;
  constexpr int64_t kBytesPerJob = int64_t{512} << 20;
  int64_t jobs = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, kMostJobs);
  struct sysinfo info = {};
  if (::sysinfo(&info) == 0) {
    // What the page cache holds would be given up: count it as free.
    const auto free = static_cast<int64_t>((info.freeram + info.bufferram) * info.mem_unit);
    jobs = std::min(jobs, std::max<int64_t>(free / kBytesPerJob, 1));
  }
  return static_cast<int>(jobs);
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
  for (size_t i = 1; i < std::min(count, static_cast<size_t>(jobs)); ++i)
    threads.emplace_back(work);
  work();
  threads.clear();  // joins
  if (error) std::rethrow_exception(error);
}

}  // namespace tessera::runtime
