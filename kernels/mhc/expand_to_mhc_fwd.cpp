// expand_to_mhc_fwd: each row copied into every residual stream.
//
// Shapes   x [tokens, hidden], out [tokens, streams, hidden]
// Dtypes   bf16, moved unchanged
// Method   two 16-byte vectors per thread come in together and go out once per stream. Every byte
//          is moved once, so the bound is bytes / copy bandwidth, most of it writes.
// Maths    none
// Tuned    H200; see pick_row_tile.

#include "kernels/mhc/expand_to_mhc_fwd.h"

#include "dsl/builder.h"
#include "kernels/alignment.h"
#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
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

constexpr int64_t kMaxStreams = 65536;  // offsets inside a token stay small
constexpr int64_t kUnrolled = 8;        // streams written without a loop

// 2. Builder
ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const mhc::RowTile tile = mhc::pick_row_tile(s.hidden);
  const int64_t rows = 2 * tile.rows;  // two vectors per thread
  Builder k("expand_to_mhc_fwd");
  auto tokens = k.dim("tokens");
  auto x = k.input("x", DType::bf16, {tokens, s.hidden}, {.align = s.align});
  auto out = k.output("out", DType::bf16, {tokens, s.streams, s.hidden}, {.align = s.align});
  auto at = k.launch({ceil_div(tokens, rows) * tile.chunks}, {.threads = tile.threads});
  auto first_token = k.let("first_token", at.x / tile.chunks * rows);
  auto first_col = k.let("first_col", at.x % tile.chunks * tile.cols);

  auto x_frag = k.fragment(DType::bf16, {rows, tile.cols}, "x_frag");  // (rows, cols)
  k.copy(x.tile({first_token, first_col}, {rows, tile.cols}), x_frag);
  const auto write_stream = [&](Value stream) {
    k.parallel({rows, tile.cols}, [&](Value row, Value col) {
      out(first_token + row, stream, first_col + col) = x_frag(row, col);
    });
  };
  if (s.streams <= kUnrolled) {
    k.unrolled(s.streams, write_stream);
  } else {
    k.serial(0, s.streams, write_stream);
  }
  return k.finish();
}

// 3. Host function
mhc::TokenDims check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  const mhc::TokenDims tokens(tensors, "x", 1);
  check.tensor("x", tensors).dtype(DType::bf16).shape_of(tokens.shape({"H"})).row_major();
  const int64_t streams = std::get<int64_t>(params.at("mhc_mult"));
  check.bind("n", streams, "mhc_mult");
  check.require(streams <= kMaxStreams, "mhc_mult", "so many streams are not supported",
                "at most " + std::to_string(kMaxStreams), std::to_string(streams),
                ErrorKind::unsupported);
  return tokens;
}

Spec spec_of(const Tensors& tensors, int64_t streams, int64_t hidden) {
  return {static_cast<int32_t>(streams), static_cast<int32_t>(hidden),
          common_alignment(tensors, {"x", "out"})};
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("expand_to_mhc_fwd");
  const mhc::TokenDims tokens = check_input(check, inputs, params);
  const Dims shape = tokens.output(check, "x", inputs.at("x"), {check["n"], check["H"]});
  return {row_major_output("out", DType::bf16, shape)};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("expand_to_mhc_fwd");
  const mhc::TokenDims tokens = check_input(check, tensors, params);
  check.output("out", tensors).dtype(DType::bf16).shape_of(tokens.shape({"n", "H"})).row_major();
  check.memory();
  if (tensors.at("x").size() == 0) return;
  const Spec spec = spec_of(tensors, check["n"], check["H"]);
  const TensorView arguments[] = {tokens.flat(tensors.at("x")), tokens.flat(tensors.at("out"))};
  jit::run_op("expand_to_mhc_fwd", spec, build, arguments, {}, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("expand_to_mhc_fwd");
  check_input(check, tensors, params);
  if (tensors.at("x").size() == 0) return {};
  return {build(spec_of(tensors, check["n"], check["H"]))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t streams, int64_t hidden) {
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " n=" + std::to_string(streams) +
            " H=" + std::to_string(hidden);
  c.params = {{"mhc_mult", streams}};
  c.inputs = {{"x", DType::bf16, {tokens, hidden}}};
  c.bytes = 2 * tokens * hidden * (1 + streams);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "expand_to_mhc_fwd";
  op.family = "mhc";
  op.purpose = "copies each row into every residual stream";
  op.tensors = {input("x", {"bf16"}, {"T", "H"}), output("out", {"bf16"}, {"T", "n", "H"})};
  op.params = {count("mhc_mult", "", 4)};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = {bench_case(5, 4, 7168), bench_case(3, 4, 2560), bench_case(7, 8, 1280),
                 bench_case(9, 2, 512), bench_case(3, 12, 100)};
  op.bench = {bench_case(8192, 4, 7168), bench_case(4096, 4, 7168), bench_case(8192, 4, 4096),
              bench_case(8192, 4, 2560), bench_case(8192, 4, 1280), bench_case(512, 4, 7168),
              bench_case(128, 4, 7168),  bench_case(1, 4, 7168)};
  return op;
}

}  // namespace

void expand_to_mhc_fwd(const TensorView& x, const TensorView& out,
                       const ExpandToMhcOptions& options, Stream stream) {
  call_op(expand_to_mhc_fwd_op(), {{"x", x}, {"out", out}}, {{"mhc_mult", options.mhc_mult}},
          stream);
}

const OpInfo& expand_to_mhc_fwd_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
