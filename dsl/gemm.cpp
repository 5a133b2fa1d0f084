// Builder: matrix products.

#include <fmt/format.h>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

/// Elements along k that one instruction takes of an operand: 32 bytes.
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

/// The extents of a tile of rank `rank`.
std::vector<int64_t> matrix_shape(const Recorder& r, const Ref& ref, const char* role, size_t rank,
                                  SourceLoc loc) {
  std::vector<int64_t> extents;
  for (const ir::Expr& extent : region_shape(ref.region())) {
    if (ir::is_constant(extent)) extents.push_back(extent->integer);
  }
  if (extents.size() != rank || ref.region().order.size() != rank) {
    r.fail(
        "GEMM", fmt::format("{} of a gemm is no matrix of constant extents", role), loc,
        rank == 2 ? "two dimensions" : "[warp_depths, m, n]",
        fmt::format("'{}' {}", ref.region().buffer->name, shape_text(region_shape(ref.region()))));
  }
  return extents;
}

void require_space(const Recorder& r, const Ref& ref, const char* role, bool shared, bool fragment,
                   SourceLoc loc) {
  const ir::Buffer& buffer = *ref.region().buffer;
  if (shared && buffer.space == ir::Space::shared) return;
  if (fragment && buffer.space == ir::Space::fragment && is_whole(ref.region())) return;
  r.fail("GEMM", fmt::format("{} of a gemm is in the wrong memory", role), loc,
         shared && fragment ? "shared, or a whole fragment"
         : shared           ? "shared"
                            : "a whole fragment",
         fmt::format("'{}', {}{}", buffer.name, name(buffer.space),
                     buffer.space == ir::Space::fragment ? ", a part or a transposed view" : ""),
         shared ? "copy it into k.shared(...) first" : "");
}

/// All grids of the block's warps that divide the product, ordered by operand traffic per warp,
/// then by more rows.
layout::WarpGrid choose_warps(const Recorder& r, int64_t m, int64_t n, const GemmOptions& options,
                              SourceLoc loc) {
  if (r.num_threads() % 32 != 0) {
    r.fail("PARTIAL_WARP", "a gemm needs whole warps", loc, "a block size that is a multiple of 32",
           fmt::format("{} threads", r.num_threads()));
  }
  const int64_t depths = options.warp_depths;
  if (depths < 1 || r.num_threads() / 32 % depths != 0) {
    r.fail("GEMM", "warp_depths does not divide the warps of the block", loc,
           fmt::format("a divisor of {}", r.num_threads() / 32), fmt::format("{}", depths));
  }
  const int64_t warps = r.num_threads() / 32 / depths;
  layout::WarpGrid best{0, 0, depths};
  for (int64_t rows = warps; rows > 0; --rows) {
    if (warps % rows != 0) continue;
    const layout::WarpGrid grid{rows, warps / rows, depths};
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
           "number of warps for each depth",
           fmt::format("m {}, n {}, {} warps, warp_rows {}, warp_columns {}", m, n, warps,
                       wanted(options.warp_rows), wanted(options.warp_columns)));
  }
  return best;
}

}  // namespace

void Builder::gemm(const Ref& a, const Ref& b, const Ref& c, GemmOptions options, SourceLoc loc) {
  const Recorder& r = *recorder_;
  const std::vector<int64_t> left = matrix_shape(r, a, "the left operand", 2, loc);
  const std::vector<int64_t> right = matrix_shape(r, b, "the right operand", 2, loc);
  const bool has_depths = options.warp_depths > 1;
  const std::vector<int64_t> product = matrix_shape(r, c, "the product", has_depths ? 3 : 2, loc);
  require_space(r, a, "the left operand", true, true, loc);
  require_space(r, b, "the right operand", true, true, loc);
  require_space(r, c, "the product", false, true, loc);
  for (const Ref* operand : {&a, &b}) {
    for (const ir::Expr& offset : operand->region().offsets) r.check_in_scope(offset, loc);
  }
  const ir::Buffer& left_storage = storage_of(*a.region().buffer);
  const ir::Buffer& right_storage = storage_of(*b.region().buffer);
  const ir::Buffer& product_storage = storage_of(*c.region().buffer);
  if (left_storage.id == product_storage.id || right_storage.id == product_storage.id) {
    r.fail("GEMM", "an operand of a gemm is its product", loc, "another buffer",
           fmt::format("'{}' twice", product_storage.name), "copy it");
  }
  if (left_storage.id == right_storage.id && left_storage.space == ir::Space::fragment) {
    r.fail("GEMM", "both operands of a gemm are one fragment", loc, "two fragments",
           fmt::format("'{}' twice", a.region().buffer->name), "copy it");
  }
  std::vector<int64_t> expected_product = {left[0], right[1]};
  if (has_depths) expected_product.insert(expected_product.begin(), options.warp_depths);
  if (left[1] != right[0] || product != expected_product) {
    r.fail("SHAPE", "the operands of a gemm do not fit", loc,
           has_depths ? "[m, k] * [k, n] -> [warp_depths, m, n]" : "[m, k] * [k, n] -> [m, n]",
           fmt::format("[{}, {}] * [{}, {}] -> [{}]", left[0], left[1], right[0], right[1],
                       fmt::join(product, ", ")));
  }
  const DType expected = product_dtype(r, a.dtype(), b.dtype(), loc);
  if (c.dtype() != expected) {
    r.fail("DTYPE",
           fmt::format("the product '{}' of a gemm has the wrong dtype", c.region().buffer->name),
           loc, std::string(name(expected)), std::string(name(c.dtype())));
  }
  const layout::WarpGrid warps = choose_warps(r, left[0], right[1], options, loc);
  if (options.promote < 0 || options.promote % 32 != 0) {
    r.fail("GEMM", "promote is no whole number of matrix instructions", loc,
           "a multiple of 32, or 0", fmt::format("{}", options.promote));
  }
  const int64_t step = step_of(a.dtype()) * warps.depths;
  if (left[1] % step != 0) {
    r.fail("GEMM", "k is no whole number of matrix instructions", loc,
           fmt::format("a multiple of {} for {}", step, name(a.dtype())),
           fmt::format("{}", left[1]), "fill the rest of the operands with zeros");
  }
  ir::Gemm node;
  node.a = a.region();
  node.b = b.region();
  node.c = c.region();
  node.warps = warps;
  node.tf32 = options.tf32;
  node.instruction = options.instruction;
  node.is_grid_given = options.warp_rows != 0 || options.warp_columns != 0;
  if (is_float(a.dtype()) && bits(a.dtype()) == 8) node.promote = options.promote;
  recorder_->add({std::move(node), loc});
}

}  // namespace tessera::dsl
