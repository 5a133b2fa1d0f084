#include "kernels/gemm/parts/fp8_call.h"

#include <algorithm>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/gemm/parts/operand.h"
#include "kernels/jit/target.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels::gemm {
namespace {

constexpr Tile kPipelined = {64, 128, 128, 3, 0};  // 88 KiB of shared memory, two blocks per SM
constexpr int64_t kWidest = 16;                    // bytes of a vector
constexpr int64_t kFewRows = 64, kManyRows = 4096;

/// A matrix as a stack of one; a stack as it is.
TensorView as_stack(const TensorView& x) {
  if (x.rank() == 3) return x;
  const int64_t apart = x.shape[0] * step(x, 0);
  return TensorView(x.data, x.dtype, {1, x.shape[0], x.shape[1]}, {apart, step(x, 0), x.strides[1]},
                    x.device);
}
TensorView scales_as_stack(const TensorView& x) {
  if (x.rank() == 3) return x;
  return TensorView(x.data, x.dtype, {1, x.shape[0], x.shape[1]},
                    {x.size(), x.strides[0], x.strides[1]}, x.device);
}

int32_t vector_of(const TensorView& stack) {
  return static_cast<int32_t>(common_vector(stack, kWidest / bytes(stack.dtype)));
}

/// The matrices of rows that tiles divide, and the rows to expect in one.
struct Slabs {
  int64_t count, rows;
};
Slabs slabs_to_expect(const Call& c, Groups groups) {
  // Few rows of a group or many: two tiles for all numbers of tokens.
  if (groups == Groups::by_ends)
    return {c["G"], c["M"] / c["G"] <= kFewRows ? kFewRows : kManyRows};
  if (groups != Groups::masked) return {1, c["M"]};
  const int64_t expected = c.i32("expected_m");
  return {c["G"], expected > 0 ? std::min(expected, c["Mmax"]) : c["Mmax"]};
}

}  // namespace

void add_fp8(const Call& c, Launches& go, Groups groups) {
  if (groups != Groups::one && c["G"] == 0) return;  // no row has a group
  const TensorView a = as_stack(c.given("a")), b = as_stack(c.given("b"));
  const TensorView out = as_stack(c.given("out"));
  Fp8Spec s{};
  s.groups = groups;
  s.has_depth = c["K"] > 0 ? 1 : 0;
  s.is_f32 = out.dtype == DType::f32 ? 1 : 0;
  s.a_vector = s.has_depth != 0 ? vector_of(a) : 1;
  s.b_vector = s.has_depth != 0 ? vector_of(b) : 1;
  s.out_vector = vector_of(out);
  s.n_multiple = multiple_of(c["N"], kWidest / bytes(out.dtype));
  const bool is_aligned = s.a_vector == kWidest && s.b_vector == kWidest;
  const bool by_roles = s.has_depth != 0 && is_aligned && jit::has_wgmma(c.device());
  const Slabs slabs = slabs_to_expect(c, groups);
  s.tile = by_roles ? soonest(slabs.count, slabs.rows, c["N"], fp8_tiles(groups), kFp8Fixed)
                    : kPipelined;
  const bool by_engine = is_written_by_engine(s.tile, out, s.out_vector, c["K"]);
  s.by_engine = by_engine && (groups == Groups::one || groups == Groups::by_rows) ? 1 : 0;
  // Tensor copies know where a matrix ends; other copies take vectors that lie wholly inside.
  s.k_multiple = by_roles || s.has_depth == 0 ? 1 : multiple_of(c["K"], kWidest);
  go.add(build_fp8, s,
         {.tensors = {{"a", a},
                      {"a_sf", scales_as_stack(c.given("a_sf"))},
                      {"b", b},
                      {"b_sf", scales_as_stack(c.given("b_sf"))},
                      {"out", out}},
          .scalars = {{"groups", groups == Groups::one ? 1 : c.i32("G")}}});
}

Groups groups_of_rows(const Call& c) {
  if (c.has("psum")) return Groups::by_ends;
  return c["alignment"] % kRowsOfGroup == 0 ? Groups::by_rows : Groups::by_ids;
}

void require_groups_of_rows(const Call& c) {
  if (c.has("psum")) return require_ends(c.check(), "psum", c.given("psum"), c["M"]);
  const TensorView& groups = c.given("m_indices");
  if (!values_are_checked(groups) || groups_of_rows(c) != Groups::by_rows) return;
  int64_t named_by = -1;  // the first row that has a group, of those around `row`
  for (int64_t row = 0; row < c["M"]; ++row) {
    if (row % kRowsOfGroup == 0) named_by = -1;
    const int64_t got = integer_at(groups, row);
    if (got < 0) continue;
    if (named_by < 0) named_by = row;
    const int64_t want = integer_at(groups, named_by);
    c.need(got == want, "m_indices", kSeveralGroups,
           std::to_string(want) + " as at " + to_string(Dims{named_by}) + ", or -1",
           std::to_string(got) + " at " + to_string(Dims{row}));
  }
}

}  // namespace tessera::kernels::gemm
