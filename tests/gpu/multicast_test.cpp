// Clusters whose blocks share copies on a GPU, bit for bit against the executor.

#include "runtime/driver/device.h"
#include "tests/support/catch.h"
#include "tests/support/cluster_product.h"
#include "tests/support/device_tensor.h"
#include "tests/support/lowered.h"

namespace tessera {
namespace {

using test::ClusterProduct;

void check(const ClusterProduct& p) {
  INFO(p.text());
  test::call_of(p).check_on_gpu(test::cluster_product(p));
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
