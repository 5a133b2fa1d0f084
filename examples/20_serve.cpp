// 20_serve: a server around one op, from its start to its last request: options, a log, kernels from a bundle, the
// warm-up and its end, requests of any length, counters. The same program runs on the CPU of a laptop.
//
//   example_20_serve                  on the first GPU, else on the CPU
//   example_20_serve kernels.tsb      kernels come from this bundle alone, and libnvrtc is never opened:
//                                     tessera compile per_token_cast --arch sm_90a --out kernels.tsb
#include <tessera/kernels/ops.h>
#include <tessera/kernels/warm_up.h>
#include <tessera/runtime/driver/device.h>
#include <tessera/runtime/driver/memory.h>
#include <tessera/runtime/options.h>
#include <tessera/runtime/runtime.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <vector>

namespace ts = tessera;
using ts::DType;
using ts::runtime::Runtime;

constexpr int64_t kHidden = 7168, kMostTokens = 64;

/// Memory for the largest request, allocated once: on the GPU, or in the process where there is none.
class Memory {
 public:
  Memory(ts::Device device, int64_t bytes) {
    if (device.is_cuda()) {
      gpu_ = ts::runtime::DeviceBuffer(device.ordinal, bytes);
      gpu_.fill(0);
    } else {
      cpu_.resize(static_cast<size_t>(bytes));
    }
  }
  void* data() { return cpu_.empty() ? gpu_.data() : cpu_.data(); }

 private:
  ts::runtime::DeviceBuffer gpu_;
  std::vector<uint8_t> cpu_;
};

/// Before anything else of the library: options, and where its messages go.
void configure(const char* bundle) {
  Runtime::configure([&](ts::runtime::Options& options) {
    if (bundle != nullptr) {
      options.cache_roots = {bundle};
      options.jit = ts::runtime::JitMode::off;
    } else {
      options.jit = ts::runtime::JitMode::error;  // behind seal() a compile is an error
    }
    // The sink is called by any thread, several at a time: it has its own lock.
    options.log_sink = [](ts::runtime::LogLevel level, std::string_view message) {
      static std::mutex lock;
      const std::lock_guard guard(lock);
      std::fprintf(stderr, "server: %s: %.*s\n", name(level).data(),
                   static_cast<int>(message.size()), message.data());
    };
  });
}

int main(int argc, char** argv) try {
  configure(argc > 1 ? argv[1] : nullptr);
  const ts::Device device =
      ts::runtime::num_devices() > 0 ? ts::Device::cuda(0) : ts::Device::cpu();

  // Warm-up: all kernels of the op for any number of tokens. On the CPU this only checks the text.
  ts::kernels::warm_up("per_token_cast", "T=1 H=7168 x=bf16 format=e4m3 num_per_channels=128",
                       device);
  Runtime::instance().seal();

  // Requests.
  Memory x(device, kMostTokens * kHidden * 2), out(device, kMostTokens * kHidden);
  Memory scales(device, kMostTokens * (kHidden / 128) * 4);
  for (const int64_t tokens : {1, 7, 64}) {
    ts::kernels::per_token_cast(
        {.x = {x.data(), DType::bf16, {tokens, kHidden}, device},
         .out = {out.data(), DType::e4m3, {tokens, kHidden}, device},
         .out_sf = {scales.data(), DType::f32, {tokens, kHidden / 128}, device},
         .format = DType::e4m3,
         .num_per_channels = 128},
        nullptr);
  }
  if (device.is_cuda()) ts::runtime::synchronize(device.ordinal);

  // For the monitoring: what was found, compiled and loaded, and whether anything went wrong on the way.
  const ts::runtime::CounterValues counters = Runtime::instance().counters();
  std::printf("3 requests on %s: %d from disk, %d compiled, %d loaded, %d damaged\n",
              device.is_cuda() ? "the GPU" : "the CPU", static_cast<int>(counters.disk_hits),
              static_cast<int>(counters.compiles), static_cast<int>(counters.loads),
              static_cast<int>(counters.corrupt_entries));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "server: %s\n", error.what());
  return 1;
}
