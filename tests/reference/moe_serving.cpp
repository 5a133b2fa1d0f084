#include "tests/reference/moe_serving.h"

#include <algorithm>

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;

template <class T>
T param(const Params& params, const std::string& name, T fallback) {
  const auto found = params.find(name);
  return found == params.end() ? fallback : std::get<T>(found->second);
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

/// Any ids fit: all experts that can have a pair waste all that the alignment lets them waste.
int64_t most_rows(int64_t pairs, int64_t experts, int64_t alignment) {
  const int64_t rows = pairs + (alignment - 1) * std::min(pairs, experts);
  return rows - rows % alignment;
}

}  // namespace

HostTensors moe_plan(const HostTensors& in, const PlanOptions& o) {
  const HostTensor& ids = in.at("topk_idx");
  const int64_t tokens = ids.shape()[0], topk = ids.shape()[1], pairs = tokens * topk;
  const auto limit = in.find("num_tokens");
  const int64_t counting =
      limit == in.end() ? tokens : std::clamp<int64_t>(signed_bits(limit->second, 0), 0, tokens);
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
  return nullptr;
}

}  // namespace tessera::reference
