#pragma once
// Filters messages by level, drops repeated ones and calls the sink, always without a lock.

#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "runtime/log.h"

namespace tessera::runtime {

class Log {
 public:
  explicit Log(LogLevel threshold = LogLevel::warn, LogSink sink = print_to_stderr);

  void set_sink(LogSink sink);
  void write(LogLevel level, std::string_view message);
  /// At most one message per `subject` in the life of this log.
  void write_once(LogLevel level, const std::string& subject, std::string_view message);

  // Around fork: a child must not inherit a locked log.
  void before_fork() { mutex_.lock(); }
  void after_fork() { mutex_.unlock(); }

 private:
  const LogLevel threshold_;
  std::mutex mutex_;  // guards what follows; the sink is called without it
  LogSink sink_;
  std::set<std::string> subjects_;
};

}  // namespace tessera::runtime
