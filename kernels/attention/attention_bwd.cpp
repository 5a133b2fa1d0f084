// attention_bwd: gradients of attention_fwd.
//
// Dtypes   q, k, v, out and all their gradients bf16|f16; lse, sinks and their gradients f32
// Method   see bwd_kernel.cpp and bwd_rows.cpp: sums of rows, then grad_k and grad_v by keys, then grad_q by rows; the
//          heads that share one of keys are added in order
// Maths    p = exp2(fma(score, c, -a)) with a of lse; p and ds are rounded to the dtype of q for the products, 16 of k
//          per instruction, rows and keys ascending; grad_q in parts of 128 keys (64 for heads over 128). Nothing is added
//          in an open order: two calls give equal bits, and a request those that it has alone.

#include <algorithm>
#include <string>
#include <string_view>

#include "kernels/attention/parts/bwd_kernel.h"
#include "kernels/attention/parts/forward_call.h"
#include "kernels/attention/parts/fwd_values.h"
#include "kernels/attention/parts/signature_parts.h"
#include "kernels/jit/target.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

using attention::BackwardSpec;

constexpr int64_t kWidest = 8;  // elements of 16 bytes
/// A tensor in the workspace begins at a multiple of so many elements of f32.
constexpr int64_t kWorkAlign = 64;

int64_t aligned(int64_t elements) {
  return (elements + kWorkAlign - 1) / kWorkAlign * kWorkAlign;
}
int64_t elements_of_rows(const Call& c) {
  return aligned((c.has("sink") ? 4 : 2) * c["B"] * c["h"] * c["Sq"]);
}
/// grad_k or grad_v of each head of q, if several share one of k.
int64_t elements_of_heads(const Call& c, int64_t width) {
  return c["h"] > c["g"] ? aligned(c["B"] * c["Sk"] * c["h"] * width) : 0;
}
int64_t elements(const Call& c) {
  return elements_of_rows(c) + elements_of_heads(c, c["dk"]) + elements_of_heads(c, c["dv"]);
}

struct ZeroSpec {
  int32_t width, is_f16;
};

ir::Kernel build_zeros(const ZeroSpec& s) {
  using namespace dsl;
  Builder k("attention_bwd_zeros");
  auto rows = k.dim("rows");
  const DType dtype = s.is_f16 != 0 ? DType::f16 : DType::bf16;
  auto out = k.output("out", dtype, {rows, s.width}, {.align = 2});
  constexpr int kRowsOfBlock = 16;
  auto at = k.launch({ceil_div(rows, kRowsOfBlock)}, {.threads = 128});
  k.fill(out.tile({at.x * kRowsOfBlock, 0}, {kRowsOfBlock, s.width}), cast(dtype, 0.0f));
  return k.finish();
}

/// Without queries or without keys all gradients are zeros.
void add_zeros(const Call& c, Launches& go) {
  const int32_t is_f16 = c.dtype("q") == DType::f16 ? 1 : 0;
  for (const char* name : {"grad_q", "grad_k", "grad_v"}) {
    const TensorView& view = c.given(name);
    const int64_t width = view.shape[3];
    if (view.size() == 0) continue;
    go.add(build_zeros, ZeroSpec{static_cast<int32_t>(width), is_f16},
           {.tensors = {{"out", reshaped(view, {view.size() / width, width})}}}, "zeros");
  }
}

BackwardSpec spec_of(const Call& c) {
  BackwardSpec s{};
  s.width = c.i32("dk"), s.value_width = c.i32("dv");
  s.is_f16 = c.dtype("q") == DType::f16 ? 1 : 0;
  const auto vector_of = [&](const char* name) {
    return static_cast<int32_t>(common_vector(attention::packed(c.given(name)), kWidest));
  };
  s.q_vector = vector_of("q"), s.k_vector = vector_of("k"), s.v_vector = vector_of("v");
  s.grad_vector = vector_of("grad_out"), s.o_vector = vector_of("out");
  const int64_t most = c["Sk"] + c["Sq"];
  const int64_t left = c["window_left"], right = c.flag("causal") ? 0 : c["window_right"];
  s.has_left = left >= 0 && left < most ? 1 : 0;
  s.has_right = right >= 0 && right < most ? 1 : 0;
  s.has_softcap = c.number("softcap") > 0 ? 1 : 0;
  s.has_sink = c.has("sink") ? 1 : 0;
  s.has_q_lengths = c.has("q_lengths") ? 1 : 0;
  s.has_k_lengths = c.has("k_lengths") ? 1 : 0;
  s.has_grad_lse = c.has("grad_lse") ? 1 : 0;
  s.has_group = c["h"] > c["g"] ? 1 : 0;
  s.tile = s.width < 128 ? 64 : 32;  // wider sums of 64 rows spill
  if (s.shared_bytes() > jit::shared_memory_limit(c.device())) s.tile = 32;
  return s;
}

void launches(const Call& c, Launches& go) {
  if (c["Sq"] == 0 || c["Sk"] == 0) return add_zeros(c, go);
  const BackwardSpec s = spec_of(c);
  const double softcap = c.number("softcap");
  int64_t begin = 0;  // in the workspace
  const auto work = [&](const Dims& shape, int64_t size) {
    // As an integer: a dry call has a workspace without memory.
    const auto address = reinterpret_cast<uintptr_t>(c.given("workspace").data);
    void* data = reinterpret_cast<void*>(address + static_cast<uintptr_t>(begin) * sizeof(float));
    begin += size;
    return TensorView{data, DType::f32, shape, c.device()};
  };
  const TensorView rows =
      work({c.has("sink") ? 4 : 2, c["B"], c["h"], c["Sq"]}, elements_of_rows(c));
  Args args{.tensors = {{"rows", rows}},
            .scalars = {{"c", attention::factor_of(c)},
                        {"cap", softcap > 0 ? attention::scale_of(c) / softcap : 0.0},
                        {"scale", attention::scale_of(c)},
                        {"left", c["window_left"]},
                        {"right", c.flag("causal") ? 0 : c["window_right"]}}};
  for (const char* name : {"grad_out", "q", "k", "v", "out"}) {
    args.tensors.push_back({name, attention::packed(c.given(name))});
  }
  go.add(attention::build_backward_rows, s, args, "rows");
  go.add(attention::build_backward_queries, s, args, "queries");
  Args of_keys = args;
  if (s.has_group != 0) {
    for (const auto& [name, width] : {std::pair{"grad_k", c["dk"]}, std::pair{"grad_v", c["dv"]}}) {
      of_keys.tensors.push_back(
          {name, work({c["B"], c["Sk"], c["h"], width}, elements_of_heads(c, width))});
    }
  }
  go.add(attention::build_backward_keys, s, of_keys, "keys");
  if (s.has_group != 0) {
    const int64_t rows_of_keys = c["B"] * c["Sk"], group = c["h"] / c["g"];
    const size_t first = of_keys.tensors.size() - 2;
    for (size_t i = 0; i < 2; ++i) {
      const auto& [name, parts] = of_keys.tensors[first + i];
      const int64_t width = parts.shape[3];
      go.add(attention::build_backward_group,
             attention::GroupSpec{static_cast<int32_t>(width), s.is_f16},
             {.tensors = {{"parts", reshaped(parts, {rows_of_keys, c["g"], group, width})},
                          {"out", reshaped(c.given(name), {rows_of_keys, c["g"], width})}},
              .scalars = {{"scale", i == 0 ? attention::scale_of(c) : 1.0}}},
             "group");
    }
  }
  if (s.has_sink != 0) go.add(attention::build_backward_sink, attention::SinkSpec{}, args, "sink");
}

void require(const Call& c) {
  attention::require_widths(c, "v");
  attention::require_factors(c);
  const DType grad = c.dtype("grad_out"), q = c.dtype("q");
  c.need(grad == q, "grad_out", "argument 'grad_out' has the wrong dtype",
         std::string(name(q)) + ", as 'q'", std::string(name(grad)));
  c.need(!(c.has("grad_lse") && c.has("sink")), "grad_lse",
         "argument 'grad_lse' goes without 'sink'", "one of them", "both");
}

constexpr std::string_view kTensors = R"(
      grad_out           bf16/f16 [B, Sq, h, dv] rows  # as q
      q                  bf16/f16 [B, Sq, h, dk] rows
      k                  as q [B, Sk, g, dk] rows      # heads of q share those of k and v in groups of h / g
      v                  as q [B, Sk, g, dv] rows
      out                as q [B, Sq, h, dv] rows      # what attention_fwd gave
      lse                f32 [B, h, Sq]                # the same
      q_lengths?         i32 [B]                       values 0 .. Sq
      k_lengths?         i32 [B]                       values 0 .. Sk
      sink?              f32 [h]
      grad_lse?          f32 [B, h, Sq]                # of lse, without sink
      -> grad_q          as q [B, Sq, h, dk]
      -> grad_k          as q [B, Sk, g, dk]
      -> grad_v          as q [B, Sk, g, dv]
      -> acc grad_sink?  f32 [h]                       iff sink
      workspace          f32 [elements()]
    )";
constexpr std::string_view kLimits = R"(
      limit  Sq <= 536870912 on q "so many rows are not supported"
      limit  Sk <= 536870912 on k "so many rows are not supported"
      limit  B * h * ceil(Sq / 16) <= 2147483647 on q "so many rows are not supported"
      limit  B * h * ceil(Sk / 32) <= 2147483647 on k "so many rows are not supported"
      limit  B * Sk * g <= 2130706431 on k "so many rows are not supported"
    )";

}  // namespace

const Op attention_bwd_op{
    .name = "attention_bwd",
    .family = "attention",
    .purpose = "gradients of attention_fwd",
    .signature =
        attention::kJoined<kTensors, attention::kMaskParams, attention::kMaskNeeds, kLimits>,
    .launches = launches,
    .check = require,
    .functions = {{"elements", elements}},
    .examples = R"(
      B=2 Sq=70 Sk=150 h=4 g=2 dk=64 dv=64 q=bf16 grad_out=bf16 causal=true
      B=1 Sq=130 Sk=130 h=2 g=2 dk=128 dv=128 q=bf16 grad_out=bf16
      B=1 Sq=65 Sk=200 h=2 g=2 dk=96 dv=96 q=f16 grad_out=f16 sink=given softcap=8
      B=2 Sq=40 Sk=140 h=2 g=1 dk=192 dv=128 q=bf16 grad_out=bf16 k_lengths=given q_lengths=given
      B=1 Sq=20 Sk=80 h=2 g=2 dk=256 dv=256 q=bf16 grad_out=bf16 window_left=17 window_right=5 grad_lse=given)",
    .bench = R"(
      B=4 Sq=4096 Sk=4096 h=48 g=48 dk=128 dv=128 q=bf16 grad_out=bf16
      B=4 Sq=4096 Sk=4096 h=48 g=48 dk=128 dv=128 q=bf16 grad_out=bf16 causal=true)",
    .values = {
        {"q_lengths", [](const Case& c, int64_t b) { return c["Sq"] - b * 7 % (c["Sq"] + 1); }},
        {"k_lengths", [](const Case& c, int64_t b) { return c["Sk"] - b * 9 % (c["Sk"] + 1); }}}};

}  // namespace tessera::kernels
