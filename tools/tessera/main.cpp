// tessera: lists, runs, shows, checks and measures the ops of the kernel library.
//
// Exit codes: 0 ok, 1 the operation failed, 2 wrong usage; then one message on stderr.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "kernels/nearest_name.h"
#include "tools/lib/atomic_file.h"
#include "tools/lib/own_kernel.h"
#include "tools/tessera/command.h"

namespace tessera::tools {

bool print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

void tell(const std::string& text) {
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

namespace {

int report(const std::string& message, ExitCode code) {
  tell(message + "\n");
  return code;
}

/// The parser's message, with the nearest subcommand when the first word is none.
int report_usage(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::string message = fmt::format("tessera: {}", error.what());
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
  if (argc > 1 && argv[1][0] != '-' &&
      std::find(names.begin(), names.end(), argv[1]) == names.end()) {
    message = fmt::format("tessera: unknown command '{}'\n  expected  {}\n  got       {}", argv[1],
                          fmt::join(names, ", "), argv[1]);
    const std::string hint = kernels::did_you_mean(argv[1], names);
    if (!hint.empty()) message += fmt::format("\n  hint      {}", hint);
  } else {
    message += "\n  hint      run with --help for the words it knows";
  }
  return report(message, kUsage);
}

/// The file's name: a user's own program says its own in its help.
std::string program_name(int argc, char** argv) {
  const std::string path = argc > 0 ? argv[0] : "tessera";
  return path.substr(path.rfind('/') + 1);
}

int parse_and_run(int argc, char** argv) {
  program_ops();  // what is wrong with a user's own kernels is told whatever he asks for
  CLI::App app("tessera: kernels for DeepSeek-class models", program_name(argc, argv));
  app.set_version_flag("--version", "tessera " TESSERA_VERSION);
  app.require_subcommand(1);
  Command command;
  add_list(app, command);
  add_run(app, command);
  add_show(app, command);
  add_check(app, command);
  add_bench(app, command);
  add_report(app, command);
  add_compile(app, command);
  add_cache(app, command);
  add_doctor(app, command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return report_usage(app, error, argc, argv);
  }
  return command();
}

}  // namespace

int run_program(int argc, char** argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const UsageError& error) {
    return report(error.what(), kUsage);
  } catch (const Error& error) {
    return report(error.what(), kFailed);
  } catch (const std::bad_alloc&) {
    return report("tessera: not enough memory for the tensors", kFailed);
  } catch (const std::exception& error) {
    return report(fmt::format("tessera: internal error, a bug in Tessera: {}", error.what()),
                  kFailed);
  }
}

}  // namespace tessera::tools
