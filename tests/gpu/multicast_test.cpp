// Clusters whose blocks share copies on a GPU, bit for bit against the executor.

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "kernels/jit/jit.h"
#include "kernels/jit/prepare.h"
#include "runtime/driver/device.h"
#include "tests/support/catch.h"
#include "tests/support/cluster_product.h"
#include "tests/support/device_tensor.h"
#include "tests/support/product_kernel.h"
#include "tests/support/random_tensor.h"

namespace tessera {
namespace {

using test::ClusterProduct;
using test::DeviceTensor;
using test::HostTensor;

void check(const ClusterProduct& p) {
  INFO(p.text());
  const ir::Kernel kernel = test::cluster_product(p);
  const HostTensor a = test::random_tensor(DType::bf16, {p.m, p.depth}, test::Values::normal, 1);
  const HostTensor b = test::random_tensor(DType::bf16, {p.n, p.depth}, test::Values::normal, 2);
  HostTensor c(DType::f32, {p.m, p.n}), want(DType::f32, {p.m, p.n});
  DeviceTensor on_a(a, Device::cuda(0)), on_b(b, Device::cuda(0)), on_c(c, Device::cuda(0));
  kernels::jit::run(kernel, std::vector<TensorView>{on_a.view(), on_b.view(), on_c.view()}, {},
                    nullptr);
  on_c.download(c);
  const codegen::cpu::Executable executable(codegen::lower(kernel, test::kSm90a));
  const codegen::cpu::Argument arguments[] = {{.tensor = a.view()},    {.tensor = b.view()},
                                              {.tensor = want.view()}, {.integer = p.m},
                                              {.integer = p.n},        {.integer = p.depth}};
  executable.run(arguments, {.arithmetic = codegen::cpu::Arithmetic::target});
  CHECK(c.raw() == want.raw());
}

}  // namespace

TEST_CASE("blocks that share copies have the executor's bits (W44 to W46)", "[gpu][multicast]") {
  std::string reason = test::why_no_gpu();
  if (reason.empty() && runtime::device_info(0).major != 9) reason = "the GPU is not of sm_90";
  if (!reason.empty()) TESSERA_SKIP(reason);
  for (const int share : {0, 1}) {
    for (const int cluster : {2, 4}) {
      for (const int64_t group : {1, 2}) {
        ClusterProduct p;  // 3 x 5 tiles
        p.share = share;
        p.cluster = cluster;
        p.group = group;
        check(p);
        p.m = 130;
        p.n = 65;
        p.stages = 4;
        check(p);
        p.m = p.n = 1;
        check(p);
        p.multicast = ir::Multicast::never;
        check(p);
      }
    }
  }
  ClusterProduct large;
  large.m = 1000;
  large.n = 1000;
  large.depth = 2048;
  large.tile_rows = large.tile_columns = 128;
  large.step = 64;
  large.threads = 256;
  large.stages = 4;
  large.blocks = 66;
  large.group = 8;
  check(large);
}

}  // namespace tessera
