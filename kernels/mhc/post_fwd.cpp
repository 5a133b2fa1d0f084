// post_fwd: the residual streams behind a sub-layer, from its output and the streams before it.
//
// Shapes   x [tokens, hidden], residual and out [tokens, streams, hidden],
//          post_mix [tokens, streams], comb_mix [tokens, streams, streams]
// Dtypes   x, residual and out bf16, mixes f32
// Method   one 16-byte vector of the output and of every stream per thread, all loads before the
//          first product; no shared memory. Every byte is moved once, so the bound is bytes / copy
//          bandwidth.
// Maths    apply_post_mix of mix_sequences.h, one rounding to bf16
// Tuned    H200; see pick_row_tile.

#include "kernels/mhc/post_fwd.h"

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
  int32_t align;  // bytes, of the bf16 tensors
};

constexpr int64_t kMaxStreams = 8;  // a vector of f32 sums of each fits the registers of a thread

// 2. Builder
ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const mhc::RowTile tile = mhc::pick_row_tile(s.hidden);
  const int64_t n = s.streams;
  Builder k("post_fwd");
  auto tokens = k.dim("tokens");
  auto x = k.input("x", DType::bf16, {tokens, s.hidden}, {.align = s.align});
  auto residual = k.input("residual", DType::bf16, {tokens, n, s.hidden}, {.align = s.align});
  auto post_mix = k.input("post_mix", DType::f32, {tokens, n}, {.align = 4});
  auto comb_mix = k.input("comb_mix", DType::f32, {tokens, n, n}, {.align = 4});
  auto out = k.output("out", DType::bf16, {tokens, n, s.hidden}, {.align = s.align});
  auto at = k.launch({ceil_div(tokens, tile.rows) * tile.chunks}, {.threads = tile.threads});
  auto first_token = k.let("first_token", at.x / tile.chunks * tile.rows);
  auto first_col = k.let("first_col", at.x % tile.chunks * tile.cols);

  k.parallel({tile.rows, tile.cols}, [&](Value row, Value col) {
    auto token = first_token + row;
    auto h = first_col + col;
    // load
    Value layer_output = f32(x(token, h));
    std::vector<Value> streams, post;
    std::vector<std::vector<Value>> comb(static_cast<size_t>(n));  // [o][i]
    for (int64_t i = 0; i < n; ++i) streams.push_back(f32(residual(token, i, h)));
    for (int64_t o = 0; o < n; ++o) {
      post.push_back(post_mix(token, o));
      for (int64_t i = 0; i < n; ++i) comb[static_cast<size_t>(o)].push_back(comb_mix(token, i, o));
    }
    // mix and store
    for (int64_t o = 0; o < n; ++o) {
      const auto at_o = static_cast<size_t>(o);
      out(token, o, h) =
          cast(DType::bf16, mhc::apply_post_mix(post[at_o], layer_output, comb[at_o], streams));
    }
  });
  return k.finish();
}

// 3. Host function
mhc::TokenDims check_input(ArgCheck& check, const Tensors& tensors) {
  const mhc::TokenDims tokens(tensors, "x", 1);
  check.tensor("x", tensors).dtype(DType::bf16).shape_of(tokens.shape({"H"})).row_major();
  check.tensor("residual", tensors)
      .dtype(DType::bf16)
      .shape_of(tokens.shape({"n", "H"}))
      .row_major();
  check.tensor("post_mix", tensors).dtype(DType::f32).shape_of(tokens.shape({"n"})).row_major();
  check.tensor("comb_mix", tensors)
      .dtype(DType::f32)
      .shape_of(tokens.shape({"n", "n"}))
      .row_major();
  mhc::require_streams(check, "residual", kMaxStreams);
  return tokens;
}

Spec spec_of(const Tensors& tensors, int64_t streams, int64_t hidden) {
  return {static_cast<int32_t>(streams), static_cast<int32_t>(hidden),
          common_alignment(tensors, {"x", "residual", "out"})};
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params&) {
  ArgCheck check("post_fwd");
  check_input(check, inputs);
  const Dims shape = inputs.at("residual").shape;
  return {row_major_output("out", DType::bf16, shape)};
}

void run(const Tensors& tensors, const Params&, Stream stream) {
  ArgCheck check("post_fwd");
  const mhc::TokenDims tokens = check_input(check, tensors);
  check.output("out", tensors).dtype(DType::bf16).same_shape("residual").row_major();
  check.memory();
  if (tensors.at("residual").size() == 0) return;
  const Spec spec = spec_of(tensors, check["n"], check["H"]);
  std::vector<TensorView> arguments;
  for (const char* name : {"x", "residual", "post_mix", "comb_mix", "out"}) {
    arguments.push_back(tokens.flat(tensors.at(name)));
  }
  jit::run_op("post_fwd", spec, build, arguments, {}, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params&) {
  ArgCheck check("post_fwd");
  check_input(check, tensors);
  if (tensors.at("residual").size() == 0) return {};
  return {build(spec_of(tensors, check["n"], check["H"]))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t streams, int64_t hidden) {
  const int64_t n = streams;
  BenchCase c;
  c.label =
      "T=" + std::to_string(tokens) + " n=" + std::to_string(n) + " H=" + std::to_string(hidden);
  c.inputs = {{"x", DType::bf16, {tokens, hidden}},
              {"residual", DType::bf16, {tokens, n, hidden}},
              {"post_mix", DType::f32, {tokens, n}},
              {"comb_mix", DType::f32, {tokens, n, n}}};
  c.bytes = tokens * (2 * hidden + 4 * n * hidden + 4 * n + 4 * n * n);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "post_fwd";
  op.family = "mhc";
  op.purpose = "new residual streams from a sub-layer's output and the mixed old ones";
  op.tensors = {input("x", {"bf16"}, {"T", "H"}), input("residual", {"bf16"}, {"T", "n", "H"}),
                input("post_mix", {"f32"}, {"T", "n"}), input("comb_mix", {"f32"}, {"T", "n", "n"}),
                output("out", {"bf16"}, {"T", "n", "H"})};
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

void post_fwd(const TensorView& x, const TensorView& residual, const TensorView& post_mix,
              const TensorView& comb_mix, const TensorView& out, Stream stream) {
  call_op(post_fwd_op(),
          {{"x", x},
           {"residual", residual},
           {"post_mix", post_mix},
           {"comb_mix", comb_mix},
           {"out", out}},
          {}, stream);
}

const OpInfo& post_fwd_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
