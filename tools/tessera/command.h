#pragma once
// The frame of the program: each subcommand adds itself to the parser and leaves what is to be done
// in a Command.

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dsl/base/error.h"
#include "tools/lib/atomic_file.h"

namespace tessera::tools {

enum ExitCode : int { kOk = 0, kFailed = 1, kUsage = 2 };

/// Wrong usage: exit code 2. Anything else that is thrown means that the operation failed: exit
/// code 1.
class UsageError : public Error {
 public:
  explicit UsageError(const Error& error) : Error(error.fields()) {}
};

/// Runs the part of a command that reads what the user wrote: its errors are wrong usage.
template <class Fn>
decltype(auto) reading_arguments(const Fn& fn) {
  try {
    return fn();
  } catch (const Error& error) {
    throw UsageError(error);
  }
}

/// Set by the subcommand that was chosen; returns the exit code.
using Command = std::function<int()>;

void add_list(CLI::App& app, Command& command);
void add_run(CLI::App& app, Command& command);
void add_show(CLI::App& app, Command& command);
void add_check(CLI::App& app, Command& command);
void add_bench(CLI::App& app, Command& command);
void add_tune(CLI::App& app, Command& command);
void add_report(CLI::App& app, Command& command);
void add_compile(CLI::App& app, Command& command);
void add_cache(CLI::App& app, Command& command);
void add_doctor(CLI::App& app, Command& command);
void add_docs(CLI::App& app, Command& command);
void add_completion(CLI::App& app, Command& command);

/// The program: reads the words, does what they say and returns the exit code.
int run_program(int argc, char** argv);

/// The output of `tessera doctor`.
std::string doctor_text();

/// Writes the whole text on stdout; false if that fails (a full disk, a closed pipe).
bool print(const std::string& text);
/// The text in a colour or in bold, if the descriptor is a terminal and NO_COLOR is not set.
enum class Paint { bold, error, hint };
std::string painted(std::string_view text, Paint paint, int descriptor);
/// Writes the text on stderr, where that can be written, with control characters escaped. On a terminal
/// the beginning of an error and its hint stand out.
void tell(const std::string& text);
/// A line on stderr that the next one replaces, only for a person who is watching; an empty one
/// wipes it.
void show_progress(const std::string& text);

/// Writes a file whole or not at all.
void write_file(const std::string& path, const std::string& text);

/// The file of an option that may be left out. A command opens it before it works, so that a path
/// that cannot be written costs no result. Throws AtomicFile's errors.
class OptionalOutput {
 public:
  explicit OptionalOutput(const std::string& path);
  /// The whole contents; nothing without a path.
  void write(const std::string& text);

 private:
  std::optional<AtomicFile> file_;
};

}  // namespace tessera::tools
