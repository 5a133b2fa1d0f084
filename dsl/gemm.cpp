// Builder: matrix products.

#include <fmt/format.h>

#include <algorithm>

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

/// True for a fragment of two dimensions or a box of it, or for a whole fragment.
bool is_box(const ir::Region& region) {
  return is_whole(region) || (region.order == std::vector<int>{0, 1} &&
                              region.buffer->shape.size() == region.order.size());
}

void require_space(const Recorder& r, const Ref& ref, const char* role, bool shared,
                   SourceLoc loc) {
  const ir::Buffer& buffer = *ref.region().buffer;
  if (shared && buffer.space == ir::Space::shared) return;
  if (buffer.space == ir::Space::fragment && is_box(ref.region())) return;
  r.fail("GEMM", fmt::format("{} of a gemm is in the wrong memory", role), loc,
         shared ? "shared, or a fragment" : "a fragment",
         fmt::format("'{}', {}{}", buffer.name, name(buffer.space),
                     buffer.space == ir::Space::fragment ? ", another view than a tile" : ""),
         shared ? "copy it into k.shared(...) first" : "");
}

/// Requires a part of a fragment to begin at a whole number of steps of the instructions.
void require_steps(const Recorder& r, const Ref& ref, const char* role, int64_t row_step,
                   int64_t column_step, SourceLoc loc) {
  const ir::Region& region = ref.region();
  if (region.buffer->space != ir::Space::fragment || is_whole(region)) return;
  const auto begins = [&](size_t dim, int64_t step) {
    return ir::is_constant(region.offsets[dim]) && region.offsets[dim]->integer % step == 0;
  };
  if (begins(0, row_step) && begins(1, column_step)) return;
  r.fail("GEMM",
         fmt::format("the part of '{}' that is {} of a gemm begins inside of a matrix instruction",
                     region.buffer->name, role),
         loc, fmt::format("constant offsets, multiples of {} and {}", row_step, column_step),
         fmt::format("[{}, {}]", to_string(region.offsets[0]), to_string(region.offsets[1])));
}

/// Requires warps along k to have whole operands in registers.
void require_whole_depth(const Recorder& r, const Ref& ref, size_t axis, int depths,
                         SourceLoc loc) {
  const ir::Region& region = ref.region();
  if (region.buffer->space != ir::Space::fragment || depths == 1) return;
  const int64_t extent = region.extents[axis]->integer;
  const int64_t whole = region.buffer->shape[axis]->integer;
  if (extent == whole) return;
  r.fail("GEMM", "warps along k share a part of an operand in registers", loc,
         "warp_depths = 1, or the whole fragment",
         fmt::format("{} of {} along k, warp_depths {}", extent, whole, depths));
}

void require_warps(const Recorder& r, int depths, SourceLoc loc) {
  if (r.num_threads() % 32 != 0) {
    r.fail("PARTIAL_WARP", "a gemm needs whole warps", loc, "a block size that is a multiple of 32",
           fmt::format("{} threads", r.num_threads()));
  }
  if (depths < 1 || r.num_threads() / 32 % depths != 0) {
    r.fail("GEMM", "warp_depths does not divide the warps of the block", loc,
           fmt::format("a divisor of {}", r.num_threads() / 32), fmt::format("{}", depths));
  }
}

}  // namespace

void Builder::gemm(const Tile& a, const Ref& b, const Ref& c, GemmOptions options, SourceLoc loc) {
  gemm(operand(a, loc), b, c, options, loc);
}
void Builder::gemm(const Ref& a, const Tile& b, const Ref& c, GemmOptions options, SourceLoc loc) {
  gemm(a, operand(b, loc), c, options, loc);
}

void Builder::gemm(const Ref& a, const Ref& b, const Ref& c, GemmOptions options, SourceLoc loc) {
  const Recorder& r = *recorder_;
  const std::vector<int64_t> left = matrix_shape(r, a, "the left operand", 2, loc);
  const std::vector<int64_t> right = matrix_shape(r, b, "the right operand", 2, loc);
  const bool has_depths = options.warp_depths > 1;
  const std::vector<int64_t> product = matrix_shape(r, c, "the product", has_depths ? 3 : 2, loc);
  require_space(r, a, "the left operand", true, loc);
  require_space(r, b, "the right operand", true, loc);
  require_space(r, c, "the product", false, loc);
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
  const int64_t step_of_one = step_of(a.dtype());
  require_steps(r, a, "the left operand", 16, step_of_one, loc);
  require_steps(r, b, "the right operand", step_of_one, 8, loc);
  require_steps(r, c, "the product", 16, 8, loc);
  require_warps(r, options.warp_depths, loc);
  if (options.promote < 0 || options.promote % 32 != 0) {
    r.fail("GEMM", "promote is no whole number of matrix instructions", loc,
           "a multiple of 32, or 0", fmt::format("{}", options.promote));
  }
  const int64_t step = step_of_one * options.warp_depths;
  require_whole_depth(r, a, 1, options.warp_depths, loc);
  require_whole_depth(r, b, 0, options.warp_depths, loc);
  if (left[1] % step != 0) {
    r.fail("GEMM", "k is no whole number of matrix instructions", loc,
           fmt::format("a multiple of {} for {}", step, name(a.dtype())),
           fmt::format("{}", left[1]), "fill the rest of the operands with zeros");
  }
  ir::Gemm node;
  node.a = a.region();
  node.b = b.region();
  node.c = c.region();
  node.plan.grid = {options.warp_rows, options.warp_columns, options.warp_depths};
  node.instruction = options.instruction;
  node.tf32 = options.tf32;
  if (is_float(a.dtype()) && bits(a.dtype()) == 8) node.promote = options.promote;
  recorder_->add({std::move(node), loc});
}

}  // namespace tessera::dsl
