#include "runtime/nvrtc/compile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "dsl/base/interrupt.h"
#include "dsl/base/target_facts.h"
#include "runtime/check_source.h"
#include "runtime/driver/driver.h"
#include "runtime/nvrtc/nvrtc_use.h"
#include "runtime/nvrtc/reproduction.h"
#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

constexpr size_t kMaxLogBytes = 64 * 1024;
constexpr int kFirstVersionWithMinimal = 12040;
constexpr int kFirstVersionWithNoCache = 12090;
constexpr int kFirstVersionWithFamilies = 12090;  // sm_100f and its like

void check_target(const Nvrtc& nvrtc, const KernelSource& source, Target target) {
  check_supported(target, source.op);
  if (source.cluster > 1 && facts_of(target).max_cluster == 1) {
    raise(ErrorKind::unsupported, source.op, "the target has no clusters of blocks",
          {.expected = "sm_90 or newer",
           .got = fmt::format("{}, clusters of {}", to_string(target), source.cluster),
           .hint = "launch without .cluster for this target",
           .code = "CLUSTER_TARGET"});
  }
  const auto& archs = nvrtc.archs;
  if (target.letter == 'f' && nvrtc.version < kFirstVersionWithFamilies) {
    raise(ErrorKind::unsupported, source.op,
          fmt::format("{} does not know families of targets", nvrtc.describe()),
          {.expected = fmt::format("NVRTC {} or newer for {}",
                                   cuda_version_text(kFirstVersionWithFamilies), to_string(target)),
           .got = "NVRTC " + cuda_version_text(nvrtc.version)});
  }
  if (std::find(archs.begin(), archs.end(), target.number()) != archs.end()) return;
  raise(ErrorKind::unsupported, source.op,
        fmt::format("{} does not know the target", nvrtc.describe()),
        {.expected = fmt::format("one of sm_{}", fmt::join(archs, ", sm_")),
         .got = to_string(target)});
}

std::string bounded(const std::string& log) {
  if (log.size() <= kMaxLogBytes) return log;
  const size_t half = kMaxLogBytes / 2;
  return fmt::format("{}\n... {} bytes left out ...\n{}", log.substr(0, half),
                     log.size() - kMaxLogBytes, log.substr(log.size() - half));
}

// ptxas logs how long it took. The log is kept without times, so that two compiles give the same
// bytes.
std::string without_times(std::string_view log) {
  constexpr std::string_view kTime = "Compile time = ";
  std::string result;
  while (!log.empty()) {
    const size_t end = log.find('\n');
    const std::string_view line = log.substr(0, end == std::string_view::npos ? end : end + 1);
    if (line.find(kTime) == std::string_view::npos) result += line;
    log.remove_prefix(line.size());
  }
  return result;
}

// Returns N of "name.cu(N): error", or 0.
int line_of_first_error(std::string_view log, std::string_view file) {
  size_t at = log.find(": error");
  if (at == std::string_view::npos) return 0;
  const size_t begin = log.rfind('\n', at);
  std::string_view line = log.substr(begin == std::string_view::npos ? 0 : begin + 1);
  if (line.substr(0, file.size()) != file || line.substr(file.size(), 1) != "(") return 0;
  line.remove_prefix(file.size() + 1);
  int number = 0;
  std::from_chars(line.data(), line.data() + line.size(), number);
  return number;
}

// Returns the numbered lines around `number`, two on either side.
std::string lines_around(std::string_view text, int number) {
  std::string result;
  for (int line = 1; !text.empty() && line <= number + 2; ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (line >= number - 2) {
      result +=
          fmt::format("{} {:4} | {}\n", line == number ? '>' : ' ', line, text.substr(0, end));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

// Where the author wrote the statement that line `number` was generated from.
SourceLoc origin_of(const KernelSource& source, int number) {
  SourceLoc loc;
  for (const LineOrigin& origin : source.origins) {
    if (origin.line <= number) loc = origin.loc;
  }
  return loc;
}

std::string first_error(std::string_view log) {
  const size_t at = log.find(": error");
  if (at == std::string_view::npos) return "";
  const size_t line = log.rfind('\n', at);
  const size_t begin = line == std::string_view::npos ? 0 : line + 1;
  return std::string(log.substr(begin, log.find('\n', at) - begin));
}

// One NVRTC program: created, compiled, read, destroyed.
class Compilation {
 public:
  Compilation(const Nvrtc& nvrtc, const KernelSource& source, const CompileOptions& how)
      : nvrtc_(nvrtc), source_(source), file_(how.file.empty() ? source.op + ".cu" : how.file) {
    check(nvrtc.call.create_program(&program_, source.text.c_str(), file_.c_str(), 0, nullptr,
                                    nullptr),
          "nvrtcCreateProgram");
  }
  ~Compilation() {
    if (program_) static_cast<void>(nvrtc_.call.destroy_program(&program_));
  }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  void stop_with(const std::stop_token& stop) {
    stop_ = stop;
    if (!nvrtc_.set_flow_callback) return;
    const auto asked_to_stop = [](void* token, void*) {
      const bool cancelled = static_cast<const std::stop_token*>(token)->stop_requested();
      return cancelled || is_interrupted() || NvrtcUse::should_end() ? 1 : 0;
    };
    check(nvrtc_.set_flow_callback(program_, asked_to_stop, &stop_), "nvrtcSetFlowCallback");
  }

  void run(const std::vector<std::string>& options, Target target) {
    if (stop_.stop_requested()) say_cancelled();
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    const nvrtc_api::Result result =
        nvrtc_.call.compile_program(program_, static_cast<int>(pointers.size()), pointers.data());
    if (result == nvrtc_api::kCancelled) say_cancelled();
    log_ = bounded(without_times(read(nvrtc_.call.get_log_size, nvrtc_.call.get_log, "the log")));
    while (!log_.empty() && (log_.back() == '\0' || log_.back() == '\n')) log_.pop_back();
    if (result == nvrtc_api::kCompilation) refuse(options, target);
    if (result == nvrtc_api::kBuiltinOperationFailure) complain_about_builtins();
    check(result, "nvrtcCompileProgram");
  }

  std::string cubin() {
    return read(nvrtc_.call.get_cubin_size, nvrtc_.call.get_cubin, "the cubin");
  }
  std::string ptx() {
    std::string text = read(nvrtc_.call.get_ptx_size, nvrtc_.call.get_ptx, "the PTX");
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }
  const std::string& log() const { return log_; }

 private:
  using GetSize = nvrtc_api::Result (*)(nvrtc_api::Program, size_t*);
  using GetBytes = nvrtc_api::Result (*)(nvrtc_api::Program, char*);

  std::string read(GetSize get_size, GetBytes get_bytes, const char* what) {
    size_t size = 0;
    check(get_size(program_, &size), what);
    std::string bytes(size, '\0');
    check(get_bytes(program_, bytes.data()), what);
    return bytes;
  }
  void check(nvrtc_api::Result result, std::string_view call) const {
    if (result == nvrtc_api::kSuccess) return;
    std::string got = nvrtc_.call.get_error_string(result);
    if (!log_.empty()) got += "\n" + log_;
    raise(ErrorKind::compile, source_.op, fmt::format("{}: {} failed", nvrtc_.describe(), call),
          {.got = std::move(got)});
  }
  [[noreturn]] void refuse(const std::vector<std::string>& options, Target target) const {
    ErrorFields fields;
    fields.kind = ErrorKind::compile;
    fields.op = source_.op;
    fields.what =
        fmt::format("{} refused the CUDA text for {}", nvrtc_.describe(), to_string(target));
    fields.got = first_error(log_);
    if (const int line = line_of_first_error(log_, file_)) {
      fields.got += "\n" + lines_around(source_.text, line);
      fields.loc = origin_of(source_, line);
    }
    fields.got += "\nwhole log:\n" + log_;
    fields.got += fmt::format("\noptions: {}", fmt::join(options, " "));
    if (is_generated(source_)) {
      fields.kind = ErrorKind::internal;
      fields.what = "internal error, a bug in Tessera: " + fields.what;
      const std::string folder = keep_reproduction(
          {source_.op + ".cu", source_.text, options, nvrtc_.describe(), nvrtc_.identity, log_});
      if (!folder.empty()) fields.hint = "please report it, with what is in " + folder;
    }
    throw Error(std::move(fields));
  }
  [[noreturn]] void say_cancelled() const {
    throw Error({.kind = ErrorKind::compile,
                 .op = source_.op,
                 .what = "the compile was cancelled",
                 .code = kCancelled});
  }
  [[noreturn]] void complain_about_builtins() const {
    raise(ErrorKind::compile, source_.op,
          fmt::format("{} found no builtins of its version", nvrtc_.describe()),
          {.expected = nvrtc_.wanted_builtins + " beside it",
           .got = nvrtc_.builtins.empty() ? "no such file" : nvrtc_.builtins,
           .hint = "two CUDA versions are mixed: name one libnvrtc with TESSERA_NVRTC"});
  }

  const NvrtcUse use_;  // outlives the program
  const Nvrtc& nvrtc_;
  const KernelSource& source_;
  const std::string file_;
  nvrtc_api::Program program_ = nullptr;
  std::stop_token stop_;
  std::string log_;
};

// Sums the numbers before `unit` over the whole log: "8 bytes spill stores".
int64_t sum_before(std::string_view log, std::string_view unit) {
  int64_t sum = 0;
  for (size_t at = log.find(unit); at != std::string_view::npos; at = log.find(unit, at + 1)) {
    size_t begin = at;
    while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
    int64_t number = 0;
    std::from_chars(log.data() + begin, log.data() + at, number);
    sum += number;
  }
  return sum;
}

}  // namespace

std::vector<std::string> standard_options(int nvrtc_version, Target target,
                                          const CompileOptions& how) {
  std::vector<std::string> options = {"--gpu-architecture=" + to_string(target), "--std=c++17",
                                      "--fmad=false", "--ptxas-options=-v"};
  if (nvrtc_version >= kFirstVersionWithNoCache) options.push_back("--no-cache");
  if (how.line_info) options.push_back("--generate-line-info");
  return options;
}

Image compile(const Nvrtc& nvrtc, const KernelSource& source, Target target,
              const CompileOptions& how) {
  check_source(source);
  check_target(nvrtc, source, target);
  std::vector<std::string> options = standard_options(nvrtc.version, target, how);
  // Leaves textures, runtime API types and device-side launches out: fewer declarations to parse,
  // the same binary.
  const bool is_minimal = is_generated(source) && nvrtc.version >= kFirstVersionWithMinimal;
  if (is_minimal) options.push_back("--minimal");
  options.insert(options.end(), source.options.begin(), source.options.end());
  Compilation compilation(nvrtc, source, how);
  compilation.stop_with(how.stop);
  compilation.run(options, target);

  Image image;
  copy_facts(source, image);
  image.target = target;
  image.resources = parse_ptxas_log(compilation.log());
  image.cubin = compilation.cubin();
  image.source = source.text;
  image.log = compilation.log();
  image.compiler = nvrtc.identity;
  return image;
}

std::string compile_to_ptx(const Nvrtc& nvrtc, const KernelSource& source, Target target) {
  check_source(source);
  check_target(nvrtc, source, target);
  std::vector<std::string> options = standard_options(nvrtc.version, target);
  // A virtual architecture stops before ptxas.
  options.front() = "--gpu-architecture=compute_" + to_string(target).substr(3);
  std::erase(options, "--ptxas-options=-v");
  options.insert(options.end(), source.options.begin(), source.options.end());
  Compilation compilation(nvrtc, source, {});
  compilation.run(options, target);
  return compilation.ptx();
}

KernelResources parse_ptxas_log(std::string_view log) {
  KernelResources resources;
  constexpr std::string_view kUsed = "Used ";
  if (const size_t at = log.find(kUsed); at != std::string_view::npos) {
    const std::string_view rest = log.substr(at + kUsed.size());
    std::from_chars(rest.data(), rest.data() + rest.size(), resources.registers);
  }
  resources.spill_bytes = sum_before(log, " bytes spill stores");
  resources.stack_bytes = sum_before(log, " bytes stack frame");
  resources.static_shared = sum_before(log, " bytes smem");
  return resources;
}

}  // namespace tessera::runtime
