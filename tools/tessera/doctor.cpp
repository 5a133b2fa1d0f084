// tessera doctor: everything a bug report needs, in one paste. Fails only if kernels cannot come from
// where the user said that they come from: a bundle is missing, or nothing may be compiled and there
// is no bundle.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "dsl/base/printable.h"
#include "kernels/op.h"
#include "runtime/build_info.h"
#include "runtime/cache/disk_cache.h"
#include "runtime/cache/folder.h"
#include "runtime/cache/site_key.h"
#include "runtime/driver/device.h"
#include "runtime/driver/device_activity.h"
#include "runtime/nvrtc/nvrtc.h"
#include "runtime/nvrtc/target.h"
#include "runtime/options.h"
#include "runtime/runtime.h"
#include "tools/lib/own_kernel.h"
#include "tools/tessera/command.h"

namespace tessera::tools {
namespace {

#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;  // with its name
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

/// The first line of an error, and the rest indented below it.
std::string indented(const std::string& text) {
  std::string result;
  for (const char c : printable(text)) {
    result += c;
    if (c == '\n') result += "             ";
  }
  return result;
}

std::string line(const std::string& subject, const std::string& text) {
  return fmt::format("{:<11}  {}\n", subject, indented(text));
}

std::string about_gpus() {
  std::string text;
  try {
    const runtime::Driver& driver = runtime::driver();
    text += line("driver", fmt::format("CUDA {} ({})", runtime::cuda_version_text(driver.version),
                                       driver.path));
  } catch (const Error& error) {
    return line("driver", error.what());
  }
  if (runtime::num_devices() == 0) text += line("device", runtime::why_no_device());
  for (int ordinal = 0; ordinal < runtime::num_devices(); ++ordinal) {
    const runtime::DeviceInfo& info = runtime::device_info(ordinal);
    text +=
        line(fmt::format("cuda:{}", ordinal),
             fmt::format(
                 "{}, sm_{}{}, {} SMs, {:.1f} GiB, L2 {} MiB, {} bytes of shared memory per block",
                 info.name, info.major, info.minor, info.num_sms,
                 static_cast<double>(info.memory_bytes) / (1 << 30), info.l2_bytes >> 20,
                 info.shared_optin));
  }
  return text;
}

std::string about_nvrtc(runtime::Runtime& runtime) {
  try {
    const runtime::Nvrtc& nvrtc = runtime.nvrtc();
    std::vector<int> archs = nvrtc.archs;  // older ones it compiles for, and we do not
    std::erase_if(archs, [](int arch) { return !exists(Target(arch / 10, arch % 10, 0)); });
    return line("nvrtc", nvrtc.describe()) +
           line("builtins", nvrtc.builtins.empty() ? "not beside it" : nvrtc.builtins) +
           line("targets", fmt::format("sm_{}", fmt::join(archs, ", sm_")));
  } catch (const Error& error) {
    return line("nvrtc", error.what());
  }
}

/// ", new entries go here" or why not; "" for a root that is only read.
std::string about_new_entries(const runtime::RootStatus& root) {
  if (!root.written) return "";
  const bool is_refused = root.exists && !root.trusted;
  const std::string problem = is_refused ? root.problem : runtime::why_not_writable(root.path);
  return problem.empty()
             ? ", new entries go here"
             : fmt::format(", new entries CANNOT go here: {}{}", is_refused ? "it " : "", problem);
}

std::string about_root(const runtime::RootStatus& root) {
  const std::string state = !root.exists   ? root.bundle ? "MISSING" : "not there yet"
                            : root.trusted ? "trusted"
                                           : "NOT trusted";
  const std::string kind = fmt::format("{}{}", root.bundle ? ", a bundle" : "",
                                       root.network ? ", on a network file system" : "");
  const bool is_refused = root.exists && !root.trusted && !root.written;
  return fmt::format("{}: {}{}{}{}", root.path, state, kind, about_new_entries(root),
                     is_refused ? ", it " + root.problem : "");
}

std::string about_cache(const runtime::Runtime& runtime) {
  const std::vector<runtime::RootStatus> roots = runtime.cache_roots();
  const bool is_written = std::any_of(roots.begin(), roots.end(), [](const auto& root) {
    return root.written && (root.trusted || !root.exists);
  });
  const bool is_off = runtime.options().cache == runtime::CacheMode::off;
  std::string text = line("cache", is_off          ? "off"
                                   : roots.empty() ? "none on disk"
                                   : is_written    ? "read and written"
                                                   : "read only");
  for (const runtime::RootStatus& root : roots) text += line("root", about_root(root));
  return text;
}

constexpr const char* kProblem = "PROBLEM";

/// A line for each reason for which kernels do not come from where they should.
std::string about_problems(const runtime::Runtime& runtime) {
  std::string text;
  bool has_bundle = false;
  for (const runtime::RootStatus& root : runtime.cache_roots()) {
    if (!root.bundle) continue;
    has_bundle = has_bundle || root.trusted;
    if (!root.trusted) {
      text += line(kProblem, fmt::format("bundle {} is not used: it {}", root.path, root.problem));
    }
  }
  if (runtime.options().jit == runtime::JitMode::off && !has_bundle) {
    text += line(kProblem,
                 "nothing is compiled (TESSERA_JIT=off), and TESSERA_CACHE_DIR names no "
                 "bundle that can be used: no kernel runs on a GPU");
  }
  return text;
}

std::string about_site_key(const runtime::Options& options) {
  if (options.cache_key_file.empty()) return "";
  std::string problem;
  const bool usable = !runtime::read_site_key(options.cache_key_file, problem).empty();
  return line("site key",
              usable
                  ? options.cache_key_file
                  : fmt::format("NOT usable, so no kernel is taken from or kept in a cache: {} {}",
                                options.cache_key_file, problem));
}

std::string about_environment() {
  std::string text;
  for (const auto& [name, value] : runtime::process_environment()) {
    const bool is_cudas =
        name == "CUDA_HOME" || name == "CUDA_PATH" || name == "CUDA_VISIBLE_DEVICES";
    if (is_cudas || name.starts_with("TESSERA_")) {
      text += line("set", fmt::format("{}={}", name, value));
    }
  }
  return text;
}

}  // namespace

std::string doctor_text() {
  runtime::Runtime& runtime = runtime::Runtime::instance();
  const runtime::BuildInfo info = runtime::build_info();
  std::string text = line("tessera", fmt::format("{}, {} ops, compiled by {}", info.version,
                                                 program_ops().size(), kCompiler));
  text += line("loaded from", fmt::format("{}, {}", info.path,
                                          info.shared ? "shared library" : "static libraries"));
  for (const runtime::LoadedCopy& other : info.others) {
    text +=
        line("another", fmt::format("{} in {}, code {}", other.version, other.path, other.stamp));
  }
  text += about_gpus();
  text += about_nvrtc(runtime);
  std::string why_not;
  const std::unique_ptr<runtime::ActivityTrace> trace =
      runtime::ActivityTrace::open(runtime::Runtime::instance().options(), why_not);
  text += line("cupti", trace ? trace->path() : why_not);
  text += about_cache(runtime);
  text += about_site_key(runtime.options());
  text +=
      line("jit",
           fmt::format("{}, trust {}, bounds {} bytes and {} entries",
                       runtime::name(runtime.options().jit), runtime::name(runtime.options().trust),
                       runtime.options().cache_max_bytes, runtime.options().cache_max_entries));
  const std::optional<bool> traps = runtime.options().traps;
  text += line("traps", !traps   ? "on CPU tensors: on for own kernels, off for shipped ops"
                        : *traps ? "on CPU tensors: on"
                                 : "on CPU tensors: off");
  text += line("code", info.stamp);
  text += about_environment();
  for (const std::string& warning : runtime.options().warnings) text += line("warning", warning);
  text += about_problems(runtime);
  return text;
}

namespace {

/// Subject and text of each line of doctor_text().
std::vector<std::pair<std::string, std::string>> facts_of(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> facts;
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one);) {
    if (one.starts_with(' ')) {
      facts.back().second += "\n" + one.substr(one.find_first_not_of(' '));
    } else {
      const size_t end = one.find("  ");
      facts.emplace_back(one.substr(0, end), one.substr(one.find_first_not_of(' ', end)));
    }
  }
  return facts;
}

int doctor(bool as_json) {
  const auto facts = facts_of(doctor_text());
  const bool is_well = std::none_of(facts.begin(), facts.end(),
                                    [](const auto& fact) { return fact.first == kProblem; });
  if (as_json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto& [subject, fact] : facts) {
      list.push_back({{"subject", subject}, {"text", fact}});
    }
    return print(list.dump(2) + "\n") && is_well ? kOk : kFailed;
  }
  std::string shown;
  for (const auto& [subject, fact] : facts) {
    const std::string blanks(subject.size() < 11 ? 11 - subject.size() : 0, ' ');
    shown += painted(subject, Paint::bold, STDOUT_FILENO) + blanks + "  " + indented(fact) + "\n";
  }
  return print(shown) && is_well ? kOk : kFailed;
}

}  // namespace

void add_doctor(CLI::App& app, Command& command) {
  CLI::App* sub =
      app.add_subcommand("doctor", "versions, devices, compiler, cache: for a bug report");
  sub->footer(
      "Examples:\n"
      "  tessera doctor\n"
      "  tessera doctor --json");
  auto as_json = std::make_shared<bool>(false);
  sub->add_flag("--json", *as_json, "for machines");
  sub->callback([as_json, &command] { command = [as_json] { return doctor(*as_json); }; });
}

}  // namespace tessera::tools
