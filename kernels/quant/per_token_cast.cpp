// per_token_cast: rows to e4m3 with one f32 scale per group of columns.
//
// Shapes   x [tokens, hidden], out [tokens, hidden], out_sf [tokens, ceil(hidden / group)]
// Dtypes   x bf16|f32, out e4m3, out_sf f32
// Method   one pass: load a tile, amax per group (warp shuffles), scales, multiply, store.
//          x is read once and out written once, so the bound is bytes / copy bandwidth.
// Maths    scale = max(amax, 1e-4) / 448, code = e4m3(x * (448 / max(amax, 1e-4))): see
// scale_factor.h Tuned    H200; see pick_tile.

#include "kernels/quant/per_token_cast.h"

#include <algorithm>
#include <numeric>

#include "kernels/arg_check.h"
#include "kernels/jit/jit.h"
#include "kernels/quant/scale_factor.h"

namespace tessera::kernels {
namespace {

// 1. Spec
struct Spec {
  DType in;
  bool round_sf;
  uint16_t align;  // bytes of x, at most 16
  int32_t hidden, group;
  int32_t stride_multiple;  // of the row stride, a power of two
};

struct Tile {
  int64_t rows, cols;
  int threads;
};

/// 32 elements per thread of 128: two to four 16-byte loads in flight each. With one scale per row
/// the block holds whole rows: as many threads along a row as divide it evenly, else columns are
/// padded.
Tile pick_tile(const Spec& s) {
  constexpr int64_t kElements = 4096;
  if (s.group < s.hidden || s.group <= 128) {
    for (const int64_t cols : {1024, 512, 256, 128}) {
      const int64_t padded = (s.hidden + cols - 1) / cols * cols;
      if (padded * 8 <= s.hidden * 9 || cols == 128) return {kElements / cols, cols, 128};
    }
  }
  constexpr int64_t kMostPerThread = 64;
  for (const int64_t threads : {128, 256, 512, 1024}) {
    const int64_t vector = s.in == DType::f32 ? 4 : 8;
    int64_t lanes = std::gcd(s.hidden / vector, threads);
    if (s.hidden % vector == 0 && s.hidden / lanes <= kMostPerThread) {
      return {threads / lanes, s.hidden, static_cast<int>(threads)};
    }
    const int64_t padded =
        (s.hidden + threads * vector - 1) / (threads * vector) * (threads * vector);
    if (padded / threads <= kMostPerThread) return {1, padded, static_cast<int>(threads)};
  }
  return {1, s.hidden, 1024};
}
constexpr int64_t kMaxGroup = 1024 * 64;

// 2. Builder
ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const Tile tile = pick_tile(s);
  const bool per_row = s.group == s.hidden && s.group > 128;
  const int64_t group = per_row ? tile.cols : s.group;
  const int64_t groups = tile.cols / group;  // of one tile

  Builder k("per_token_cast");
  auto tokens = k.dim("tokens");
  auto row_stride = k.stride("x_row_stride", {.multiple_of = s.stride_multiple});
  auto x = k.input("x", s.in, {tokens, s.hidden}, {.strides = {row_stride, 1}, .align = s.align});
  auto out = k.output("out", DType::e4m3, {tokens, s.hidden});
  auto out_sf =
      k.output("out_sf", DType::f32, {tokens, (s.hidden + s.group - 1) / s.group}, {.align = 4});
  // Column tiles of one row follow each other; one grid dimension, so that the number of tokens is not limited.
  const int64_t col_tiles = (s.hidden + tile.cols - 1) / tile.cols;
  auto at = k.launch({ceil_div(tokens, tile.rows) * col_tiles}, {.threads = tile.threads});
  auto col_tile = at.x % col_tiles;
  auto row = k.let("row", at.x / col_tiles * tile.rows);
  auto col = k.let("col", col_tile * tile.cols);

  // load
  auto x_frag = k.fragment(s.in, {tile.rows, tile.cols}, "x_frag");  // (rows, cols)
  k.copy(x.tile({row, col}, {tile.rows, tile.cols}), x_frag);

  // amax per group
  auto amax = k.fragment(DType::f32, {tile.rows, groups}, "amax");  // (rows, groups)
  k.reduce_absmax(x_frag.reshape({tile.rows, groups, group}), amax, Axis(2));

  // scales
  auto inverse = k.fragment(DType::f32, {tile.rows, groups}, "inverse");  // (rows, groups)
  k.parallel({tile.rows, groups}, [&](Value r, Value g) {
    auto sf = scale_factor(k, kE4m3, amax(r, g), s.round_sf);
    inverse(r, g) = sf.inverse;
    out_sf(row + r, col_tile * groups + g) = sf.scale;
  });

  // cast and store
  auto codes = k.fragment(DType::e4m3, {tile.rows, tile.cols}, "codes");  // (rows, cols)
  k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
    codes(r, c) = cast(DType::e4m3, f32(x_frag(r, c)) * inverse(r, c / group));
  });
  k.copy(codes, out.tile({row, col}, {tile.rows, tile.cols}));
  return k.finish();
}

// 3. Host function
Spec spec_of(const TensorView& x, int64_t group, bool round_sf) {
  Spec s;
  s.in = x.dtype;
  s.round_sf = round_sf;
  s.align = static_cast<uint16_t>(
      std::gcd(static_cast<int64_t>(reinterpret_cast<uintptr_t>(x.data)), int64_t{16}));
  s.hidden = static_cast<int32_t>(x.shape[1]);
  s.group = static_cast<int32_t>(group);
  s.stride_multiple =
      static_cast<int32_t>(std::gcd(x.shape[0] <= 1 ? 0 : x.strides[0], int64_t{16}));
  return s;
}

/// Forms of the contract that this version does not have yet.
void require_supported(const ArgCheck& check, const Tensors& tensors, const Params& params) {
  auto word = [&](const char* name) { return std::get<std::string>(params.at(name)); };
  auto unsupported = [&](bool fine, const char* argument, const char* expected,
                         const std::string& got) {
    check.require(fine, argument,
                  std::string("this form of '") + argument + "' is not supported yet", expected,
                  got, ErrorKind::unsupported);
  };
  unsupported(word("format") == "e4m3", "format", "e4m3", word("format"));
  unsupported(word("sf_layout") == "row_major", "sf_layout", "row_major", word("sf_layout"));
  const auto x = tensors.find("x");
  if (x != tensors.end()) {
    const bool plain = x->second.dtype == DType::bf16 || x->second.dtype == DType::f32;
    const bool quantised = x->second.dtype == DType::e4m3 || x->second.dtype == DType::i8;
    unsupported(plain || !quantised, "x", "bf16 or f32", std::string(name(x->second.dtype)));
  }
  unsupported(!tensors.contains("x_sf") &&
                  std::holds_alternative<std::monostate>(params.at("x_block_size")),
              "x_sf", "an x that is not quantised", "x_sf or x_block_size given");
}

struct Call {
  int64_t group = 0;
  bool round_sf = false;
  int64_t num_groups = 0;
};

Call check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  // Wrong whatever this version supports.
  check.require(std::get<std::string>(params.at("sf_layout")) != "packed_ue8m0" ||
                    std::get<bool>(params.at("round_sf")),
                "sf_layout", "packed_ue8m0 scales are powers of two", "round_sf=true",
                "round_sf=false");
  require_supported(check, tensors, params);
  check.tensor("x", tensors).dtype({DType::bf16, DType::f32}).shape("T", "H").rows();
  Call call;
  call.group = std::get<int64_t>(params.at("num_per_channels"));
  call.round_sf = std::get<bool>(params.at("round_sf"));
  const int64_t hidden = check["H"];
  const bool ordinary =
      call.group == 16 || call.group == 32 || call.group == 64 || call.group == 128;
  check.require(ordinary || (call.group == hidden && hidden % 64 == 0), "num_per_channels",
                "parameter 'num_per_channels' is out of range",
                "16, 32, 64, 128 or H = " + std::to_string(hidden) + " where H is a multiple of 64",
                std::to_string(call.group));
  check.require(ordinary || hidden <= kMaxGroup, "num_per_channels",
                "one scale for so many columns is not supported",
                "at most " + std::to_string(kMaxGroup), std::to_string(call.group),
                ErrorKind::unsupported);
  call.num_groups = (hidden + call.group - 1) / call.group;
  check.bind("C", call.num_groups, "ceil(H / num_per_channels)");
  return call;
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("per_token_cast");
  const Call call = check_input(check, inputs, params);
  const Dims shape = inputs.at("x").shape;
  const Dims sf_shape{shape[0], call.num_groups};
  return {{"out", DType::e4m3, shape, row_major_strides(shape), num_elements(shape)},
          {"out_sf", DType::f32, sf_shape, row_major_strides(sf_shape), num_elements(sf_shape)}};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("per_token_cast");
  const Call call = check_input(check, tensors, params);
  check.output("out", tensors).dtype(DType::e4m3).shape("T", "H").row_major().aligned(16);
  check.output("out_sf", tensors).dtype(DType::f32).shape("T", "C").row_major();
  check.memory();
  const TensorView& x = tensors.at("x");
  if (x.size() == 0) return;
  const Spec spec = spec_of(x, call.group, call.round_sf);
  const TensorView arguments[] = {x, tensors.at("out"), tensors.at("out_sf")};
  jit::run(
      "per_token_cast", jit::spec_bytes(spec), [&] { return build(spec); }, arguments, {}, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("per_token_cast");
  const Call call = check_input(check, tensors, params);
  const TensorView& x = tensors.at("x");
  if (x.size() == 0) return {};
  return {build(spec_of(x, call.group, call.round_sf))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t hidden, DType in, int64_t group, bool round_sf) {
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " H=" + std::to_string(hidden) + " " +
            std::string(name(in)) + " / " + std::to_string(group) + (round_sf ? " rounded" : "");
  c.params = {{"format", std::string("e4m3")}, {"num_per_channels", group}, {"round_sf", round_sf}};
  c.inputs.push_back({"x", in, {tokens, hidden}, {hidden, 1}});
  c.bytes = tokens * hidden * (bytes(in) + 1) + tokens * ((hidden + group - 1) / group) * 4;
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "per_token_cast";
  op.family = "quant";
  op.purpose = "rows to 8-bit or 4-bit floats with one scale per group of columns";
  op.tensors = {
      {"x", Role::in, false, false, false, {"bf16", "f32", "e4m3", "e2m1"}, {"T", "H"}, "rows"},
      {"x_sf", Role::in, true, false, false, {}, {}, "SF(x_block_size) x_sf_layout"},
      {"out", Role::out, false, false, false, {"format"}, {"T", "H"}, "row_major"},
      {"out_sf", Role::out, false, false, false, {}, {}, "SF(1,num_per_channels) sf_layout"}};
  const std::vector<std::string> layouts = {"row_major", "col_major_tma", "packed_ue8m0"};
  using Type = ParamInfo::Type;
  op.params = {{"format", Type::word, {}, {"e4m3", "e2m1"}, {}, ""},
               {"num_per_channels", Type::integer, {}, {"16", "32", "64", "128", "H"}, {}, ""},
               {"x_block_size", Type::tuple, ParamValue(), {}, {}, ""},
               {"x_sf_layout", Type::word, ParamValue(std::string("row_major")), layouts, {}, ""},
               {"sf_layout", Type::word, ParamValue(std::string("row_major")), layouts, {}, ""},
               {"round_sf", Type::boolean, ParamValue(false), {}, {}, ""}};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = {
      bench_case(37, 7168, DType::bf16, 128, false), bench_case(13, 576, DType::f32, 128, true),
      bench_case(9, 320, DType::bf16, 16, false),    bench_case(5, 2048, DType::f32, 32, true),
      bench_case(6, 640, DType::bf16, 64, true),     bench_case(3, 576, DType::bf16, 576, false),
      bench_case(2, 7168, DType::f32, 7168, true)};
  op.bench = {bench_case(8001, 7168, DType::bf16, 128, false),
              bench_case(8001, 7168, DType::bf16, 32, true),
              bench_case(8001, 7168, DType::f32, 128, false),
              bench_case(8001, 7168, DType::f32, 32, true),
              bench_case(8001, 7168, DType::bf16, 7168, false),
              bench_case(8001, 576, DType::bf16, 128, false),
              bench_case(1, 7168, DType::bf16, 128, false),
              bench_case(128, 7168, DType::bf16, 128, false)};
  return op;
}

}  // namespace

void per_token_cast(const TensorView& x, const TensorView& out, const TensorView& out_sf,
                    const PerTokenCastOptions& options, Stream stream) {
  const Params params =
      check_params(per_token_cast_op(), {{"format", std::string("e4m3")},
                                         {"num_per_channels", options.num_per_channels},
                                         {"round_sf", options.round_sf}});
  run({{"x", x}, {"out", out}, {"out_sf", out_sf}}, params, stream);
}

const OpInfo& per_token_cast_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
