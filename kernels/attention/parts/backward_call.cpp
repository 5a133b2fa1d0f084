// From a call of attention_bwd or attention_varlen_bwd to its launches.

#include "kernels/attention/parts/backward_call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/attention/parts/bwd_kernel.h"
#include "kernels/attention/parts/forward_call.h"
#include "kernels/attention/parts/fwd_values.h"
#include "kernels/jit/target.h"
#include "kernels/views/alignment.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels::attention {
namespace {

constexpr int64_t kWidest = 8;  // elements of 16 bytes
/// A tensor in the workspace begins at a multiple of so many elements of f32.
constexpr int64_t kWorkAlign = 64;

int64_t aligned(int64_t elements) {
  return (elements + kWorkAlign - 1) / kWorkAlign * kWorkAlign;
}
bool is_packed(const Call& c) {
  return c.op().name == "attention_varlen_bwd";
}
/// Extents of the tensors, which have one request in a packed call.
struct Extents {
  explicit Extents(const Call& c)
      : requests(is_packed(c) ? 1 : c["B"]),
        queries(c[is_packed(c) ? "Tq" : "Sq"]),
        keys(c[is_packed(c) ? "Tk" : "Sk"]) {}
  int64_t requests, queries, keys;
};

int64_t elements_of_rows(const Call& c) {
  const Extents e(c);
  return aligned((c.has("sink") ? 4 : 2) * e.requests * c["h"] * e.queries);
}
/// grad_k or grad_v of each head of q, if several share one of k.
int64_t elements_of_heads(const Call& c, int64_t width) {
  const Extents e(c);
  return c["h"] > c["g"] ? aligned(e.requests * e.keys * c["h"] * width) : 0;
}
/// A tensor as the kernels take it.
TensorView given(const Call& c, const char* name) {
  return is_packed(c) ? one_request(c.given(name)) : c.given(name);
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
    const TensorView view = given(c, name);
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
    return static_cast<int32_t>(common_vector(packed(given(c, name)), kWidest));
  };
  s.q_vector = vector_of("q"), s.k_vector = vector_of("k"), s.v_vector = vector_of("v");
  s.grad_vector = vector_of("grad_out"), s.o_vector = vector_of("out");
  const Extents e(c);
  const int64_t most = e.keys + e.queries;
  const int64_t left = c["window_left"], right = c.flag("causal") ? 0 : c["window_right"];
  s.has_left = left >= 0 && left < most ? 1 : 0;
  s.has_right = right >= 0 && right < most ? 1 : 0;
  s.has_softcap = c.number("softcap") > 0 ? 1 : 0;
  s.has_sink = c.has("sink") ? 1 : 0;
  s.is_packed = is_packed(c) ? 1 : 0;
  s.has_q_lengths = s.is_packed == 0 && c.has("q_lengths") ? 1 : 0;
  s.has_k_lengths = s.is_packed == 0 && c.has("k_lengths") ? 1 : 0;
  s.has_grad_lse = c.has("grad_lse") ? 1 : 0;
  s.has_group = c["h"] > c["g"] ? 1 : 0;
  const bool is_aligned = s.q_vector == kWidest && s.k_vector == kWidest && s.v_vector == kWidest &&
                          s.grad_vector == kWidest;
  const bool has_form = s.width == s.value_width && (s.width == 64 || s.width == 128);
  s.by_roles = has_form && is_aligned && s.has_softcap == 0 && jit::has_wgmma(c.device()) ? 1 : 0;
  s.tile = s.width < 128 ? 64 : 32;  // wider sums of 64 rows spill
  if (s.shared_bytes() > jit::shared_memory_limit(c.device())) s.tile = 32;
  return s;
}

}  // namespace

int64_t backward_elements(const Call& c) {
  return elements_of_rows(c) + elements_of_heads(c, c["dk"]) + elements_of_heads(c, c["dv"]);
}

void add_backward(const Call& c, Launches& go) {
  const Extents e(c);
  if (e.queries == 0 || e.keys == 0) return add_zeros(c, go);
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
      work({c.has("sink") ? 4 : 2, e.requests, c["h"], e.queries}, elements_of_rows(c));
  Args args{.tensors = {{"rows", rows}},
            .scalars = {{"c", factor_of(c)},
                        {"cap", softcap > 0 ? scale_of(c) / softcap : 0.0},
                        {"scale", scale_of(c)},
                        {"left", c["window_left"]},
                        {"right", c.flag("causal") ? 0 : c["window_right"]}}};
  for (const char* name : {"grad_out", "q", "k", "v", "out"}) {
    args.tensors.push_back({name, packed(given(c, name))});
  }
  // Dense tensors, in a packed call as those of one request.
  for (const char* name : {"lse", "grad_lse", "grad_q", "grad_k", "grad_v"}) {
    const bool is_shared = s.has_group != 0 && (name == std::string_view("grad_k") ||
                                                name == std::string_view("grad_v"));
    if (c.has(name) && !is_shared) args.tensors.push_back({name, given(c, name)});
  }
  go.add(build_backward_rows, s, args, "rows");
  go.add(build_backward_queries, s, args, "queries");
  Args of_keys = args;
  if (s.has_group != 0) {
    for (const auto& [name, width] : {std::pair{"grad_k", c["dk"]}, std::pair{"grad_v", c["dv"]}}) {
      of_keys.tensors.push_back(
          {name, work({e.requests, e.keys, c["h"], width}, elements_of_heads(c, width))});
    }
  }
  go.add(build_backward_keys, s, of_keys, "keys");
  if (s.has_group != 0) {
    const int64_t rows_of_keys = e.requests * e.keys, group = c["h"] / c["g"];
    const size_t first = of_keys.tensors.size() - 2;
    for (size_t i = 0; i < 2; ++i) {
      const auto& [name, parts] = of_keys.tensors[first + i];
      const int64_t width = parts.shape[3];
      go.add(build_backward_group, GroupSpec{static_cast<int32_t>(width), s.is_f16},
             {.tensors = {{"parts", reshaped(parts, {rows_of_keys, c["g"], group, width})},
                          {"out", reshaped(given(c, name.c_str()), {rows_of_keys, c["g"], width})}},
              .scalars = {{"scale", i == 0 ? scale_of(c) : 1.0}}},
             "group");
    }
  }
  if (s.has_sink != 0) go.add(build_backward_sink, SinkSpec{s.is_packed}, args, "sink");
}

void require_backward(const Call& c) {
  require_widths(c, "v");
  require_factors(c);
  const DType grad = c.dtype("grad_out"), q = c.dtype("q");
  c.need(grad == q, "grad_out", "argument 'grad_out' has the wrong dtype",
         std::string(name(q)) + ", as 'q'", std::string(name(grad)));
  c.need(!(c.has("grad_lse") && c.has("sink")), "grad_lse",
         "argument 'grad_lse' goes without 'sink'", "one of them", "both");
}

}  // namespace tessera::kernels::attention
