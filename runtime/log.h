#pragma once
// Where warnings go. The library never prints by itself: it hands lines to a sink (default:
// stderr).

#include <functional>
#include <string_view>

#include "dsl/base/api.h"

namespace tessera::runtime {

/// How much a message matters.
enum class LogLevel { error, warn, info, debug };
/// "error", "warn", "info", "debug".
TESSERA_API std::string_view name(LogLevel level);

/// Gets one message without a line break. Called from any thread, one call at a time. What it throws
/// is dropped: no call fails for its message.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Prints "tessera: warn: MESSAGE" on stderr, where that can be written.
TESSERA_API void print_to_stderr(LogLevel level, std::string_view message);

}  // namespace tessera::runtime
