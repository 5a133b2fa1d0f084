// engram_gate_fwd: every residual stream plus the value row, weighted by the stream's gate.
//
// Shapes   hidden_states, k and out [tokens, streams, hidden], v [tokens, hidden],
//          weight_fused [streams, hidden], dot, gate_score, rstd_x and rstd_k [tokens, streams]
// Dtypes   rows bf16, weights and scores f32
// Method   one block per stream and run of tokens: it keeps the weights of its columns in registers,
//          loads x, k and v of a token at once, sums over the block, and adds. x, k and out are
//          moved once and v comes from L2 for all streams but one, so the bound is bytes / copy
//          bandwidth.
// Maths    each sum: fma over the thread's columns in ascending order, then over the warp by xor 16,
//          8, 4, 2, 1, then over warps in ascending order; the score as in engram_gate_fwd.h
// Tuned    H200: see pick_gate_tile; up to 8 tokens per block read the weights once.

#include "kernels/engram/engram_gate_fwd.h"

#include <cmath>
#include <numeric>

#include "dsl/builder.h"
#include "kernels/arg_check.h"
#include "kernels/engram/block_sums.h"
#include "kernels/engram/gate_tile.h"
#include "kernels/jit/call_memo.h"
#include "kernels/jit/jit.h"
#include "kernels/mhc/token_dims.h"

namespace tessera::kernels {
namespace {

// 1. Spec
struct Spec {
  int32_t streams, hidden;
  uint8_t vector;         // columns of x, k, v and out per access, at most 8
  uint8_t weight_vector;  // weights per access, at most 4
  bool save;
  uint8_t unused = 0;
};

// 2. Builder
ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const auto hidden = static_cast<float>(s.hidden);
  const auto root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.hidden)));
  Builder k("engram_gate_fwd");
  const engram::Columns columns(k, s.hidden);
  const engram::GateTile& tile = columns.tile();
  const int64_t align = s.vector * 2;
  auto tokens = k.dim("tokens");
  const DimOptions apart{.multiple_of = s.vector};
  auto k_token = k.stride("k_token_stride", apart), k_stream = k.stride("k_stream_stride", apart);
  auto v_token = k.stride("v_token_stride", apart);
  auto hidden_states =
      k.input("hidden_states", DType::bf16, {tokens, s.streams, s.hidden}, {.align = align});
  auto keys = k.input("k", DType::bf16, {tokens, s.streams, s.hidden},
                      {.strides = {k_token, k_stream, 1}, .align = align});
  auto values =
      k.input("v", DType::bf16, {tokens, s.hidden}, {.strides = {v_token, 1}, .align = align});
  auto weight_fused =
      k.input("weight_fused", DType::f32, {s.streams, s.hidden}, {.align = s.weight_vector * 4});
  auto out = k.output("out", DType::bf16, {tokens, s.streams, s.hidden}, {.align = align});
  std::vector<Ref> saved;
  if (s.save) {
    for (const char* name : {"dot", "gate_score", "rstd_x", "rstd_k"}) {
      saved.push_back(k.output(name, DType::f32, {tokens, s.streams}, {.align = 4}));
    }
  }
  auto eps = k.scalar("eps", DType::f32), clamp = k.scalar("clamp_value", DType::f32);
  auto tokens_per_block = k.scalar("tokens_per_block", DType::i32);
  auto at = k.launch({(tokens + tokens_per_block - 1) / tokens_per_block * s.streams},
                     {.threads = static_cast<int>(tile.threads)});
  auto stream = k.let("stream", at.x % s.streams);
  auto first_token = k.let("first_token", at.x / s.streams * tokens_per_block);

  auto w = columns.load("w", DType::f32, s.weight_vector,
                        [&](const Value& col) { return weight_fused(stream, col); });
  k.serial(first_token, min(first_token + tokens_per_block, tokens), [&](Value token) {
    k.assume(token >= 0 && token < tokens);
    // load
    auto x = columns.load("x", DType::bf16, s.vector,
                          [&](const Value& col) { return hidden_states(token, stream, col); });
    auto key = columns.load("key", DType::bf16, s.vector,
                            [&](const Value& col) { return keys(token, stream, col); });
    auto v = columns.load("v", DType::bf16, s.vector,
                          [&](const Value& col) { return values(token, col); });
    // sums over the row
    auto xx = k.var(DType::f32, 0.0f, "xx"), kk = k.var(DType::f32, 0.0f, "kk");
    auto xwk = k.var(DType::f32, 0.0f, "xwk");
    k.unrolled(tile.runs, [&](Value run) {
      k.unrolled(engram::kRun, [&](Value i) {
        auto a = f32(x(run, i)), b = f32(key(run, i));
        xx = fma(a, a, xx);
        kk = fma(b, b, kk);
        xwk = fma(a * w(run, i), b, xwk);
      });
    });
    const std::vector<Value> sums = engram::block_sums(k, tile.threads / 32, {xx, kk, xwk});
    // gate
    auto rstd_x = k.let("rstd_x_value", rsqrt(sums[0] / hidden + eps));
    auto rstd_k = k.let("rstd_k_value", rsqrt(sums[1] / hidden + eps));
    auto u = k.let("u", sums[2] * rstd_x * rstd_k * root);
    auto magnitude = select(abs(u) < clamp, clamp, abs(u));  // NaN stays
    auto z = copysign(sqrt(magnitude), u);
    auto gate = k.let("gate", 1.0f / (1.0f + exp(-z)));
    // add and store
    columns.each(s.vector, [&](const Value& run, const Value& col, const Value& i) {
      out(token, stream, col) = cast(DType::bf16, fma(gate, f32(v(run, i)), f32(x(run, i))));
    });
    if (s.save) {
      k.if_(k.thread() == 0, [&] {
        const Value results[] = {sums[2], gate, rstd_x, rstd_k};
        for (size_t i = 0; i < saved.size(); ++i) saved[i](token, stream) = results[i];
      });
    }
  });
  return k.finish();
}

// 3. Host function
constexpr const char* kOp = "engram_gate_fwd";
constexpr const char* kSaved[] = {"dot", "gate_score", "rstd_x", "rstd_k"};

mhc::TokenDims check_input(ArgCheck& check, const Tensors& tensors) {
  const mhc::TokenDims tokens(tensors, "hidden_states", 2);
  const std::vector<Extent> rows = tokens.shape({"hc", "D"});
  check.tensor("hidden_states", tensors).dtype(DType::bf16).shape_of(rows).row_major();
  check.multiple_of("D", 256);
  check.in_range("D", 512, int64_t{1} << 24);
  check.in_range("hc", 1, 1 << 16);
  check.tensor("k", tensors).dtype(DType::bf16).shape_of(rows).rows();
  check.tensor("v", tensors).dtype(DType::bf16).shape_of(tokens.shape({"D"})).rows();
  check.tensor("weight_fused", tensors).dtype(DType::f32).shape("hc", "D").row_major();
  return tokens;
}

/// A tensor whose last `others` dimensions follow those of the tokens, with one token dimension.
TensorView flat_rows(const ArgCheck& check, const char* name, const TensorView& view, int others) {
  const int tokens = view.rank() - others;
  TensorView flat = view;
  flat.shape = Dims{1};
  flat.strides = Dims{view.strides[tokens - 1]};
  int64_t expected = 0;  // stride that the next larger dimension must have
  for (int i = tokens - 1; i >= 0; --i) {
    if (view.shape[i] == 1) continue;
    check.require(expected == 0 || view.strides[i] == expected, name,
                  "rows of several token dimensions must lie evenly apart", "even strides",
                  to_string(view), ErrorKind::unsupported);
    if (expected == 0) flat.strides[0] = view.strides[i];
    expected = view.strides[i] * view.shape[i];
  }
  for (int i = 0; i < tokens; ++i) flat.shape[0] *= view.shape[i];
  for (int i = tokens; i < view.rank(); ++i) {
    flat.shape.push_back(view.shape[i]);
    flat.strides.push_back(view.strides[i]);
  }
  return flat;
}

/// Elements up to `most` that every row of the view is aligned to.
int64_t common_vector(const TensorView& view, int64_t most) {
  int64_t vector = std::gcd(
      most, static_cast<int64_t>(reinterpret_cast<uintptr_t>(view.data)) / bytes(view.dtype));
  for (int i = 0; i + 1 < view.rank(); ++i) {
    if (view.shape[i] > 1) vector = std::gcd(vector, view.strides[i]);
  }
  return vector;
}

Spec spec_of(const ArgCheck& check, const Tensors& tensors, bool save) {
  int64_t vector = 8;
  for (const char* name : {"hidden_states", "k", "v", "out"}) {
    const auto found = tensors.find(name);
    if (found != tensors.end()) vector = std::gcd(vector, common_vector(found->second, vector));
  }
  Spec s;
  s.streams = static_cast<int32_t>(check["hc"]);
  s.hidden = static_cast<int32_t>(check["D"]);
  s.vector = static_cast<uint8_t>(vector);
  s.weight_vector = static_cast<uint8_t>(common_vector(tensors.at("weight_fused"), 4));
  s.save = save;
  return s;
}

bool saves(const Params& params) {
  return std::get<bool>(params.at("save_for_backward"));
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check(kOp);
  const mhc::TokenDims tokens = check_input(check, inputs);
  const TensorView& x = inputs.at("hidden_states");
  std::vector<OutputInfo> result = {row_major_output("out", DType::bf16, x.shape)};
  const Dims scores = tokens.output(x, {check["hc"]});
  for (const char* name : kSaved) {
    if (saves(params)) {
      result.push_back(row_major_output(name, DType::f32, scores));
    }
  }
  return result;
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check(kOp);
  const mhc::TokenDims tokens = check_input(check, tensors);
  check.output("out", tensors).dtype(DType::bf16).same_shape("hidden_states").row_major();
  for (const char* name : kSaved) {
    if (!saves(params)) break;
    check.output(name, tensors).dtype(DType::f32).shape_of(tokens.shape({"hc"})).row_major();
  }
  check.memory();
  const TensorView x = tokens.flat(tensors.at("hidden_states"));
  if (x.size() == 0) return;
  const Spec spec = spec_of(check, tensors, saves(params));
  std::vector<TensorView> arguments = {x, flat_rows(check, "k", tensors.at("k"), 2),
                                       flat_rows(check, "v", tensors.at("v"), 1),
                                       tensors.at("weight_fused"), tokens.flat(tensors.at("out"))};
  for (const char* name : kSaved) {
    if (spec.save) arguments.push_back(tokens.flat(tensors.at(name)));
  }
  // Enough blocks for every SM first, then fewer reads of the weights.
  const int64_t tokens_per_block = std::clamp<int64_t>(x.shape[0] * spec.streams / 2048, 1, 8);
  const int64_t scalars[] = {jit::scalar_bits(params, "eps"),
                             jit::scalar_bits(params, "clamp_value"), tokens_per_block};
  jit::run(kOp, spec, build, arguments, scalars, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check(kOp);
  check_input(check, tensors);
  if (tensors.at("hidden_states").size() == 0) return {};
  return {build(spec_of(check, tensors, saves(params)))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t streams, int64_t hidden, bool save) {
  const int64_t token = streams * hidden;
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " hc=" + std::to_string(streams) +
            " D=" + std::to_string(hidden) + (save ? " saving" : "");
  c.params = {{"eps", 1e-20}, {"save_for_backward", save}};
  c.inputs = {{"hidden_states", DType::bf16, {tokens, streams, hidden}, {token, hidden, 1}},
              {"k", DType::bf16, {tokens, streams, hidden}, {token, hidden, 1}},
              {"v", DType::bf16, {tokens, hidden}},
              {"weight_fused", DType::f32, {streams, hidden}}};
  c.bytes = tokens * hidden * (6 * streams + 2) + 4 * streams * hidden +
            (save ? 16 * tokens * streams : 0);
  return c;
}

OpInfo op_info() {
  using Type = ParamInfo::Type;
  OpInfo op;
  op.name = kOp;
  op.family = "engram";
  op.purpose = "residual streams plus the value row, weighted by the gate of each stream";
  op.tensors = {
      input("hidden_states", {"bf16"}, {"T", "hc", "D"}),
      input("k", {"bf16"}, {"T", "hc", "D"}, "rows"), input("v", {"bf16"}, {"T", "D"}, "rows"),
      input("weight_fused", {"f32"}, {"hc", "D"}), output("out", {"bf16"}, {"T", "hc", "D"})};
  for (const char* name : kSaved) {
    op.tensors.push_back(optional(output(name, {"f32"}, {"T", "hc"})));
  }
  op.params = {{"eps", Type::floating, {}, {}, {}, ""},
               {"clamp_value", Type::floating, ParamValue(1e-6), {}, {}, ""},
               {"save_for_backward", Type::boolean, ParamValue(true), {}, {}, ""}};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = {bench_case(5, 4, 7168, true), bench_case(9, 4, 4096, false),
                 bench_case(3, 2, 512, true), bench_case(2, 1, 3328, false)};
  op.bench = {bench_case(8001, 4, 7168, true), bench_case(8001, 4, 7168, false),
              bench_case(4001, 4, 4096, true), bench_case(128, 4, 7168, false),
              bench_case(1, 4, 7168, false)};
  return op;
}

}  // namespace

void engram_gate_fwd(const EngramGateTensors& tensors, const EngramGateFwdOptions& options,
                     Stream stream) {
  jit::call("engram_gate_fwd",
            {{"hidden_states", tensors.hidden_states},
             {"k", tensors.k},
             {"v", tensors.v},
             {"weight_fused", tensors.weight_fused},
             {"out", tensors.out},
             {"dot", tensors.dot},
             {"gate_score", tensors.gate_score},
             {"rstd_x", tensors.rstd_x},
             {"rstd_k", tensors.rstd_k}},
            {options.eps, options.clamp_value}, stream, [&](const Tensors& given) {
              const bool save = std::any_of(std::begin(kSaved), std::end(kSaved),
                                            [&](const char* name) { return given.contains(name); });
              run(given,
                  {{"eps", options.eps},
                   {"clamp_value", options.clamp_value},
                   {"save_for_backward", save}},
                  stream);
            });
}

const OpInfo& engram_gate_fwd_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
