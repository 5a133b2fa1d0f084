// mxfp4_decode: the weights of mxfp4_prepack as the products see them, without their f32 scales.
//
// Dtypes   b and b_shift u8; out e4m3 or bf16, as b is packed for
// Method   a block decodes a tile of 64 rows to registers, as the products do, and stores it
// Maths    exact but for shifts of e4m3 above 15 (mxfp4_codes.h); NaN keeps the sign of its code

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernels/gemm/parts/mxfp4_codes.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

using dsl::Value;
using gemm::kMxRows;
using gemm::Mxfp4Operand;

struct Spec {
  Mxfp4Operand operand;
  int32_t align;  // bytes of rows of out
};

ir::Kernel build(const Spec& s) {
  const int64_t words = gemm::tile_bytes(s.operand) / 4, depth = gemm::tile_depth(s.operand);
  const DType dtype = gemm::operand_dtype(s.operand);
  dsl::Builder k("mxfp4_decode");
  auto groups = k.dim("groups"), n = k.dim("n");
  auto columns = k.dim("columns", {.multiple_of = s.align / bytes(dtype)});
  auto row_tiles = k.dim("row_tiles"), tiles = k.dim("depth_tiles"), blocks = k.dim("blocks");
  auto b = k.input("b", DType::u32, {groups, row_tiles, tiles, words});
  auto b_shift = k.input("b_shift", DType::u32, {groups, row_tiles, blocks, kMxRows});
  auto out = k.output("out", dtype, {groups, n, columns}, {.align = s.align});
  auto at = k.launch({groups * row_tiles * tiles}, {.threads = 128});
  auto tile = k.let("tile", at.x % tiles), row_tile = k.let("row_tile", at.x / tiles % row_tiles);
  auto group = k.let("group", at.x / tiles / row_tiles);
  const dsl::Ref tables = gemm::magnitudes_of_shifts(k, s.operand);
  const gemm::Mxfp4Tile codes{1, k.shared(DType::u32, {1, words}, "words"),
                              k.shared(DType::u32, {1, kMxRows}, "shifts")};
  k.copy(b.tile({group, row_tile, tile, 0}, {1, 1, 1, words}), codes.words);
  k.copy(b_shift.tile({group, row_tile, tile * depth / gemm::kMxBlock, 0}, {1, 1, 1, kMxRows}),
         codes.shifts);
  auto weights = k.fragment(dtype, {kMxRows, depth}, "weights");
  auto first = k.let("first", tile * depth);
  if (s.operand == Mxfp4Operand::e4m3) {
    gemm::decode_e4m3(k, codes, tables, columns - first, weights);
  } else {
    gemm::decode_bf16(k, codes, tables, tile, columns - first, weights);
  }
  k.copy(weights, out.tile({group, row_tile * kMxRows, first}, {1, kMxRows, depth}));
  return k.finish();
}

int64_t dtype_of_codes(const Call& c) {
  return static_cast<int64_t>(c["S"] == 2048 ? DType::bf16 : DType::e4m3);
}

void check(const Call& c) {
  if (!c.find("Fb")) return;
  c.need(c["Fb"] == c["Kb"], "b_sf", "argument 'b_sf' has the wrong shape",
         fmt::format("a scale for each 128 of k: {} = ceil(num_columns / 128)", c["Kb"]),
         fmt::format("{} columns", c["Fb"]));
}

void launches(const Call& c, Launches& go) {
  const TensorView &b = c.given("b"), &shift = c.given("b_shift");
  const auto operand = c["S"] == 2048 ? Mxfp4Operand::bf16 : Mxfp4Operand::e4m3;
  const int64_t size = bytes(gemm::operand_dtype(operand));
  const auto align =
      static_cast<int32_t>(std::gcd(int64_t{c.align({"out"})}, c["num_columns"] * size));
  go.add(build, Spec{operand, std::max<int32_t>(align, static_cast<int32_t>(size))},
         {.tensors = {{"b", TensorView(b.data, DType::u32, {c["G"], c["Nt"], c["Kt"], c["S"] / 4},
                                       b.device)},
                      {"b_shift", TensorView(shift.data, DType::u32,
                                             {c["G"], c["Nt"], c["Kb"], kMxRows}, shift.device)}}});
}

}  // namespace

const Op mxfp4_decode_op{
    .name = "mxfp4_decode",
    .family = "gemm",
    .purpose = "the weights of mxfp4_prepack as the products see them, without their f32 scales",
    .signature = R"(
      b        u8 [G, Nt, Kt, S] align 16
      b_shift  u8 [G, Nt, Kb, 64, 4] align 16
      b_sf     f32 [G, N, Fb?]             # its values say nothing; N is its extent
      -> out   e4m3/bf16 [G, N, num_columns]  # e4m3 where S = 4096, bf16 where S = 2048
      param    num_columns int >= 0           # K
      need     S in {2048, 4096}              on b "argument 'b' has the wrong shape"
      need     Nt = ceil(N / 64)              on b
      need     Kt = ceil(num_columns / (S / 32))    on b
      need     Kb = ceil(num_columns / 128)   on b_shift
      limit    N <= 2130706431
      limit    num_columns <= 2130706431
      limit    G * Nt * Kt <= 2130706431
    )",
    .launches = launches,
    .check = check,
    .functions = {{"out_dtype", dtype_of_codes}},
    .examples = R"(
      G=2 N=100 Nt=2 Kt=2 Kb=2 S=4096 num_columns=160 Fb=2; G=1 N=70 Nt=2 Kt=2 Kb=1 S=2048 num_columns=96
      G=1 N=65 Nt=2 Kt=2 Kb=2 S=4096 num_columns=130)",
    .bench = R"(
      G=8 N=4096 Nt=64 Kt=56 Kb=56 S=4096 num_columns=7168)"};

}  // namespace tessera::kernels
