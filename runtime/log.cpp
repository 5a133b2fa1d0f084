#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "dsl/base/callbacks.h"
#include "dsl/base/printable.h"
#include "runtime/log_writer.h"
#include "runtime/no_write_signals.h"

namespace tessera::runtime {

std::string_view name(LogLevel level) {
  switch (level) {
    case LogLevel::error:
      return "error";
    case LogLevel::warn:
      return "warn";
    case LogLevel::info:
      return "info";
    case LogLevel::debug:
      return "debug";
  }
  return "error";
}

void print_to_stderr(LogLevel level, std::string_view message) {
  const std::string line = fmt::format("tessera: {}: {}\n", name(level), printable(message));
  // stderr may be closed or full: the line is lost then.
  const NoWriteSignals guard;
  static_cast<void>(std::fwrite(line.data(), 1, line.size(), stderr));
}

Log::Log(LogLevel threshold, LogSink sink) : threshold_(threshold), sink_(std::move(sink)) {}

void Log::set_sink(LogSink sink) {
  const std::lock_guard lock(mutex_);
  sink_ = std::move(sink);
}

void Log::write(LogLevel level, std::string_view message) {
  if (level > threshold_) return;
  LogSink sink;
  {
    const std::lock_guard lock(mutex_);
    sink = sink_;
  }
  if (!sink) return;
  call_back([sink = std::move(sink), level, text = std::string(message)] { sink(level, text); });
}

void Log::write_once(LogLevel level, const std::string& subject, std::string_view message) {
  if (level > threshold_) return;
  {
    const std::lock_guard lock(mutex_);
    if (!subjects_.insert(subject).second) return;
  }
  write(level, message);
}

}  // namespace tessera::runtime
