// A call is made in a mode in which its kernels are prepared and their launches noted instead of started (CallMode). The memory
// that the launches name becomes ranges: tensors that overlap, or that lie in one another, share a range, so that a copy
// keeps what one view shows of another. A range is copied when it is first seen, because a caller such as a composition may
// free its own scratch memory before the call returns; when a later tensor joins ranges, their copies move into the larger one.
//
// A copy begins at an address with the lower eight bits of the original, so that alignment, and with it the choice of the kernel,
// stays as it was. The launches are then moved onto the copies: each address becomes the same place in its range's copy.
//
// Ranges that kernels write are copied once more (`before`) and set back before each run whose results are compared:
// accumulators would differ otherwise. Workspaces are written, but are no result.
//
// With another choice (tile sizes) the call is made again, without copies; its ranges must have the same sizes in the same order,
// and are matched by position. The copies then serve any number of choices.

#include "kernels/jit/call_copy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "dsl/base/error.h"
#include "kernels/call_types.h"
#include "kernels/jit/call_context.h"
#include "runtime/driver/device.h"

namespace tessera::kernels::jit {
namespace {

constexpr uintptr_t kAlignment = 256;  // no kernel asks for more

uintptr_t address_of(const void* data) {
  return reinterpret_cast<uintptr_t>(data);
}

runtime::cu::DevicePtr device_ptr(const void* data) {
  return static_cast<runtime::cu::DevicePtr>(address_of(data));
}

}  // namespace

CopyMemory::CopyMemory(Device device, const runtime::Driver* driver, int64_t bytes, uintptr_t like)
    : device_(device), driver_(driver) {
  const auto size = static_cast<size_t>(bytes) + 2 * kAlignment;
  if (driver_ == nullptr) {
    allocated_ = static_cast<std::byte*>(::operator new(size, std::align_val_t(kAlignment)));
  } else {
    const runtime::ContextScope context(*driver_, device_.ordinal);
    runtime::cu::DevicePtr pointer = 0;
    driver_->check(driver_->call.mem_alloc(&pointer, size),
                   fmt::format("allocating {} bytes on cuda:{}", size, device_.ordinal));
    allocated_ = reinterpret_cast<std::byte*>(static_cast<uintptr_t>(pointer));
  }
  const uintptr_t first = (address_of(allocated_) + kAlignment - 1) / kAlignment * kAlignment;
  data_ = allocated_ + (first - address_of(allocated_)) + like % kAlignment;
}

CopyMemory::~CopyMemory() {
  if (allocated_ == nullptr) return;
  if (driver_ == nullptr) {
    ::operator delete(allocated_, std::align_val_t(kAlignment));
    return;
  }
  try {
    const runtime::ContextScope context(*driver_, device_.ordinal);
    static_cast<void>(driver_->call.mem_free(device_ptr(allocated_)));
  } catch (const Error&) {
    // The context is dead: there is nothing left to free.
  }
}

CopyMemory::CopyMemory(CopyMemory&& other) noexcept {
  *this = std::move(other);
}

CopyMemory& CopyMemory::operator=(CopyMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(driver_, other.driver_);
  std::swap(allocated_, other.allocated_);
  std::swap(data_, other.data_);
  return *this;
}

CallCopy::CallCopy(const std::function<void()>& call, std::span<const TensorView> workspaces) {
  Launches noted;
  ranges_ = ranges_of(call, true, noted);
  is_empty_ = noted.empty();
  for (Range& range : ranges_) {
    if (!range.is_written) continue;
    range.before = CopyMemory(device_, driver_, range.bytes, 0);
    copy(range.before.data(), range.copy.data(), range.bytes);
    range.is_result = std::none_of(workspaces.begin(), workspaces.end(), [&](const TensorView& w) {
      return range.begin >= address_of(w.data) &&
             range.begin < address_of(w.data) + static_cast<uintptr_t>(w.span_bytes());
    });
  }
  if (driver_ == nullptr) return;
  const runtime::ContextScope context(*driver_, device_.ordinal);
  runtime::cu::Stream stream = nullptr;
  driver_->check(driver_->call.stream_create(&stream, runtime::cu::kStreamNonBlocking),
                 "cuStreamCreate");
  stream_ = stream;
}

CallCopy::~CallCopy() {
  if (stream_ == nullptr) return;
  try {
    const runtime::ContextScope context(*driver_, device_.ordinal);
    static_cast<void>(driver_->call.stream_destroy(static_cast<runtime::cu::Stream>(stream_)));
  } catch (const Error&) {
    // The context is dead, its streams with it.
  }
}

std::vector<CallCopy::Range> CallCopy::ranges_of(const std::function<void()>& call, bool copies,
                                                 Launches& noted) {
  std::vector<Range> ranges;
  const std::function<void(NotedLaunch)> note = [&](NotedLaunch launch) {
    const ReadyKernel& ready = *launch.ready;
    if (copies && noted.empty()) {
      device_ = ready.device;
      driver_ = ready.on_device ? ready.on_device->driver : nullptr;
    }
    if (ready.device != device_) {
      throw Error({.kind = ErrorKind::argument,
                   .op = ready.op,
                   .what = "the kernels of one call run on several devices",
                   .expected = "all on " + to_string(device_),
                   .got = "one on " + to_string(ready.device)});
    }
    for (size_t i = 0; i < launch.tensors.size(); ++i) {
      if (launch.tensors[i].span_bytes() == 0 || is_absent(launch.tensors[i])) continue;
      add(ranges, launch.tensors[i], ready.binder.is_output(i), copies);
    }
    noted.push_back(std::move(launch));
  };
  const CallModeScope scope({.until = CallMode::Until::prepared, .note = &note});
  call();
  return ranges;
}

// A tensor is copied at its first use: the caller may free it before the call returns.
void CallCopy::add(std::vector<Range>& ranges, const TensorView& view, bool is_written,
                   bool copies) const {
  Range fresh{address_of(view.data), view.span_bytes(), is_written};
  const auto end_of = [](const Range& r) { return r.begin + static_cast<uintptr_t>(r.bytes); };
  std::vector<Range> parts;
  size_t place = ranges.size();
  for (size_t i = 0; i < ranges.size();) {
    Range& range = ranges[i];
    if (range.begin >= end_of(fresh) || fresh.begin >= end_of(range)) {
      ++i;
      continue;
    }
    if (range.begin <= fresh.begin && end_of(fresh) <= end_of(range)) {
      range.is_written = range.is_written || is_written;
      return;
    }
    place = std::min(place, i);
    parts.push_back(std::move(range));
    ranges.erase(ranges.begin() + static_cast<std::ptrdiff_t>(i));
  }
  Range whole = std::move(fresh);
  for (const Range& part : parts) {
    const uintptr_t end = std::max(end_of(whole), end_of(part));
    whole.begin = std::min(whole.begin, part.begin);
    whole.bytes = static_cast<int64_t>(end - whole.begin);
    whole.is_written = whole.is_written || part.is_written;
  }
  if (copies) {
    whole.copy = CopyMemory(device_, driver_, whole.bytes, whole.begin);
    for (const Range& part : parts) {
      copy(whole.copy.data() + (part.begin - whole.begin), part.copy.data(), part.bytes);
    }
    copy(whole.copy.data() + (address_of(view.data) - whole.begin), view.data, view.span_bytes());
  }
  ranges.insert(ranges.begin() + static_cast<std::ptrdiff_t>(place), std::move(whole));
}

CallCopy::Launches CallCopy::on_copies(Launches noted, const std::vector<Range>& ranges) const {
  for (NotedLaunch& launch : noted) {
    for (TensorView& view : launch.tensors) {
      const uintptr_t address = address_of(view.data);
      for (size_t i = 0; i < ranges.size(); ++i) {
        const Range& range = ranges[i];
        if (address < range.begin || address >= range.begin + static_cast<uintptr_t>(range.bytes)) {
          continue;
        }
        view.data = ranges_[i].copy.data() + (address - range.begin);
        break;
      }
    }
  }
  return noted;
}

CallCopy::Launches CallCopy::launches_of(const std::function<void()>& call) {
  Launches noted;
  const std::vector<Range> ranges = ranges_of(call, false, noted);
  const bool is_same =
      std::equal(ranges.begin(), ranges.end(), ranges_.begin(), ranges_.end(),
                 [](const Range& a, const Range& b) { return a.bytes == b.bytes; });
  if (!is_same) {
    const auto sizes_text = [](const std::vector<Range>& all) {
      std::vector<int64_t> sizes;
      for (const Range& range : all) sizes.push_back(range.bytes);
      return fmt::format("tensors of {} bytes", fmt::join(sizes, ", "));
    };
    throw Error({.kind = ErrorKind::unsupported,
                 .what = "with this choice the call uses other memory",
                 .expected = sizes_text(ranges_),
                 .got = sizes_text(ranges)});
  }
  return on_copies(std::move(noted), ranges);
}

void CallCopy::start(const Launches& launches) const {
  for (const NotedLaunch& launch : launches) launch_noted(launch, launch.tensors, stream_);
}

CallCopy::Results CallCopy::results_of(const Launches& launches) const {
  for (const Range& range : ranges_) {
    if (range.is_written) copy(range.copy.data(), range.before.data(), range.bytes);
  }
  start(launches);
  wait();
  Results results;
  for (const Range& range : ranges_) {
    if (!range.is_result) continue;
    std::vector<std::byte>& result = results.emplace_back(static_cast<size_t>(range.bytes));
    copy(result.data(), range.copy.data(), range.bytes);
  }
  return results;
}

void CallCopy::copy(void* to, const void* from, int64_t bytes) const {
  if (driver_ == nullptr) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  wait();  // the caller's stream may still write what is copied
  const runtime::ContextScope context(*driver_, device_.ordinal);
  driver_->check(driver_->call.memcpy_async(device_ptr(to), device_ptr(from),
                                            static_cast<size_t>(bytes), nullptr),
                 "cuMemcpyAsync");
  wait();
}

void CallCopy::wait() const {
  if (driver_ == nullptr) return;
  const runtime::ContextScope context(*driver_, device_.ordinal);
  driver_->check(driver_->call.ctx_synchronize(), "cuCtxSynchronize");
}

}  // namespace tessera::kernels::jit
