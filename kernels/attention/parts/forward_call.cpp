#include "kernels/attention/parts/forward_call.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "dsl/builder.h"
#include "kernels/attention/parts/fwd_kernel.h"
#include "kernels/attention/parts/fwd_values.h"
#include "kernels/jit/target.h"
#include "kernels/jit/tune.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels::attention {
namespace {

constexpr int64_t kWidest = 8;                  // elements of 16 bytes
constexpr int64_t kElement = 2;                 // bytes
constexpr int64_t kCached = int64_t{24} << 20;  // bytes of keys and values that stay in the cache
constexpr int64_t kRows = 128;                  // two groups of warps

/// By roles: a tile of q, and one ring of tiles and a tile of out, or two rings.
bool is_legal(const jit::TuneFacts& facts, const jit::TuneChoice& c) {
  const int64_t width = facts.spec.at("width"), value_width = facts.spec.at("value_width");
  const bool has_one_ring = width == value_width;
  const int64_t of_stage = facts.spec.at("keys") * (has_one_ring ? width : width + value_width);
  const int64_t ring = c[0] * of_stage, rest = (has_one_ring ? 2 : 1) * width * kRows;
  constexpr int64_t kLeast = int64_t{32} << 10;  // elements in flight
  constexpr int64_t kSmall = 3072;  // bytes of barriers and of the search for a request
  const bool has_grid = c[1] == 0 || facts.spec.at("packed") == 0;
  return has_grid && ring >= kLeast && (rest + ring) * kElement + kSmall <= facts.shared_memory;
}

/// A persistent grid wins where all tiles take about as long. On an H200, 4 x 16 heads of 128 with 4096 tokens, us: 878 in
/// place of 912; causal 545 in place of 503, but with heads of 64 669 in place of 789. Two stages 931, five 880.
jit::TuneChoice standard_choice(const jit::TuneFacts& facts) {
  const int64_t width = facts.spec.at("width");
  const bool is_even = facts.spec.at("right") == 0 || width == 64;
  return {width == 64 ? 8 : width == 128 ? 4 : 2, is_even && facts.spec.at("packed") == 0 ? 1 : 0};
}

const jit::TuneSpace& tune_space() {
  static const auto* const made =
      new jit::TuneSpace{.fields = {{"stages", {2, 4, 5, 8}}, {"persistent", {0, 1}}},
                         .standard = standard_choice,
                         .is_legal = is_legal};
  return *made;
}

/// By roles where the tensor cores take groups of four warps.
ForwardTile pick_tile(const Call& c, const ForwardSpec& s) {
  const bool is_aligned = s.q_vector == kWidest && s.k_vector == kWidest && s.v_vector == kWidest &&
                          s.out_vector == kWidest;
  if (s.width != 96 && is_aligned && jit::has_wgmma(c.device())) {
    const jit::TuneChoice t = jit::choose(c.op().name, tune_space(),
                                          {.spec = {{"width", s.width},
                                                    {"value_width", s.value_width},
                                                    {"keys", s.keys()},
                                                    {"left", s.has_left},
                                                    {"right", s.has_right},
                                                    {"packed", s.is_packed}}},
                                          c.device());
    return {kRows, static_cast<int32_t>(t[0]), 1, static_cast<int32_t>(t[1])};
  }
  const int64_t elements = 64 * s.width + s.keys() * (s.width + s.value_width);
  return {64, elements * kElement <= jit::shared_memory_limit(c.device()) ? 1 : 0, 0};
}

int32_t vector_of(const TensorView& view) {
  return static_cast<int32_t>(common_vector(view, kWidest));
}

struct EmptySpec {
  int32_t width, dtype, has_maxima;
};

ir::Kernel build_empty(const EmptySpec& s) {
  using namespace dsl;
  Builder k("attention_empty");
  auto rows = k.dim("rows");
  const auto dtype = static_cast<DType>(s.dtype);
  auto out = k.output("out", dtype, {rows, s.width}, {.align = bytes(dtype)});
  auto lse = k.output("lse", DType::f32, {rows}, {.align = 4});
  std::optional<Ref> maxima;
  if (s.has_maxima != 0) maxima = k.output("maxima", DType::f32, {rows}, {.align = 4});
  constexpr int kRowsOfBlock = 16;
  auto at = k.launch({ceil_div(rows, kRowsOfBlock)}, {.threads = 128});
  k.fill(out.tile({at.x * kRowsOfBlock, 0}, {kRowsOfBlock, s.width}), cast(dtype, 0.0f));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  k.fill(lse.tile({at.x * kRowsOfBlock}, {kRowsOfBlock}), kInfinity);
  if (maxima) k.fill(maxima->tile({at.x * kRowsOfBlock}, {kRowsOfBlock}), -kInfinity);
  return k.finish();
}

}  // namespace

void add_forward(const Call& c, const ForwardTensors& t, Launches& go) {
  const int64_t queries = t.q.shape[1], keys = t.k.shape[1];
  if (keys == 0) return add_empty(c, go);
  const TensorView q = packed(t.q), k = packed(t.k), v = packed(t.v);
  ForwardSpec s{};
  s.width = c.i32("dk"), s.value_width = c.i32("dv");
  s.is_f16 = q.dtype == DType::f16 ? 1 : 0;
  s.q_vector = vector_of(q), s.k_vector = vector_of(k), s.v_vector = vector_of(v);
  s.out_vector = vector_of(t.out);
  const int64_t left = c["window_left"], right = c.flag("causal") ? 0 : c["window_right"];
  s.has_left = left >= 0 && left < keys + queries ? 1 : 0;
  s.has_right = right >= 0 && right < keys + queries ? 1 : 0;
  const double softcap = c.number("softcap");
  s.has_softcap = softcap > 0 ? 1 : 0;
  s.has_sink = c.has("sink") ? 1 : 0;
  s.is_packed = c.op().name == "attention_varlen_fwd" ? 1 : 0;
  s.has_q_lengths = s.is_packed == 0 && c.has("q_lengths") ? 1 : 0;
  s.has_k_lengths = s.is_packed == 0 && c.has("k_lengths") ? 1 : 0;
  s.tile = pick_tile(c, s);
  const int64_t of_head = keys * (s.width + s.value_width) * kElement;
  const int64_t section = std::clamp<int64_t>(kCached / of_head, 1, t.q.shape[0] * c["g"]);
  go.add(build_forward, s,
         {.tensors = {{"q", q}, {"k", k}, {"v", v}, {"out", t.out}, {"lse", t.lse}},
          .scalars = {{"c", factor_of(c)},
                      {"cap", softcap > 0 ? scale_of(c) / softcap : 0.0},
                      {"left", left},
                      {"right", right},
                      {"section", section * (c["h"] / c["g"])}}});
}

void add_empty(const Call& c, Launches& go) {
  add_empty_rows(c.given("out"), c.given("lse"), go);
}

void add_empty_rows(const TensorView& out, const TensorView& lse, Launches& go,
                    const TensorView* maxima) {
  const int64_t width = out.shape[out.rank() - 1], rows = lse.size();
  Args args{.tensors = {{"out", {out.data, out.dtype, {rows, width}, out.device}},
                        {"lse", {lse.data, lse.dtype, {rows}, lse.device}}}};
  if (maxima != nullptr) {
    args.tensors.push_back({"maxima", {maxima->data, maxima->dtype, {rows}, maxima->device}});
  }
  go.add(build_empty,
         EmptySpec{static_cast<int32_t>(width), static_cast<int32_t>(out.dtype),
                   maxima != nullptr ? 1 : 0},
         args, "empty");
}

TensorView one_request(const TensorView& view) {
  const auto extents = view.shape, strides = view.strides;
  if (view.rank() == 2) {
    return {view.data,
            view.dtype,
            {1, extents[0], extents[1]},
            {0, strides[0], strides[1]},
            view.device};
  }
  return {view.data,
          view.dtype,
          {1, extents[0], extents[1], extents[2]},
          {0, strides[0], strides[1], strides[2]},
          view.device};
}

TensorView packed(TensorView view) {
  for (int i = view.rank() - 2; i >= 0; --i) view.strides[i] = step(view, i);
  return view;
}

}  // namespace tessera::kernels::attention
