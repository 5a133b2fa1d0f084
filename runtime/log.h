#pragma once
// Where warnings go. The library never prints by itself: it hands lines to a sink (default:
// stderr).

#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace tessera::runtime {

enum class LogLevel { error, warn, info, debug };
std::string_view name(LogLevel level);
std::optional<LogLevel> log_level_from_name(std::string_view word);

/// Gets one message without a line break. Called from any thread, one call at a time. What it throws
/// is dropped: no call fails for its message.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Prints "tessera: warn: MESSAGE" on stderr, where that can be written.
void print_to_stderr(LogLevel level, std::string_view message);

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
  void hand_over(LogLevel level, std::string_view message);

  const LogLevel threshold_;
  std::mutex mutex_;
  LogSink sink_;
  std::set<std::string> subjects_;
};

}  // namespace tessera::runtime
