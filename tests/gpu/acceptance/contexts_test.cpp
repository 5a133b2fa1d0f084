// The runtime's acceptance list on a real GPU, 14 and 15: threads, contexts and devices.

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "dsl/base/error.h"
#include "runtime/driver/device.h"
#include "tests/gpu/acceptance/vectors.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using test::sum_function;
using test::Vectors;
namespace jit = kernels::jit;

namespace {

cu::Context current_context() {
  cu::Context current = nullptr;
  driver().check(driver().call.ctx_get_current(&current), "cuCtxGetCurrent");
  return current;
}

void pop(cu::Context expected) {
  cu::Context popped = nullptr;
  driver().check(driver().call.ctx_pop_current(&popped), "cuCtxPopCurrent");
  CHECK(popped == expected);
}

template <class Function>
Function driver_function(const char* name) {
  const auto function = reinterpret_cast<Function>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
  REQUIRE(function != nullptr);
  return function;
}

}  // namespace

TEST_CASE("a thread without a context launches and is left without (R22.14)", "[gpu]") {
  REQUIRE_GPU();
  const Vectors v(0);
  const Vectors in_stream(0);
  const OwnedStream stream(0);
  bool left_alone = false;
  std::thread([&] {
    const cu::Context before = current_context();
    test::call_sum_of_nine(sum_function(), v.tensors, nullptr);
    test::call_sum_of_nine(sum_function(), v.tensors, nullptr);  // by the shorter way
    test::call_sum_of_nine(sum_function(), in_stream.tensors, stream.handle());
    left_alone = before == nullptr && current_context() == nullptr;
  }).join();
  CHECK(left_alone);
  CHECK(v.holds(45));
  CHECK(in_stream.holds(45));
}

TEST_CASE("tensors decide the device, whatever is current (R22.14)", "[gpu][multigpu]") {
  if (num_devices() < 2) TESSERA_SKIP("needs two CUDA devices");
  const Vectors v(0);
  const OwnedStream own(0);
  const StreamHandle stream = GENERATE(0, 1) == 0 ? nullptr : own.handle();
  const ContextScope other(1);
  const cu::Context before = current_context();
  for (int i = 0; i < 2; ++i) test::call_sum_of_nine(sum_function(), v.tensors, stream);
  CHECK(current_context() == before);
  synchronize(0, stream);
  CHECK(v.holds(45));
}

TEST_CASE("a primary context that the caller pushed is used and stays (R22.14)", "[gpu]") {
  REQUIRE_GPU();
  const Vectors v(0);
  cu::Device device = 0;
  cu::Context primary = nullptr;
  driver().check(driver().call.device_get(&device, 0), "cuDeviceGet");
  driver().check(driver().call.device_primary_ctx_retain(&primary, device),
                 "cuDevicePrimaryCtxRetain");
  driver().check(driver().call.ctx_push_current(primary), "cuCtxPushCurrent");
  const OwnedStream stream(0);
  test::call_sum_of_nine(sum_function(), v.tensors, stream.handle());
  CHECK(current_context() == primary);
  pop(primary);
  synchronize(0, stream.handle());
  CHECK(v.holds(45));
}

TEST_CASE("a context that the caller made is used with its stream and stays (R22.14)", "[gpu]") {
  REQUIRE_GPU();
  const auto create =
      driver_function<int (*)(cu::Context*, unsigned, cu::Device)>("cuCtxCreate_v2");
  const auto destroy = driver_function<int (*)(cu::Context)>("cuCtxDestroy_v2");
  cu::Device device = 0;
  cu::Context own = nullptr;
  driver().check(driver().call.device_get(&device, 0), "cuDeviceGet");
  REQUIRE(create(&own, 0, device) == 0);  // and makes it current
  {
    // Memory and streams belong to the context in which they are made.
    const Vectors v(0);
    const OwnedStream stream(0);
    for (int i = 0; i < 2; ++i) {
      test::call_sum_of_nine(sum_function(), v.tensors, stream.handle());
    }
    CHECK(current_context() == own);
    synchronize(0, stream.handle());
    CHECK(v.holds(45));
  }
  pop(own);
  CHECK(destroy(own) == 0);
  const Vectors v(0);  // the primary context is none the worse
  test::call_sum_of_nine(sum_function(), v.tensors, nullptr);
  CHECK(v.holds(45));
}

TEST_CASE("a stream of another device is refused, not used (R22.14)", "[gpu][multigpu]") {
  if (num_devices() < 2) TESSERA_SKIP("needs two CUDA devices");
  const Vectors v(0);
  const OwnedStream stream(0);
  const OwnedStream other(1);
  for (int i = 0; i < 2; ++i) {  // in full and by the shorter way
    std::string refused = "no error";
    try {
      test::call_sum_of_nine(sum_function(), v.tensors, other.handle());
    } catch (const Error& error) {
      refused = error.what();
    }
    CHECK(refused ==
          "tessera: sum_of_nine: the stream belongs to another device\n"
          "  expected  a stream of cuda:0, like the tensors\n"
          "  got       a stream of cuda:1");
    test::call_sum_of_nine(sum_function(), v.tensors, stream.handle());
  }
  synchronize(0, stream.handle());
  synchronize(1, other.handle());
  CHECK(v.holds(45));
}

TEST_CASE("kernels with much shared memory, on every device, side by side (R22.15, C09)", "[gpu]") {
  REQUIRE_GPU();
  const int devices = std::min(num_devices(), 2);
  if (devices < 2) WARN("one CUDA device: kernels on two devices are not tested (R22.15)");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int device = 0; device < devices; ++device) {
    for (const int64_t kilobytes : {64, 96}) {
      for (const int64_t blocks : {1, 3, 200}) {  // plans of their own, one kernel
        threads.emplace_back([&wrong, device, kilobytes, blocks] {
          const jit::Function function =
              test::large_kernel("large" + std::to_string(kilobytes), kilobytes);
          const int64_t rows = kilobytes * 256 * blocks - 5;
          std::vector<float> values(static_cast<size_t>(rows), 1.0f);
          const OwnedStream stream(device);
          DeviceBuffer x(device, rows * 4);
          DeviceBuffer out(device, rows * 4);
          x.upload(values.data(), rows * 4);
          out.fill(0xFF);
          const std::vector<TensorView> tensors = {
              TensorView(x.data(), DType::f32, {rows}, Device::cuda(device)),
              TensorView(out.data(), DType::f32, {rows}, Device::cuda(device))};
          for (int i = 0; i < 50; ++i) function(tensors, {}, stream.handle());
          synchronize(device, stream.handle());
          out.download(values.data(), rows * 4);
          const bool right =
              std::all_of(values.begin(), values.end(), [](float v) { return v == 2.0f; });
          if (!right) ++wrong;
        });
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
