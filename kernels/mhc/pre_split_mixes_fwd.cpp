// pre_split_mixes_fwd: the mixes of a sub-layer from the projected residual.
//
// Shapes   input_mixes [tokens, M] with M = streams * (streams + 2), scale [3], base [M],
//          pre_mix and post_mix [tokens, streams], comb_logits [tokens, streams, streams]
// Dtypes   f32
// Method   one thread per entry, so that even few tokens fill the SMs; neighbours read neighbouring
//          entries. Few bytes: the bound is the latency of one load, one sigmoid and one store.
// Maths    z = fma(m, scale, base); pre_mix and post_mix of mix_sequences.h
// Tuned    H200: 256 threads per block.

#include "kernels/mhc/pre_split_mixes_fwd.h"

#include "dsl/builder.h"
#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
#include "kernels/mhc/mix_sequences.h"
#include "kernels/mhc/token_dims.h"
#include "kernels/op_call.h"

namespace tessera::kernels {
namespace {

// 1. Spec
struct Spec {
  int32_t streams;
};

constexpr int64_t kThreads = 256;
constexpr int64_t kMaxStreams = 1024;  // offsets inside a token stay small

// 2. Builder
ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const int64_t n = s.streams, entries = n * (n + 2);
  Builder k("pre_split_mixes_fwd");
  auto tokens = k.dim("tokens");
  auto input_mixes = k.input("input_mixes", DType::f32, {tokens, entries}, {.align = 4});
  auto scale = k.input("scale", DType::f32, {3}, {.align = 4});
  auto base = k.input("base", DType::f32, {entries}, {.align = 4});
  auto pre_mix = k.output("pre_mix", DType::f32, {tokens, n}, {.align = 4});
  auto post_mix = k.output("post_mix", DType::f32, {tokens, n}, {.align = 4});
  auto comb_logits = k.output("comb_logits", DType::f32, {tokens, n, n}, {.align = 4});
  auto post_mult = k.scalar("post_mult_value", DType::f32);
  auto eps = k.scalar("pre_eps", DType::f32);
  auto at = k.launch({ceil_div(tokens * entries, kThreads)}, {.threads = kThreads});

  auto entry = k.let("entry", at.x * kThreads + k.thread());
  auto token = k.let("token", entry / entries);
  auto j = k.let("j", entry % entries);
  k.if_(token < tokens, [&] {
    Value mix = input_mixes(token, j);
    auto z = k.let("z", mhc::mix_logit(mix, scale(min(j / n, 2)), base(j)));
    k.if_else(
        j < n, [&] { pre_mix(token, j) = mhc::pre_mix(z, eps); },
        [&] {
          k.if_else(
              j < 2 * n, [&] { post_mix(token, j - n) = mhc::post_mix(z, post_mult); },
              [&] { comb_logits(token, (j - 2 * n) / n, (j - 2 * n) % n) = z; });
        });
  });
  return k.finish();
}

// 3. Host function
struct Call {
  mhc::TokenDims tokens;
  int64_t streams = 0;
};

Call check_input(ArgCheck& check, const Tensors& tensors) {
  Call call{mhc::TokenDims(tensors, "input_mixes", 1)};
  check.tensor("input_mixes", tensors)
      .dtype(DType::f32)
      .shape_of(call.tokens.shape({"M"}))
      .row_major();
  check.tensor("scale", tensors).dtype(DType::f32).shape(3).row_major();
  check.tensor("base", tensors).dtype(DType::f32).shape("M").row_major();
  while ((call.streams + 1) * (call.streams + 3) <= check["M"]) ++call.streams;
  check.require(call.streams >= 1 && call.streams * (call.streams + 2) == check["M"], "input_mixes",
                "argument 'input_mixes' has the wrong number of columns",
                "M = n (n + 2) for n streams: 3, 8, 15, 24, ...", std::to_string(check["M"]));
  check.require(call.streams <= kMaxStreams, "input_mixes", "so many streams are not supported",
                "at most " + std::to_string(kMaxStreams), std::to_string(call.streams),
                ErrorKind::unsupported);
  check.bind("n", call.streams, "streams, M = n (n + 2)");
  return call;
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params&) {
  ArgCheck check("pre_split_mixes_fwd");
  const Call call = check_input(check, inputs);
  const int64_t n = call.streams;
  const TensorView& mixes = inputs.at("input_mixes");
  const Dims mix = call.tokens.output(check, "input_mixes", mixes, {n});
  const Dims comb = call.tokens.output(check, "input_mixes", mixes, {n, n});
  return {row_major_output("pre_mix", DType::f32, mix),
          row_major_output("post_mix", DType::f32, mix),
          row_major_output("comb_logits", DType::f32, comb)};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("pre_split_mixes_fwd");
  const Call call = check_input(check, tensors);
  const mhc::TokenDims& dims = call.tokens;
  check.output("pre_mix", tensors).dtype(DType::f32).shape_of(dims.shape({"n"})).row_major();
  check.output("post_mix", tensors).dtype(DType::f32).shape_of(dims.shape({"n"})).row_major();
  check.output("comb_logits", tensors)
      .dtype(DType::f32)
      .shape_of(dims.shape({"n", "n"}))
      .row_major();
  check.memory();
  if (tensors.at("input_mixes").size() == 0) return;
  const Spec spec{static_cast<int32_t>(call.streams)};
  const TensorView arguments[] = {dims.flat(tensors.at("input_mixes")),
                                  tensors.at("scale"),
                                  tensors.at("base"),
                                  dims.flat(tensors.at("pre_mix")),
                                  dims.flat(tensors.at("post_mix")),
                                  dims.flat(tensors.at("comb_logits"))};
  const jit::Scalar scalars[] = {std::get<double>(params.at("post_mult_value")),
                                 std::get<double>(params.at("pre_eps"))};
  jit::run_op("pre_split_mixes_fwd", spec, build, arguments, scalars, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params&) {
  ArgCheck check("pre_split_mixes_fwd");
  const Call call = check_input(check, tensors);
  if (tensors.at("input_mixes").size() == 0) return {};
  return {build({static_cast<int32_t>(call.streams)})};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t streams) {
  const int64_t entries = streams * (streams + 2);
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " n=" + std::to_string(streams);
  c.inputs = {{"input_mixes", DType::f32, {tokens, entries}},
              {"scale", DType::f32, {3}},
              {"base", DType::f32, {entries}}};
  c.bytes = 8 * tokens * entries;
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "pre_split_mixes_fwd";
  op.family = "mhc";
  op.purpose = "splits the projected residual into the mixes of a sub-layer";
  op.tensors = {input("input_mixes", {"f32"}, {"T", "M"}),
                input("scale", {"f32"}, {"3"}),
                input("base", {"f32"}, {"M"}),
                output("pre_mix", {"f32"}, {"T", "n"}),
                output("post_mix", {"f32"}, {"T", "n"}),
                output("comb_logits", {"f32"}, {"T", "n", "n"})};
  op.params = {number("post_mult_value", 1.0), number("pre_eps", 1e-6)};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = {bench_case(37, 4), bench_case(5, 3), bench_case(9, 1)};
  for (const int64_t tokens : {1, 128, 512, 4096, 8192}) {
    op.bench.push_back(bench_case(tokens, 4));
  }
  return op;
}

}  // namespace

void pre_split_mixes_fwd(const TensorView& input_mixes, const TensorView& scale,
                         const TensorView& base, const TensorView& pre_mix,
                         const TensorView& post_mix, const TensorView& comb_logits,
                         const PreSplitMixesOptions& options, Stream stream) {
  call_op(pre_split_mixes_fwd_op(),
          {{"input_mixes", input_mixes},
           {"scale", scale},
           {"base", base},
           {"pre_mix", pre_mix},
           {"post_mix", post_mix},
           {"comb_logits", comb_logits}},
          {{"post_mult_value", options.post_mult_value}, {"pre_eps", options.pre_eps}}, stream);
}

const OpInfo& pre_split_mixes_fwd_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
