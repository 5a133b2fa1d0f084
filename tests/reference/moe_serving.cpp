#include "tests/reference/moe_serving.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/reference/gemm.h"
#include "tests/reference/mxfp4.h"
#include "tests/reference/numeric.h"
#include "tests/reference/swiglu.h"
#include "tests/reference/swiglu_rows.h"

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;

template <class T>
T param(const Params& params, const std::string& name, T fallback) {
  const auto found = params.find(name);
  const bool is_none =
      found == params.end() || std::holds_alternative<std::monostate>(found->second);
  return is_none ? fallback : std::get<T>(found->second);
}

int64_t rounded_up(int64_t size, int64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

int64_t signed_bits(const HostTensor& tensor, int64_t i) {
  const uint64_t bits = tensor.bits(i);
  return tensor.dtype() == DType::i32 ? static_cast<int32_t>(bits) : static_cast<int64_t>(bits);
}

HostTensor filled(DType dtype, Dims shape, double value) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.set_value(i, value);
  return tensor;
}

/// Those before num_tokens, if it is given.
int64_t tokens_that_count(const HostTensors& in, int64_t tokens) {
  const auto limit = in.find("num_tokens");
  if (limit == in.end()) return tokens;
  return std::clamp<int64_t>(signed_bits(limit->second, 0), 0, tokens);
}

/// Any ids fit: all experts that can have a pair waste all that the alignment lets them waste.
int64_t most_rows(int64_t pairs, int64_t experts, int64_t alignment) {
  const int64_t rows = pairs + (alignment - 1) * std::min(pairs, experts);
  return rows - rows % alignment;
}

/// The scale of a row and group of a cast, with its exponent.
Scale scale_at(const CastResult& cast, const CastOptions& o, int64_t row, int64_t group) {
  Scale scale;
  scale.sf = load_scale(cast.out_sf, o.sf_layout, row, group);
  int exponent = 0;
  if (o.round_sf) std::frexp(scale.sf, &exponent);
  scale.exponent = static_cast<uint8_t>(exponent + 126);
  return scale;
}

/// Sets the words of a row of scales.
void set_row(HostTensor& scales, int64_t row, uint32_t word) {
  const int64_t words = scales.shape()[1];
  for (int64_t i = 0; i < words; ++i) scales.set_bits(row * words + i, word);
}

CastOptions cast_options(const Params& params, int64_t group, bool round_sf, const char* layout) {
  CastOptions o;
  o.num_per_channels = param<int64_t>(params, "num_per_channels", group);
  o.round_sf = param<bool>(params, "round_sf", round_sf);
  o.sf_layout = sf_layout_of(param<std::string>(params, "sf_layout", layout));
  return o;
}

}  // namespace

HostTensors moe_gather_cast(const HostTensor& x, const HostTensor& pos_to_pair,
                            const GatherCastOptions& o) {
  const int64_t rows = pos_to_pair.size(), tokens = x.shape()[0], hidden = x.shape()[1];
  const int64_t groups = (hidden + o.cast.num_per_channels - 1) / o.cast.num_per_channels;
  const CastResult cast = per_token_cast(x, nullptr, o.cast);
  HostTensor out(DType::e4m3, {rows, hidden});
  HostTensor out_sf = make_scales(o.cast.sf_layout, rows, groups);
  for (int64_t p = 0; p < rows; ++p) {
    const int64_t pair = signed_bits(pos_to_pair, p), token = pair < 0 ? -1 : pair / o.num_topk;
    const bool exists = token >= 0 && token < tokens;
    if (!exists && !o.fills_padding) {
      set_row(out_sf, p, 0x7B7B7B7B);  // as bytes that nobody sets
      continue;
    }
    for (int64_t h = 0; h < hidden; ++h) {
      out.set_bits(p * hidden + h, exists ? cast.out.bits(token * hidden + h) : 0);
    }
    for (int64_t g = 0; g < groups && exists; ++g) {
      store_scale(out_sf, o.cast.sf_layout, p, g, scale_at(cast, o.cast, token, g));
    }
  }
  return {{"out", out}, {"out_sf", out_sf}};
}

HostTensors swiglu_psum_cast(const HostTensors& in, const PsumCastOptions& o) {
  const HostTensor& x = in.at("x");
  const int64_t rows = x.shape()[0], hidden = x.shape()[1] / 2;
  const auto weights = in.find("topk_weights");
  const std::vector<int64_t> experts = groups_by_ends(in.at("psum"), o.alignment, rows);
  HostTensor values = filled(DType::f32, {rows, hidden}, 0);
  for (int64_t i = 0; i < rows * hidden; ++i) {
    const int64_t row = i / hidden, gate = row * 2 * hidden + i % hidden;
    if (experts[static_cast<size_t>(row)] < 0) continue;
    std::optional<float> weight;
    if (weights != in.end()) weight = static_cast<float>(weights->second.value(row));
    const float value = swiglu(static_cast<float>(x.value(gate)),
                               static_cast<float>(x.value(gate + hidden)), o.clamp, weight);
    values.set_value(i, static_cast<double>(value));
  }
  CastResult cast = per_token_cast(values, nullptr, o.cast);
  for (int64_t row = 0; row < rows; ++row) {
    if (experts[static_cast<size_t>(row)] >= 0) continue;
    set_row(cast.out_sf, row, 0);
  }
  return {{"out", cast.out}, {"out_sf", cast.out_sf}};
}

HostTensor combine_reduce(const HostTensors& in) {
  const HostTensor &x = in.at("x"), &pos = in.at("pos");
  const int64_t rows = x.shape()[0], hidden = x.shape()[1], topk = pos.shape()[1];
  const auto weights = in.find("topk_weights"), base = in.find("base");
  HostTensor out = filled(DType::bf16, {pos.shape()[0], hidden}, 0);
  const int64_t tokens = tokens_that_count(in, pos.shape()[0]);
  for (int64_t i = 0; i < tokens * hidden; ++i) {
    float sum = base == in.end() ? 0 : static_cast<float>(base->second.value(i));
    for (int64_t slot = i / hidden * topk; slot < (i / hidden + 1) * topk; ++slot) {
      const int64_t row = signed_bits(pos, slot);
      if (row < 0 || row >= rows) continue;
      const auto term = static_cast<float>(x.value(row * hidden + i % hidden));
      sum = weights == in.end()
                ? sum + term
                : std::fma(term, static_cast<float>(weights->second.value(slot)), sum);
    }
    out.set_bits(i, encode(DType::bf16, static_cast<double>(sum)));
  }
  return out;
}

HostTensors moe_plan(const HostTensors& in, const PlanOptions& o) {
  const HostTensor& ids = in.at("topk_idx");
  const int64_t tokens = ids.shape()[0], topk = ids.shape()[1], pairs = tokens * topk;
  const int64_t counting = tokens_that_count(in, tokens);
  const int64_t rows = o.num_rows > 0 ? o.num_rows : most_rows(pairs, o.num_experts, o.alignment);
  const auto weights = in.find("topk_weights");
  HostTensor to_pair = filled(DType::i32, {rows}, -1), experts = filled(DType::i32, {rows}, -1);
  HostTensor to_row = filled(DType::i32, {tokens, topk}, -1);
  HostTensor row_weights = filled(DType::f32, {rows}, 0);
  HostTensor psum(DType::i32, {o.num_experts}), counts(DType::i32, {o.num_experts});
  int64_t end = 0;
  for (int64_t e = 0; e < o.num_experts; ++e) {
    const int64_t start = rounded_up(end, o.alignment);
    int64_t row = start;
    for (int64_t pair = 0; pair < counting * topk; ++pair) {
      if (signed_bits(ids, pair) != e) continue;
      if (row < rows) {
        to_row.set_value(pair, static_cast<double>(row));
        to_pair.set_value(row, static_cast<double>(pair));
        experts.set_value(row, static_cast<double>(e));
        if (weights != in.end()) row_weights.set_bits(row, weights->second.bits(pair));
      }
      ++row;
    }
    counts.set_value(e, static_cast<double>(row - start));
    psum.set_value(e, static_cast<double>(row));
    end = row;
  }
  HostTensors out = {
      {"pos_to_pair", to_pair}, {"pair_to_pos", to_row}, {"psum", psum}, {"counts", counts}};
  if (weights != in.end()) out["row_weights"] = row_weights;
  if (o.saves_m_indices) out["m_indices"] = experts;
  return out;
}

namespace {

/// The rows of `left` times the weights of their groups, rounded to bf16. `left` has out and, if they are e4m3, out_sf.
HostTensor by_weights(const HostTensors& left, const HostTensors& in, const std::string& weights,
                      int64_t columns, const HostTensor& psum, int64_t group) {
  const HostTensor &a = left.at("out"), &b = in.at(weights), &b_sf = in.at(weights + "_sf");
  const int64_t rows = a.shape()[0];
  if (b.dtype() == DType::e4m3) {
    return gemm_fp8_grouped({a, left.at("out_sf"), b, b_sf}, groups_by_ends(psum, 1, rows),
                            HostTensor(DType::bf16, {rows, columns}));
  }
  HostTensors product = {{"a", a},       {"b", b},
                         {"b_sf", b_sf}, {"b_shift", in.at(weights + "_shift")},
                         {"psum", psum}, {"out", HostTensor(DType::bf16, {rows, columns})}};
  if (left.contains("out_sf")) product["a_sf"] = left.at("out_sf");
  const Params params = {{"alignment", int64_t{1}}, {"num_per_channels", group}};
  return mxfp4_runner("gemm_mxfp4_grouped")(product, params).at("out");
}

/// Row pos_to_pair[p] / num_topk of x at row p.
HostTensor gathered(const HostTensor& x, const HostTensor& pos_to_pair, int64_t num_topk) {
  const int64_t hidden = x.shape()[1];
  HostTensor out(x.dtype(), {pos_to_pair.size(), hidden});
  out.fill_bytes(std::byte{0});
  for (int64_t row = 0; row < pos_to_pair.size(); ++row) {
    const int64_t pair = signed_bits(pos_to_pair, row);
    if (pair < 0) continue;
    for (int64_t h = 0; h < hidden; ++h) {
      out.set_bits(row * hidden + h, x.bits(pair / num_topk * hidden + h));
    }
  }
  return out;
}

}  // namespace

HostTensor moe_forward(const HostTensors& in, const ForwardOptions& o) {
  const HostTensor &x = in.at("x"), &w13_sf = in.at("w13_sf");
  const int64_t hidden = x.shape()[1], topk = in.at("topk_idx").shape()[1];
  const bool is_packed = in.at("w13").dtype() == DType::u8;
  const int64_t inner = (is_packed ? w13_sf : in.at("w13")).shape()[1] / 2;
  HostTensors routing = {{"topk_idx", in.at("topk_idx")}, {"topk_weights", in.at("topk_weights")}};
  if (in.contains("num_tokens")) routing["num_tokens"] = in.at("num_tokens");
  const HostTensors plan = moe_plan(routing, {.num_experts = in.at("w13").shape()[0]});
  const HostTensor& psum = plan.at("psum");
  GatherCastOptions gather;
  gather.num_topk = topk;
  gather.cast.round_sf = o.round_sf;
  gather.cast.num_per_channels = o.group;
  const HostTensors a = o.is_bf16 ? HostTensors{{"out", gathered(x, plan.at("pos_to_pair"), topk)}}
                                  : moe_gather_cast(x, plan.at("pos_to_pair"), gather);
  HostTensors act = {{"psum", psum}};
  act["x"] = by_weights(a, in, "w13", 2 * inner, psum, o.group);
  if (!o.weighs_sums) act["topk_weights"] = plan.at("row_weights");
  SwigluRowsOptions of_rows;
  of_rows.clamp = o.clamp;
  of_rows.alignment = 1;
  PsumCastOptions of_cast;
  of_cast.clamp = o.clamp.value_or(std::numeric_limits<float>::infinity());
  of_cast.alignment = 1;
  of_cast.cast = gather.cast;
  const HostTensors gated = o.is_bf16 ? swiglu_fwd(act, of_rows) : swiglu_psum_cast(act, of_cast);
  HostTensors sums = {{"pos", plan.at("pair_to_pos")}};
  sums["x"] = by_weights(gated, in, "w2", hidden, psum, o.group);
  if (o.weighs_sums) sums["topk_weights"] = in.at("topk_weights");
  for (const char* name : {"base", "num_tokens"}) {
    if (in.contains(name)) sums[name] = in.at(name);
  }
  return combine_reduce(sums);
}

Runner moe_serving_runner(const std::string& op) {
  if (op == "moe_plan") {
    return [](const HostTensors& in, const Params& params) {
      PlanOptions o;
      o.num_experts = param<int64_t>(params, "num_experts", 1);
      o.alignment = param<int64_t>(params, "alignment", 1);
      o.num_rows = param<int64_t>(params, "num_rows", 0);
      o.saves_m_indices = param<bool>(params, "save_m_indices", false);
      return moe_plan(in, o);
    };
  }
  if (op == "moe_gather_cast") {
    return [](const HostTensors& in, const Params& params) {
      GatherCastOptions o;
      o.num_topk = param<int64_t>(params, "num_topk", 1);
      o.cast = cast_options(params, 128, false, "row_major");
      o.fills_padding = param<bool>(params, "fill_padding", true);
      return moe_gather_cast(in.at("x"), in.at("pos_to_pair"), o);
    };
  }
  if (op == "swiglu_psum_cast") {
    return [](const HostTensors& in, const Params& params) {
      PsumCastOptions o;
      o.cast = cast_options(params, 32, true, "packed_ue8m0");
      o.alignment = param<int64_t>(params, "alignment", 128);
      o.clamp = static_cast<float>(param<double>(params, "swiglu_clamp_value", 10));
      return swiglu_psum_cast(in, o);
    };
  }
  if (op == "moe_forward") {
    return [](const HostTensors& in, const Params& params) {
      ForwardOptions o{};
      const double none = std::numeric_limits<double>::infinity();
      const double clamp = param<double>(params, "swiglu_clamp_value", none);
      if (clamp != none) o.clamp = static_cast<float>(clamp);
      o.is_bf16 = param<std::string>(params, "activation", "e4m3") == "bf16";
      o.group = param<int64_t>(params, "num_per_channels", 128);
      o.round_sf = param<bool>(params, "round_sf", false);
      o.weighs_sums = param<std::string>(params, "weights_at", "l1") == "combine";
      return HostTensors{{"out", moe_forward(in, o)}};
    };
  }
  if (op == "combine_reduce") {
    return [](const HostTensors& in, const Params&) {
      return HostTensors{{"out", combine_reduce(in)}};
    };
  }
  return nullptr;
}

}  // namespace tessera::reference
