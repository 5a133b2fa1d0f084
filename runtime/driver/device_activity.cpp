#include "runtime/driver/device_activity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "dsl/base/error.h"
#include "runtime/driver/device.h"
#include "runtime/driver/shared_library.h"
#include "runtime/options.h"

namespace tessera::runtime {
namespace {

// ---- the part of CUPTI's interface that we use, stable since CUDA 10

using CuptiResult = int;
constexpr CuptiResult kSuccess = 0;
constexpr int kMemcpy = 1, kMemset = 2, kConcurrentKernel = 10;
constexpr uint32_t kFlushForced = 1;

/// The fields that kernel, memcpy and memset records share, at the same places in every version.
struct Record {
  uint32_t kind;
  uint32_t details;
  uint64_t bytes;  // memcpy and memset only
  uint64_t start;
  uint64_t end;
};
static_assert(sizeof(Record) == 32);

// ---- records arrive here, from a thread of CUPTI

constexpr size_t kBufferBytes = size_t{8} << 20;

using NextRecord = CuptiResult (*)(uint8_t* buffer, size_t valid_bytes, Record** record);

struct Collector {
  std::mutex mutex;
  std::vector<Activity> activities;
  NextRecord next_record = nullptr;
};

Collector& collector() {
  static auto* instance = new Collector;
  return *instance;
}

void on_buffer_requested(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;
}

void on_buffer_completed(void*, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  Collector& c = collector();
  const std::lock_guard lock(c.mutex);
  Record* record = nullptr;
  while (c.next_record(buffer, valid_bytes, &record) == kSuccess) {
    Activity activity;
    switch (record->kind) {
      case kConcurrentKernel:
        activity.kind = Activity::Kind::kernel;
        break;
      case kMemcpy:
        activity.kind = Activity::Kind::copy;
        break;
      case kMemset:
        activity.kind = Activity::Kind::fill;
        break;
      default:
        continue;
    }
    activity.start_ns = record->start;
    activity.end_ns = record->end;
    if (activity.kind != Activity::Kind::kernel) activity.bytes = record->bytes;
    c.activities.push_back(activity);
  }
  std::free(buffer);
}

std::vector<std::string> candidates(const Options& options) {
  std::vector<std::string> paths;
  const auto add_toolkit = [&](const std::string& home) {
    for (const char* folder : {"/extras/CUPTI/lib64/", "/lib64/", "/lib/"}) {
      paths.push_back(home + folder + "libcupti.so");
    }
  };
  for (const std::string& home : options.cuda_homes) add_toolkit(home);
  add_toolkit("/usr/local/cuda");
  paths.insert(paths.end(), {"libcupti.so.13", "libcupti.so.12", "libcupti.so"});
  return paths;
}

}  // namespace

struct ActivityTrace::Functions {
  CuptiResult (*register_callbacks)(void (*requested)(uint8_t**, size_t*, size_t*),
                                    void (*completed)(void*, uint32_t, uint8_t*, size_t,
                                                      size_t)) = nullptr;
  CuptiResult (*enable)(int kind) = nullptr;
  CuptiResult (*disable)(int kind) = nullptr;
  CuptiResult (*flush_all)(uint32_t flags) = nullptr;
  CuptiResult (*dropped)(void* context, uint32_t stream, size_t* count) = nullptr;
  CuptiResult (*result_string)(CuptiResult result, const char** text) = nullptr;
  NextRecord next_record = nullptr;
};

std::unique_ptr<ActivityTrace> ActivityTrace::open(const Options& options, std::string& why_not) {
  if (num_devices() == 0) {  // without a driver some versions crash
    why_not = why_no_device();
    return nullptr;
  }
  const LibraryLoader& loader = system_loader();
  std::vector<std::string> tried;
  for (const std::string& path : candidates(options)) {
    std::string error;
    void* library = loader.open(path, error);
    if (library == nullptr) {
      tried.push_back(path);
      continue;
    }
    auto functions = std::make_unique<Functions>();
    bool complete = true;
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(loader.symbol(library, symbol));
      complete = complete && function != nullptr;
    };
    find(functions->register_callbacks, "cuptiActivityRegisterCallbacks");
    find(functions->enable, "cuptiActivityEnable");
    find(functions->disable, "cuptiActivityDisable");
    find(functions->flush_all, "cuptiActivityFlushAll");
    find(functions->dropped, "cuptiActivityGetNumDroppedRecords");
    find(functions->result_string, "cuptiGetResultString");
    find(functions->next_record, "cuptiActivityGetNextRecord");
    if (!complete) {
      tried.push_back(path + " (lacks a function)");
      continue;
    }
    const NextRecord next_record = functions->next_record;
    std::unique_ptr<ActivityTrace> trace(new ActivityTrace(std::move(functions), path));
    try {
      if (collector().next_record != next_record) {  // once per library
        trace->check(trace->call_->register_callbacks(on_buffer_requested, on_buffer_completed),
                     "cuptiActivityRegisterCallbacks");
        collector().next_record = next_record;
      }
      trace->start();  // what a container forbids shows here
      trace->stop();
    } catch (const Error& e) {
      why_not = fmt::format("{}: {}", path, e.fields().got);
      return nullptr;
    }
    return trace;
  }
  why_not = fmt::format("no libcupti; tried {}", fmt::join(tried, ", "));
  return nullptr;
}

ActivityTrace::ActivityTrace(std::unique_ptr<Functions> functions, std::string path)
    : call_(std::move(functions)), path_(std::move(path)) {}

ActivityTrace::~ActivityTrace() = default;

void ActivityTrace::check(int result, const char* call) const {
  if (result == kSuccess) return;
  const char* text = nullptr;
  call_->result_string(result, &text);
  throw Error({.kind = ErrorKind::driver,
               .what = fmt::format("{} failed", call),
               .got = fmt::format("{} ({})", text == nullptr ? "unknown error" : text, result)});
}

void ActivityTrace::start() {
  {
    const std::lock_guard lock(collector().mutex);
    collector().activities.clear();
  }
  for (const int kind : {kMemcpy, kMemset, kConcurrentKernel}) {
    check(call_->enable(kind), "cuptiActivityEnable");
  }
}

std::vector<Activity> ActivityTrace::stop() {
  check(call_->flush_all(kFlushForced), "cuptiActivityFlushAll");
  for (const int kind : {kMemcpy, kMemset, kConcurrentKernel}) {
    check(call_->disable(kind), "cuptiActivityDisable");
  }
  size_t dropped = 0;
  check(call_->dropped(nullptr, 0, &dropped), "cuptiActivityGetNumDroppedRecords");
  if (dropped > 0) {
    throw Error({.kind = ErrorKind::driver,
                 .what = "CUPTI dropped activity records",
                 .got = fmt::format("{} dropped", dropped)});
  }
  const std::lock_guard lock(collector().mutex);
  std::vector<Activity> activities = std::move(collector().activities);
  collector().activities.clear();
  std::sort(activities.begin(), activities.end(),
            [](const Activity& a, const Activity& b) { return a.start_ns < b.start_ns; });
  return activities;
}

}  // namespace tessera::runtime
