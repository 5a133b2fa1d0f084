#include "kernels/mhc/parts/part_sum.h"

namespace tessera::kernels::mhc {

PartSum::PartSum(const ProjectionShape& shape, int32_t workspace_align)
    : entries(static_cast<int32_t>(shape.entries)), align(workspace_align) {
  const ProjectionParts p(shape);
  parts = static_cast<int32_t>(p.parts);
  parts_per_run = static_cast<int32_t>(p.parts_per_run);
  halves = static_cast<int32_t>(p.halves);
}

SummedParts::SummedParts(dsl::Builder& k, const PartSum& sum, const dsl::Ref& products,
                         const dsl::Ref& squares, const dsl::Value& first_token, int64_t rows,
                         const FewProducts& few)
    : k_(k),
      sum_(sum),
      products_(k.shared(DType::f32, {sum.stored(), rows * sum.entries}, "products_sum")),
      squares_(k.shared(DType::f32, {rows, sum.stored()}, "squares_sum")) {
  const auto squares_copied =
      k.copy_async(squares.tile({first_token, 0}, {rows, sum.stored()}), squares_);
  // Loads for the last time: the projection asked L2 to keep the products.
  const auto fetch = [&](int64_t first, int64_t count) {
    const auto values = k.fragment(DType::f32, {sum.stored(), count}, "values");
    const auto from = products.tile({0, first_token * sum.entries + first}, {sum.stored(), count});
    k.copy(from.cached(dsl::CacheHint::evict_first), values);
    return [&k, values, to = products_.tile({0, first}, {sum.stored(), count})] {
      k.copy(values, to);
    };
  };
  const bool has_few = few.entries > 0 && rows == 1;
  const auto store = fetch(0, has_few ? few.entries : rows * sum.entries);
  if (has_few) k.if_(few.all, [&] { fetch(few.entries, sum.entries - few.entries)(); });
  store();
  k.wait(squares_copied);
}

dsl::Value SummedParts::add_runs(
    const std::function<dsl::Value(const dsl::Value& stored)>& of_stored) const {
  using namespace dsl;
  auto total = k_.var(DType::f32, 0.0f, "total");
  const auto add_run = [&](const Value& first, int64_t parts) {
    auto run_total = k_.var(DType::f32, 0.0f, "run_total");
    k_.unrolled(parts, [&](Value part) {
      auto stored = (first + part) * sum_.halves;
      Value value = of_stored(stored);
      if (sum_.halves == 2) value = value + of_stored(stored + 1);
      run_total += value;
    });
    total += run_total;
  };
  const int64_t runs = sum_.parts / sum_.parts_per_run, rest = sum_.parts % sum_.parts_per_run;
  k_.unrolled(runs, [&](Value run) { add_run(run * sum_.parts_per_run, sum_.parts_per_run); });
  if (rest > 0) add_run(i32(sum_.parts - rest), rest);
  return total;
}

dsl::Value SummedParts::product(const dsl::Value& row, const dsl::Value& entry) const {
  return add_runs(
      [&](const dsl::Value& stored) { return products_(stored, row * sum_.entries + entry); });
}

dsl::Value SummedParts::square(const dsl::Value& row) const {
  return add_runs([&](const dsl::Value& stored) { return squares_(row, stored); });
}

}  // namespace tessera::kernels::mhc
