#pragma once
// Where warnings go. The library does not print: it hands lines to a sink (default: stderr).

#include <functional>
#include <string_view>

#include "dsl/base/api.h"

namespace tessera::runtime {

/// Severity of a message.
enum class LogLevel { error, warn, info, debug };
/// "error", "warn", "info", "debug".
TESSERA_API std::string_view name(LogLevel level);

/// Receives one message without a line break. Any thread may call it, several at a time. It is called without any lock of the
/// library, so it may take locks and call the library. Its exceptions are dropped: no call fails because of its message.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Prints "tessera: warn: MESSAGE" on stderr, if that is writable.
TESSERA_API void print_to_stderr(LogLevel level, std::string_view message);

}  // namespace tessera::runtime
