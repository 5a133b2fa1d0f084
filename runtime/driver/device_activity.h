#pragma once
// The work of the GPU and its times, from CUPTI's activity records. libcupti is opened at run time.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::runtime {

struct Options;

struct Activity {
  enum class Kind : uint8_t { kernel, copy, fill } kind = Kind::kernel;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint64_t bytes = 0;  // of copies and fills
};

/// One per process: CUPTI hands records to plain functions.
class ActivityTrace {
 public:
  /// Searches the toolkit folders of `options` and the loader's path. Null, and the reason with every place
  /// tried in `why_not`, if CUPTI cannot be used or there is no GPU.
  static std::unique_ptr<ActivityTrace> open(const Options& options, std::string& why_not);
  ~ActivityTrace();
  ActivityTrace(const ActivityTrace&) = delete;
  ActivityTrace& operator=(const ActivityTrace&) = delete;

  void start();
  /// Everything since start(), sorted by start time. The device must be idle. Throws Error (driver)
  /// when CUPTI fails or has dropped records.
  std::vector<Activity> stop();

  const std::string& path() const { return path_; }

 private:
  struct Functions;
  ActivityTrace(std::unique_ptr<Functions> functions, std::string path);
  void check(int result, const char* call) const;

  std::unique_ptr<Functions> call_;
  std::string path_;
};

}  // namespace tessera::runtime
