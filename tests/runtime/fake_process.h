#pragma once
// A runtime on fake libraries, as a process of its own would have it.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dsl/base/error.h"
#include "runtime/cache/bundle.h"
#include "runtime/cache/disk_cache.h"
#include "runtime/image.h"
#include "runtime/launch.h"
#include "runtime/nvrtc/target.h"
#include "runtime/options.h"
#include "runtime/request.h"
#include "runtime/runtime.h"
#include "runtime/surroundings.h"
#include "tests/runtime/fake_cuda.h"

namespace tessera::test {

inline constexpr tessera::runtime::Target kTarget{9, 0, 'a'};

inline KernelSource source_of(const std::string& text) {
  KernelSource source;
  source.op = "scale";
  source.entry = "scale_kernel";
  source.text = text;
  source.params = {{"x", true, DType::f32}};
  source.threads = 128;
  return source;
}

struct Process {
  Process(const FakeCuda& fake, const std::string& cache, const std::string& code = "code 1") {
    tessera::runtime::Options options;
    if (!cache.empty()) options.cache_roots = {cache};
    start(fake, std::move(options), code);
  }
  Process(const FakeCuda& fake, tessera::runtime::Options options) {
    start(fake, std::move(options), "code 1");
  }

  void start(const FakeCuda& fake, tessera::runtime::Options options, const std::string& code) {
    driver = open_driver(fake.loader());
    tessera::runtime::Surroundings surroundings;
    surroundings.loader = fake.loader();
    surroundings.driver = [this]() -> const tessera::runtime::Driver& { return *driver; };
    surroundings.code_identity = code;
    runtime =
        std::make_unique<tessera::runtime::Runtime>(std::move(options), std::move(surroundings));
    runtime->set_log_sink([this](tessera::runtime::LogLevel, std::string_view line) {
      const std::lock_guard lock(mutex);
      lines.emplace_back(line);
    });
  }
  /// A kernel named by its Spec; counts how often its text was needed.
  tessera::runtime::KernelRequest with_spec(const std::string& spec) {
    return {"scale", spec, [this, spec] {
              ++num_emits;
              return source_of("text of " + spec);
            }};
  }
  /// A kernel named by its text.
  static tessera::runtime::KernelRequest with_text(const std::string& text) {
    return {"scale", {}, [text] { return source_of(text); }};
  }

  std::unique_ptr<const tessera::runtime::Driver> driver;
  std::unique_ptr<tessera::runtime::Runtime> runtime;
  std::mutex mutex;  // guards lines while threads run
  std::vector<std::string> lines;
  std::atomic<int> num_emits = 0;
};

/// The text of the Error that `action` throws.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tessera::test
