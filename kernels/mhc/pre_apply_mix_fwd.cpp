// pre_apply_mix_fwd: the residual streams of each token, mixed into one row.
//
// Shapes   x [tokens, streams, hidden], mix [tokens, streams], out [tokens, hidden]
// Dtypes   x and out bf16, mix f32
// Method   one 16-byte vector of every stream per thread, all loads before the first product; no
//          shared memory. Every byte is moved once, so the bound is bytes / copy bandwidth.
// Maths    apply_pre_mix of mix_sequences.h, one rounding to bf16
// Tuned    H200; see pick_row_tile.

#include "kernels/mhc/pre_apply_mix_fwd.h"

#include "dsl/builder.h"
#include "kernels/alignment.h"
#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
#include "kernels/mhc/mix_sequences.h"
#include "kernels/mhc/row_tile.h"
#include "kernels/mhc/token_dims.h"
#include "kernels/op_call.h"

namespace tessera::kernels {
namespace {

// 1. Spec
struct Spec {
  int32_t streams, hidden;
  int32_t align;  // bytes, of x and out
};

constexpr int64_t kMaxStreams = 16;  // one vector of each fits the registers of a thread

// 2. Builder
ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const mhc::RowTile tile = mhc::pick_row_tile(s.hidden);
  Builder k("pre_apply_mix_fwd");
  auto tokens = k.dim("tokens");
  auto x = k.input("x", DType::bf16, {tokens, s.streams, s.hidden}, {.align = s.align});
  auto mix = k.input("mix", DType::f32, {tokens, s.streams}, {.align = 4});
  auto out = k.output("out", DType::bf16, {tokens, s.hidden}, {.align = s.align});
  auto row_tiles = ceil_div(tokens, tile.rows);
  auto at = k.launch({row_tiles * tile.chunks}, {.threads = tile.threads});
  k.wait_for_previous_kernel();
  // Backwards: the end of x is what the kernel before may have left in L2.
  auto first_token = k.let("first_token", (row_tiles - 1 - at.x / tile.chunks) * tile.rows);
  auto first_col = k.let("first_col", at.x % tile.chunks * tile.cols);

  k.parallel({tile.rows, tile.cols}, [&](Value row, Value col) {
    auto token = first_token + row;
    auto h = first_col + col;
    std::vector<Value> weights, streams;
    for (int64_t i = 0; i < s.streams; ++i) {
      weights.push_back(mix(token, i));
      streams.push_back(f32(x(token, i, h)));
    }
    out(token, h) = cast(DType::bf16, mhc::apply_pre_mix(weights, streams));
  });
  return k.finish();
}

// 3. Host function
mhc::TokenDims check_input(ArgCheck& check, const Tensors& tensors) {
  const mhc::TokenDims tokens(tensors, "x", 2);
  check.tensor("x", tensors).dtype(DType::bf16).shape_of(tokens.shape({"n", "H"})).row_major();
  check.tensor("mix", tensors).dtype(DType::f32).shape_of(tokens.shape({"n"})).row_major();
  mhc::require_streams(check, "x", kMaxStreams);
  return tokens;
}

Spec spec_of(const Tensors& tensors, int64_t streams, int64_t hidden) {
  return {static_cast<int32_t>(streams), static_cast<int32_t>(hidden),
          common_alignment(tensors, {"x", "out"})};
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params&) {
  ArgCheck check("pre_apply_mix_fwd");
  const mhc::TokenDims tokens = check_input(check, inputs);
  const Dims shape = tokens.output(check, "x", inputs.at("x"), {check["H"]});
  return {row_major_output("out", DType::bf16, shape)};
}

void run(const Tensors& tensors, const Params&, Stream stream) {
  ArgCheck check("pre_apply_mix_fwd");
  const mhc::TokenDims tokens = check_input(check, tensors);
  check.output("out", tensors).dtype(DType::bf16).shape_of(tokens.shape({"H"})).row_major();
  check.memory();
  if (tensors.at("x").size() == 0) return;
  const Spec spec = spec_of(tensors, check["n"], check["H"]);
  const TensorView arguments[] = {tokens.flat(tensors.at("x")), tokens.flat(tensors.at("mix")),
                                  tokens.flat(tensors.at("out"))};
  jit::run_op("pre_apply_mix_fwd", spec, build, arguments, {}, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params&) {
  ArgCheck check("pre_apply_mix_fwd");
  check_input(check, tensors);
  if (tensors.at("x").size() == 0) return {};
  return {build(spec_of(tensors, check["n"], check["H"]))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t streams, int64_t hidden) {
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " n=" + std::to_string(streams) +
            " H=" + std::to_string(hidden);
  c.inputs = {{"x", DType::bf16, {tokens, streams, hidden}},
              {"mix", DType::f32, {tokens, streams}}};
  c.bytes = tokens * (2 * streams * hidden + 4 * streams + 2 * hidden);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "pre_apply_mix_fwd";
  op.family = "mhc";
  op.purpose = "mixes the residual streams of each token into the input of a sub-layer";
  op.tensors = {input("x", {"bf16"}, {"T", "n", "H"}), input("mix", {"f32"}, {"T", "n"}),
                output("out", {"bf16"}, {"T", "H"})};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = {bench_case(5, 4, 7168), bench_case(3, 4, 2560), bench_case(7, 4, 1280),
                 bench_case(9, 2, 512), bench_case(3, 3, 100)};
  op.bench = {bench_case(8192, 4, 7168), bench_case(4096, 4, 7168), bench_case(8192, 4, 4096),
              bench_case(8192, 4, 2560), bench_case(8192, 4, 1280), bench_case(512, 4, 7168),
              bench_case(128, 4, 7168),  bench_case(1, 4, 7168)};
  return op;
}

}  // namespace

void pre_apply_mix_fwd(const TensorView& x, const TensorView& mix, const TensorView& out,
                       Stream stream) {
  call_op(pre_apply_mix_fwd_op(), {{"x", x}, {"mix", mix}, {"out", out}}, {}, stream);
}

const OpInfo& pre_apply_mix_fwd_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
