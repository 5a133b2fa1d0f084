#include "kernels/serving/gate/parts/logits_tile.h"

#include <algorithm>

namespace tessera::kernels::serving {
namespace {

using dsl::Ref;
using dsl::Value;

constexpr int64_t kStep = 32;   // columns that are copied at a time
constexpr int64_t kVector = 8;  // elements of a 16-byte vector
constexpr int64_t kBytesAhead = 88 * 1024, kFewest = 2, kMost = 4;  // of all stages; stages

}  // namespace

LogitsSpec logits_spec(const Call& c, int64_t rows, int64_t columns) {
  const int64_t of_stage = (rows + columns) * kStep * bytes(DType::bf16);
  LogitsSpec s{};
  s.x = gemm::operand_of(c.given("x"));
  s.w = gemm::operand_of(c.given("w"));
  s.x.by_column = s.w.by_column = 0;
  s.depth_multiple = gemm::multiple_of(c["H"], kVector);
  s.rows = static_cast<int32_t>(rows);
  s.columns = static_cast<int32_t>(columns);
  s.stages = static_cast<int32_t>(std::clamp(kBytesAhead / of_stage, kFewest, kMost));
  return s;
}

LogitsTile::LogitsTile(dsl::Builder& k, const LogitsSpec& s, const Value& tokens,
                       const Value& experts)
    : k_(k),
      s_(s),
      depth_(k.dim("depth", {.multiple_of = s.depth_multiple})),
      x_(k, "x", DType::bf16, s.x, tokens, depth_, s.rows, kStep),
      w_(k, "w", DType::bf16, s.w, experts, depth_, s.columns, kStep) {}

Value LogitsTile::chunks() const {
  return ceil_div(depth_, kLogitsChunk);
}

Ref LogitsTile::sum_of_chunk(const Value& token, const Value& expert, const Value& chunk) {
  constexpr int64_t kSteps = kLogitsChunk / kStep;
  auto x_tile = k_.shared(DType::bf16, x_.shape(), "x_tile");
  auto w_tile = k_.shared(DType::bf16, w_.shape(), "w_tile");
  auto part = k_.fragment(DType::f32, {s_.rows, s_.columns}, "part");
  k_.fill(part, 0.0f);
  auto first = k_.let("first_step", chunk * kSteps);
  auto steps = k_.let("steps", min(ceil_div(depth_, kStep) - first, kSteps));
  k_.pipelined(0, steps, s_.stages, [&](Value step) {
    k_.copy(x_.at(token, first + step), x_tile);
    k_.copy(w_.at(expert, first + step), w_tile);
    k_.gemm(x_.left(x_tile), w_.right(w_tile), part);
  });
  return part;
}

Ref LogitsTile::logits(const Value& token, const Value& expert,
                       const std::optional<Value>& is_wanted) {
  auto sum = k_.fragment(DType::f32, {s_.rows, s_.columns}, "sum");
  k_.fill(sum, 0.0f);
  auto wanted = is_wanted ? select(*is_wanted, chunks(), 0) : chunks();
  k_.serial(0, wanted, [&](Value chunk) {
    auto part = sum_of_chunk(token, expert, chunk);
    k_.parallel({s_.rows, s_.columns}, [&](Value r, Value c) {
      Value before = sum(r, c), more = part(r, c);
      sum(r, c) = select(chunk == 0, more, before + more);
    });
  });
  return sum;
}

}  // namespace tessera::kernels::serving
