// A kernel of the consumer's own and a shipped op, on CPU tensors. `consumer compile` instead compiles the own kernel
// for a GPU that need not be there, and prints whether its image came from disk and whether its text was needed.
#include <tessera/dsl/base/version.h>
#include <tessera/kernels/jit/jit.h>
#include <tessera/kernels/jit/prepare.h>
#include <tessera/kernels/ops.h>
#include <tessera/runtime/build_info.h>
#include <tessera/runtime/image.h>
#include <tessera/runtime/nvrtc/target.h>
#include <tessera/runtime/request.h>
#include <tessera/runtime/runtime.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "consumer_code_stamp.h"
#include "kernels/op.h"
#include "runtime/log.h"
#include "scaled.h"

namespace ts = tessera;
namespace jit = tessera::kernels::jit;

namespace {

int compile() {
  const auto at = [](uintptr_t address) {
    return ts::TensorView(reinterpret_cast<void*>(address), ts::DType::f32, {64},
                          ts::Device::cuda(0));
  };
  const std::vector<ts::TensorView> tensors = {at(0x10000), at(0x20000)};
  std::vector<ts::runtime::KernelRequest> requests = jit::kernels_needed([&] {
    jit::run("scaled", ScaledSpec{64}, scaled, tensors, {}, nullptr,
             jit::Code::stamp(consumer_code_stamp()));
  });
  bool lowered = false;
  ts::runtime::KernelRequest& request = requests.at(0);
  request.emit = [&lowered, emit = request.emit] {
    lowered = true;
    return emit();
  };
  ts::runtime::Runtime& runtime = ts::runtime::Runtime::instance();
  runtime.image(request, {9, 0, 'a'});
  std::printf("%s, %s\n", runtime.counters().disk_hits == 1 ? "from disk" : "compiled",
              lowered ? "lowered" : "not lowered");
  return 0;
}

int run() {
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, doubled(6), turned(6);
  const ts::TensorView flat[] = {{x.data(), ts::DType::f32, {6}},
                                 {doubled.data(), ts::DType::f32, {6}}};
  jit::run(scaled({6}), flat, {}, nullptr);
  const ts::TensorView matrix(x.data(), ts::DType::f32, {2, 3});
  ts::kernels::transpose(
      {.x = matrix, .out = ts::TensorView(turned.data(), ts::DType::f32, {3, 2})}, nullptr);
  const ts::runtime::BuildInfo info = ts::runtime::build_info();
  std::printf("%s %s %g %g, Tessera %s (%s)\n", greeting(), own_name(),
              static_cast<double>(doubled[5]), static_cast<double>(turned[1]), info.version.c_str(),
              info.shared ? "shared" : "static");
  return doubled[5] == 12 && turned[1] == 4 && info.version == TESSERA_VERSION ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return argc > 1 && std::string(argv[1]) == "compile" ? compile() : run();
  } catch (const ts::Error& error) {
    std::printf("%s\n", error.what());
    return 2;
  }
}
