// Opening the driver: what is missing is said, functions are asked for by version.

#include "runtime/driver/driver.h"

#include <string>

#include "dsl/base/error.h"
#include "runtime/driver/device.h"
#include "tests/runtime/fake_cuda.h"
#include "tests/support/catch.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

using namespace tessera;
using namespace tessera::runtime;
using test::FakeCuda;

namespace {

std::string error_of(const FakeCuda& fake) {
  try {
    open_driver(fake.loader());
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("the driver is opened and asked for its devices") {
  FakeCuda fake;
  fake.state().num_devices = 2;
  const auto driver = open_driver(fake.loader());
  CHECK(driver->num_devices == 2);
  CHECK(driver->version == 13000);
  CHECK(driver->path == "/usr/lib/libcuda.so.1");
  const DeviceInfo info = query_device(*driver, 1);
  CHECK(info.name == "Fake GPU");
  CHECK(info.major == 9);
  CHECK(info.num_sms == 132);
  CHECK(info.memory_bytes == int64_t{1} << 30);
}

TEST_CASE("a machine without a driver is told so") {
  FakeCuda fake;
  fake.state().has_driver = false;
  CHECK(error_of(fake) ==
        "tessera: no CUDA driver on this machine\n"
        "  expected  libcuda.so.1 of CUDA 12.4 or newer\n"
        "  got       libcuda.so.1: cannot open shared object file: No such file or directory\n"
        "  hint      install an NVIDIA driver, or use CPU tensors");
}

TEST_CASE("a driver that is too old is refused with both versions") {
  FakeCuda fake;
  fake.state().driver_version = 11080;
  CHECK(error_of(fake) ==
        "tessera: the NVIDIA driver is too old\n"
        "  expected  CUDA 12.4 or newer\n"
        "  got       CUDA 11.8 (/usr/lib/libcuda.so.1)\n"
        "  hint      update the NVIDIA driver, or use CPU tensors");
}

TEST_CASE("a driver without a function we need is refused by name") {
  FakeCuda fake;
  fake.state().missing_function = "cuLibraryLoadData";
  CHECK(error_of(fake) ==
        "tessera: the CUDA driver lacks cuLibraryLoadData\n"
        "  expected  cuLibraryLoadData of CUDA 12.0\n"
        "  got       /usr/lib/libcuda.so.1 without it (code 500, status 1)\n"
        "  hint      reinstall the NVIDIA driver");
}

TEST_CASE("a driver without a GPU has no devices") {
  FakeCuda fake;
  fake.state().num_devices = 0;
  const auto driver = open_driver(fake.loader());
  CHECK(driver->num_devices == 0);
  try {
    query_device(*driver, 0);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::argument);
    CHECK(std::string(error.what()) ==
          "tessera: no such CUDA device\n"
          "  expected  a CUDA device (this machine has none)\n"
          "  got       cuda:0");
  }
}

TEST_CASE("a context is borrowed if the device has one current, else the primary is pushed") {
  FakeCuda fake;
  fake.state().num_devices = 2;
  const auto driver = open_driver(fake.loader());
  SECTION("a thread without a context gets the primary one of the device") {
    const ContextScope scope(*driver, 1);
    CHECK(fake.state().pushed == std::vector<int>{1});
    CHECK(fake.state().current_device == 1);
  }
  SECTION("the right one stays") {
    fake.state().current_device = 1;
    const ContextScope scope(*driver, 1);
    CHECK(fake.state().pushed.empty());
  }
  SECTION("another device's is covered and uncovered") {
    fake.state().current_device = 0;
    { const ContextScope scope(*driver, 1); }
    CHECK(fake.state().pushed == std::vector<int>{1});
    CHECK(fake.state().current_device == -1);  // the fake's pop leaves none
  }
}

#if __has_include(<cuda.h>)
TEST_CASE("our declarations have the layout of the driver's") {
  STATIC_REQUIRE(sizeof(cu::LaunchConfig) == sizeof(CUlaunchConfig));
  STATIC_REQUIRE(offsetof(cu::LaunchConfig, shared_bytes) ==
                 offsetof(CUlaunchConfig, sharedMemBytes));
  STATIC_REQUIRE(offsetof(cu::LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
  STATIC_REQUIRE(offsetof(cu::LaunchConfig, num_attributes) == offsetof(CUlaunchConfig, numAttrs));
  STATIC_REQUIRE(sizeof(cu::LaunchAttribute) == sizeof(CUlaunchAttribute));
  STATIC_REQUIRE(offsetof(cu::LaunchAttribute, value) == offsetof(CUlaunchAttribute, value));
  STATIC_REQUIRE(sizeof(cu::AccessPolicyWindow) == sizeof(CUaccessPolicyWindow));
  STATIC_REQUIRE(offsetof(cu::AccessPolicyWindow, bytes) ==
                 offsetof(CUaccessPolicyWindow, num_bytes));
  STATIC_REQUIRE(offsetof(cu::AccessPolicyWindow, hit_ratio) ==
                 offsetof(CUaccessPolicyWindow, hitRatio));
  STATIC_REQUIRE(offsetof(cu::AccessPolicyWindow, hit_property) ==
                 offsetof(CUaccessPolicyWindow, hitProp));
  STATIC_REQUIRE(offsetof(cu::AccessPolicyWindow, miss_property) ==
                 offsetof(CUaccessPolicyWindow, missProp));
  STATIC_REQUIRE(sizeof(cu::DevicePtr) == sizeof(CUdeviceptr));
  CHECK(int{cu::kMaxSharedPerBlockOptin} == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  CHECK(int{cu::kComputeCapabilityMajor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  CHECK(int{cu::kComputeCapabilityMinor} == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  CHECK(int{cu::kMultiprocessorCount} == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  CHECK(int{cu::kL2CacheSize} == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  CHECK(int{cu::kMaxAccessPolicyWindow} == CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE);
  CHECK(int{cu::kAccessPolicyWindow} == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW);
  CHECK(int{cu::kStreaming} == CU_ACCESS_PROPERTY_STREAMING);
  CHECK(int{cu::kNormal} == CU_ACCESS_PROPERTY_NORMAL);
  CHECK(int{cu::kMaxDynamicSharedBytes} == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  CHECK(int{cu::kNumRegisters} == CU_FUNC_ATTRIBUTE_NUM_REGS);
  CHECK(int{cu::kLocalBytes} == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  CHECK(int{cu::kFound} == CU_GET_PROC_ADDRESS_SUCCESS);
  CHECK(int{cu::kInvalidImage} == CUDA_ERROR_INVALID_IMAGE);
  CHECK(int{cu::kNoBinaryForGpu} == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(int{cu::kUnsupportedPtxVersion} == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  CHECK(unsigned{cu::kStreamNonBlocking} == CU_STREAM_NON_BLOCKING);
}
#endif
