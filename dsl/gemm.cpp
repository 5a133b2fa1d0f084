// Builder: matrix products.

#include <fmt/format.h>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

/// Elements of an operand that one instruction takes along k: 32 bytes.
int64_t step_of(DType operand) {
  return 256 / bits(operand);
}

DType product_dtype(const Recorder& r, DType a, DType b, SourceLoc loc) {
  const auto is_8_bit_float = [](DType d) { return d == DType::e4m3 || d == DType::e5m2; };
  if (a == DType::i8 && b == DType::i8) return DType::i32;
  const bool floats = a == b && (a == DType::f32 || a == DType::bf16 || a == DType::f16);
  if (!floats && !(is_8_bit_float(a) && is_8_bit_float(b))) {
    r.fail("DTYPE", "no matrix instruction takes these operands", loc,
           "two of f32, bf16, f16 or i8, or any two of e4m3 and e5m2",
           fmt::format("{} and {}", name(a), name(b)));
  }
  return DType::f32;
}

/// The extents of a tile of rank 2.
std::vector<int64_t> matrix_shape(const Recorder& r, const Ref& ref, const char* role,
                                  SourceLoc loc) {
  std::vector<int64_t> extents;
  for (const ir::Expr& extent : region_shape(ref.region())) {
    if (ir::is_constant(extent)) extents.push_back(extent->integer);
  }
  if (extents.size() != 2 || ref.region().order.size() != 2) {
    r.fail(
        "GEMM", fmt::format("{} of a gemm is no matrix of constant extents", role), loc,
        "two dimensions",
        fmt::format("'{}' {}", ref.region().buffer->name, shape_text(region_shape(ref.region()))));
  }
  return extents;
}

void require_space(const Recorder& r, const Ref& ref, const char* role, bool shared, bool fragment,
                   SourceLoc loc) {
  const ir::Buffer& buffer = *ref.region().buffer;
  const bool whole = ref.region().order == std::vector<int>{0, 1} && buffer.shape.size() == 2 &&
                     ir::equal(ref.region().extents[0], buffer.shape[0]) &&
                     ir::equal(ref.region().extents[1], buffer.shape[1]);
  if (shared && buffer.space == ir::Space::shared) return;
  if (fragment && buffer.space == ir::Space::fragment && whole) return;
  r.fail("GEMM", fmt::format("{} of a gemm is in the wrong memory", role), loc,
         shared && fragment ? "shared, or a whole fragment"
         : shared           ? "shared"
                            : "a whole fragment",
         fmt::format("'{}', {}{}", buffer.name, name(buffer.space),
                     buffer.space == ir::Space::fragment ? ", a part or a transposed view" : ""),
         shared ? "copy it into k.shared(...) first" : "");
}

/// Every grid of the block's warps that divides the product, the least operand traffic per warp
/// first; of equal ones the one with more rows.
layout::WarpGrid choose_warps(const Recorder& r, int64_t m, int64_t n, const GemmOptions& options,
                              SourceLoc loc) {
  const int64_t warps = r.kernel.threads / 32;
  if (r.kernel.threads % 32 != 0) {
    r.fail("PARTIAL_WARP", "a gemm needs whole warps", loc, "a block size that is a multiple of 32",
           fmt::format("{} threads", r.kernel.threads));
  }
  layout::WarpGrid best{0, 0};
  for (int64_t rows = warps; rows > 0; --rows) {
    if (warps % rows != 0) continue;
    const layout::WarpGrid grid{rows, warps / rows};
    if (m % (16 * grid.rows) != 0 || n % (8 * grid.columns) != 0) continue;
    if (options.warp_rows != 0 && options.warp_rows != grid.rows) continue;
    if (options.warp_columns != 0 && options.warp_columns != grid.columns) continue;
    const auto traffic = [&](const layout::WarpGrid& g) { return m / g.rows + n / g.columns; };
    if (best.rows == 0 || traffic(grid) < traffic(best)) best = grid;
  }
  if (best.rows == 0) {
    const auto wanted = [](int count) {
      return count == 0 ? std::string("any") : fmt::format("{}", count);
    };
    r.fail("GEMM", "the warps of the block do not divide the product", loc,
           "m a multiple of 16 x warp_rows, n of 8 x warp_columns, warp_rows x warp_columns = "
           "number of warps",
           fmt::format("m {}, n {}, {} warps, warp_rows {}, warp_columns {}", m, n, warps,
                       wanted(options.warp_rows), wanted(options.warp_columns)));
  }
  return best;
}

}  // namespace

void Builder::gemm(const Ref& a, const Ref& b, const Ref& c, GemmOptions options, SourceLoc loc) {
  const Recorder& r = *recorder_;
  const std::vector<int64_t> left = matrix_shape(r, a, "the left operand", loc);
  const std::vector<int64_t> right = matrix_shape(r, b, "the right operand", loc);
  const std::vector<int64_t> product = matrix_shape(r, c, "the product", loc);
  require_space(r, a, "the left operand", true, true, loc);
  require_space(r, b, "the right operand", true, false, loc);
  require_space(r, c, "the product", false, true, loc);
  for (const Ref* operand : {&a, &b}) {
    for (const ir::Expr& offset : operand->region().offsets) r.check_in_scope(offset, loc);
  }
  if (left[1] != right[0] || product[0] != left[0] || product[1] != right[1]) {
    r.fail("SHAPE", "the operands of a gemm do not fit", loc, "[m, k] * [k, n] -> [m, n]",
           fmt::format("[{}, {}] * [{}, {}] -> [{}, {}]", left[0], left[1], right[0], right[1],
                       product[0], product[1]));
  }
  const DType expected = product_dtype(r, a.dtype(), b.dtype(), loc);
  if (c.dtype() != expected) {
    r.fail("DTYPE",
           fmt::format("the product '{}' of a gemm has the wrong dtype", c.region().buffer->name),
           loc, std::string(name(expected)), std::string(name(c.dtype())));
  }
  if (left[1] % step_of(a.dtype()) != 0) {
    r.fail("GEMM", "k is no whole number of matrix instructions", loc,
           fmt::format("a multiple of {} for {}", step_of(a.dtype()), name(a.dtype())),
           fmt::format("{}", left[1]), "fill the rest of the operands with zeros");
  }
  ir::Gemm node;
  node.a = a.region();
  node.b = b.region();
  node.c = c.region();
  node.warps = choose_warps(r, left[0], right[1], options, loc);
  node.tf32 = options.tf32;
  recorder_->add({std::move(node), loc});
}

}  // namespace tessera::dsl
