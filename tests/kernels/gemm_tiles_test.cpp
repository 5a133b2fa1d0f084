// The tiles of the gemm family: which one is taken, and that all of them are good code.

#include <fmt/format.h>

#include <utility>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "kernels/gemm/parts/bf16_kernel.h"
#include "kernels/gemm/parts/fp8_kernel.h"
#include "kernels/gemm/parts/mxfp4_call.h"
#include "runtime/nvrtc/compile.h"
#include "runtime/nvrtc/nvrtc.h"
#include "tests/kernels/shipped_kernels.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using kernels::gemm::Tile;

std::string text(const Tile& tile) {
  return fmt::format("{} x {}", tile.rows, tile.columns);
}

void check_code(const runtime::Nvrtc& nvrtc, const ir::Kernel& kernel, const Tile& tile) {
  CAPTURE(kernel.name, text(tile));
  const runtime::Target target = runtime::parse_target("sm_90a").value();
  const runtime::Image image =
      runtime::compile(nvrtc, codegen::cuda::emit(codegen::lower(kernel, target)), target);
  CHECK(image.resources.spill_bytes == 0);
  // C7508 to C7517: wgmma that the assembler had to serialise, registers that it could not give.
  CHECK(image.log.find("(C75") == std::string::npos);
}

}  // namespace

TEST_CASE("a product is computed in tiles that leave few multiprocessors idle", "[gemm]") {
  const auto bf16 = [](int64_t m, int64_t n) {
    using namespace kernels::gemm;
    return text(soonest(1, m, n, kBf16Tiles, kBf16Fixed));
  };
  using kernels::gemm::Groups;
  const auto fp8 = [](int64_t m, int64_t n, Groups groups = Groups::one) {
    using namespace kernels::gemm;
    return text(soonest(1, m, n, fp8_tiles(groups), kFp8Fixed));
  };
  CHECK(bf16(4096, 4096) == "128 x 256");
  CHECK(bf16(4096, 2112) == "128 x 176");  // 384 tiles on 132 multiprocessors; of 256 columns 288
  CHECK(bf16(4096, 576) == "128 x 144");   // one wave of 128
  CHECK(bf16(64, 4096) == "64 x 32");
  CHECK(bf16(1, 2112) == "64 x 16");
  CHECK(bf16(128, 4096) == "128 x 32");
  CHECK(bf16(0, 0) == "128 x 256");
  CHECK(fp8(4096, 2112) == "192 x 128");  // 3 waves, of 128 rows 5
  CHECK(fp8(4096, 576) == "192 x 128");   // one wave of 110
  CHECK(fp8(4096, 7168) == "128 x 128");
  CHECK(fp8(128, 4096) == "128 x 32");
  CHECK(fp8(4096, 2112, Groups::by_rows) == "128 x 128");  // two groups could meet in 192 rows
}

TEST_CASE("every tile of a product compiles for sm_90a without spills", "[gemm][compile]") {
  std::string why;
  const runtime::Nvrtc* const nvrtc = test::nvrtc_here(why);
  if (nvrtc == nullptr) TESSERA_SKIP(why);
  using Out = std::pair<int32_t, int32_t>;  // is_f32, by_engine
  for (const auto& [is_f32, by_engine] : {Out{0, 0}, Out{0, 1}, Out{1, 0}}) {
    for (const Tile& tile : kernels::gemm::kBf16Tiles) {
      for (const int32_t cluster : {1, 2}) {
        Tile shared = tile;
        shared.cluster = cluster;
        check_code(
            *nvrtc,
            kernels::gemm::build_bf16(
                {{0, 8}, {0, 8}, 1, 8, 1, is_f32 != 0 ? 4 : 8, 1, 0, is_f32, by_engine, shared}),
            shared);
      }
    }
    for (const Tile& tile : kernels::gemm::kBf16Swapped) {
      if (by_engine != 0) continue;
      check_code(*nvrtc,
                 kernels::gemm::build_bf16(
                     {{0, 8}, {0, 8}, 1, 8, 1, is_f32 != 0 ? 4 : 8, 1, 0, is_f32, 0, tile}),
                 tile);
    }
    using kernels::gemm::Groups;
    for (const Groups groups :
         {Groups::one, Groups::by_rows, Groups::masked, Groups::by_ids, Groups::by_ends}) {
      if (is_f32 != 0 && groups != Groups::one) continue;
      if (by_engine != 0 && groups != Groups::one && groups != Groups::by_rows) continue;
      for (const Tile& tile : kernels::gemm::fp8_tiles(groups)) {
        const int out_vector = is_f32 != 0 ? 4 : 8;
        CAPTURE(static_cast<int>(groups), by_engine);
        check_code(*nvrtc,
                   kernels::gemm::build_fp8(
                       {groups, 16, 16, out_vector, out_vector, 1, 1, is_f32, by_engine, tile}),
                   tile);
      }
    }
  }
}

TEST_CASE("every tile of a product by MXFP4 weights compiles for sm_90a without spills",
          "[gemm][compile]") {
  std::string why;
  const runtime::Nvrtc* const nvrtc = test::nvrtc_here(why);
  if (nvrtc == nullptr) TESSERA_SKIP(why);
  using kernels::gemm::Mxfp4Operand;
  for (const Tile& tile : kernels::gemm::mxfp4_tiles()) {
    if (tile.rows < 256 && tile.columns < 64) continue;  // the tiles of most registers
    for (const int32_t scaled : {128, 32, 0}) {          // 0: bf16
      if (scaled == 32 && tile.columns > 64) continue;
      Tile here = tile;
      if (scaled == 0) here.step = 64;
      check_code(*nvrtc,
                 kernels::gemm::build_mxfp4(
                     {.groups = kernels::gemm::MxGroups::masked,
                      .operand = scaled == 0 ? Mxfp4Operand::bf16 : Mxfp4Operand::e4m3,
                      .a_vector = scaled == 0 ? 8 : 16,
                      .out_vector = 8,
                      .n_multiple = 8,
                      .k_multiple = 1,
                      .has_depth = 1,
                      .is_f32 = 0,
                      .by_block = scaled == 0 ? 0 : 1,
                      .scaled = scaled == 0 ? 128 : scaled,
                      .is_packed = scaled == 32 ? 1 : 0,
                      .has_bias = 0,
                      .tile = here}),
                 here);
    }
  }
}

}  // namespace tessera
