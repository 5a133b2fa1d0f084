// Builder: copies, fills and reductions of tiles.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

bool on_chip(const Ref& ref) {
  return ref.region().buffer->space != ir::Space::global;
}

void require_tile(const Recorder& r, const Ref& ref, const char* what, SourceLoc loc) {
  const ir::Buffer& buffer = *ref.region().buffer;
  if (ref.region().order.empty()) {
    r.fail("REGION", fmt::format("{} of '{}' needs a tile, not one element", what, buffer.name),
           loc);
  }
  for (const ir::Expr& extent : region_shape(ref.region())) {
    if (!ir::is_constant(extent)) {
      r.fail("REGION",
             fmt::format("{} of '{}' needs a tile of constant extents", what, buffer.name), loc,
             "x.tile({offsets}, {extents})", shape_text(region_shape(ref.region())));
    }
  }
}

/// Compares constant extents.
bool same_shape(const std::vector<ir::Expr>& a, const std::vector<ir::Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const ir::Expr& x, const ir::Expr& y) { return x->integer == y->integer; });
}

/// The region with extents of 1 turned into indices.
ir::Region without_ones(ir::Region region) {
  std::vector<int> order;
  for (const int d : region.order) {
    ir::Expr& extent = region.extents[static_cast<size_t>(d)];
    if (extent->integer != 1) {
      order.push_back(d);
    } else {
      extent = ir::Expr();
    }
  }
  region.order = std::move(order);
  return region;
}

/// True if the region covers its buffer, in any order.
bool covers_buffer(const ir::Region& region) {
  return std::equal(region.extents.begin(), region.extents.end(), region.buffer->shape.begin(),
                    ir::equal);
}

/// True if both regions certainly share an element of one buffer or of views of it.
bool overlap(const ir::Region& a, const ir::Region& b) {
  if (storage_of(*a.buffer).id != storage_of(*b.buffer).id) return false;
  if (a.buffer->space != b.buffer->space) return false;  // shared memory of another block
  if (a.buffer->id != b.buffer->id) return covers_buffer(a) && covers_buffer(b);
  for (size_t d = 0; d < a.offsets.size(); ++d) {
    const auto end = [&](const ir::Region& region) {  // an index has no extent
      const ir::Expr& extent = region.extents[d];
      return region.offsets[d]->integer + (extent ? extent->integer : 1);
    };
    const ir::Expr& from = a.offsets[d];
    const ir::Expr& to = b.offsets[d];
    if (ir::equal(from, to)) continue;
    if (!ir::is_constant(from) || !ir::is_constant(to)) return false;
    if (end(a) <= to->integer || end(b) <= from->integer) return false;
  }
  return true;
}

/// True if the copy maps every element to itself.
bool same_place(const ir::Region& from, const ir::Region& to) {
  return from.buffer->id == to.buffer->id && from.order == to.order &&
         std::equal(from.offsets.begin(), from.offsets.end(), to.offsets.begin(), ir::equal);
}

}  // namespace

void Builder::copy(const Ref& from, const Ref& to, SourceLoc loc) {
  copy(from, to, ir::Copy{}, loc);
}

void Builder::copy(const Ref& from, const Ref& to, CopyOptions options, SourceLoc loc) {
  const ir::Buffer &source = *from.region().buffer, &target = *to.region().buffer;
  const bool stores = source.space == ir::Space::shared && target.space == ir::Space::global;
  ir::Copy terms;
  terms.plan.engine = options.engine;
  terms.plan.multicast = options.multicast;
  if (options.multicast == ir::Multicast::required && options.engine != ir::Engine::tensor) {
    recorder_->fail("COPY_ENGINE",
                    fmt::format("copy from '{}' into all blocks of the cluster", source.name), loc,
                    "Engine::tensor", fmt::format("Engine::{}", name(options.engine)),
                    "pass .engine = Engine::tensor, or leave out Multicast::required");
  }
  const bool is_word = options.engine == ir::Engine::bulk || options.engine == ir::Engine::threads;
  if (is_word) {
    recorder_->fail("COPY_ENGINE",
                    fmt::format("copy from '{}' to '{}' asks for an engine by another word",
                                source.name, target.name),
                    loc, "Engine::automatic, Engine::tensor or Engine::pieces",
                    fmt::format("Engine::{}", name(options.engine)),
                    options.engine == ir::Engine::bulk
                        ? "copy from .bulk()"
                        : "copy outside of k.pipelined and ring.fill");
  }
  if (from.is_bulk_ && options.engine != ir::Engine::automatic) {
    recorder_->fail(
        "COPY_ENGINE",
        fmt::format("'{}' cannot be copied to '{}' by two engines", source.name, target.name), loc,
        fmt::format("Engine::{} or bulk()", name(options.engine)), "both", "leave out one of them");
  }
  const bool has_choice = (!on_chip(from) && target.space == ir::Space::shared) ||
                          (stores && options.engine == ir::Engine::tensor);
  if (options.engine != ir::Engine::automatic && !has_choice) {
    recorder_->fail(
        "COPY_ENGINE",
        fmt::format("copy from '{}' to '{}' has no choice of an engine", source.name, target.name),
        loc,
        stores ? "Engine::tensor or Engine::automatic"
               : "between a global tensor and a shared tile",
        stores ? std::string(name(options.engine))
               : fmt::format("from {} to {}", name(source.space), name(target.space)),
        stores ? "threads store in no pieces: pass Engine::tensor or leave out .engine"
               : "leave out .engine");
  }
  if (!options.outside.is_literal()) {
    recorder_->fail("COPY_OUTSIDE",
                    fmt::format("copy from '{}' with a computed value outside", source.name), loc,
                    "a constant", "a value of run time", "use k.parallel and select");
  }
  const ir::Expr outside = options.outside.as(to.dtype(), recorder_.get()).expr();
  const bool is_zero = ir::is_constant(outside) && outside->integer == 0 && outside->number == 0 &&
                       !std::signbit(outside->number);
  if (on_chip(from) && !is_zero) {
    recorder_->fail("COPY_OUTSIDE",
                    fmt::format("copy from '{}', which has no outside", source.name), loc,
                    "from a global tensor", fmt::format("from {}", name(source.space)));
  }
  if (!is_zero) terms.outside = outside;  // copies of zeros can go ahead
  copy(from, to, std::move(terms), loc);
}

void Builder::copy(const TileAt& from, const Ref& to, CopyOptions options, SourceLoc loc) {
  copy(from.with_extents_of(to), to, std::move(options), loc);
}
void Builder::copy(const Ref& from, const TileAt& to, CopyOptions options, SourceLoc loc) {
  copy(from, to.with_extents_of(from), std::move(options), loc);
}

void Builder::copy_add(const Ref& from, const Ref& to, CopyOptions options, SourceLoc loc) {
  const ir::Buffer &source = *from.region().buffer, &target = *to.region().buffer;
  const bool is_source = source.space == ir::Space::shared || source.space == ir::Space::fragment;
  if (!is_source || target.space != ir::Space::global) {
    recorder_->fail("ATOMIC", fmt::format("copy_add from '{}' to '{}'", source.name, target.name),
                    loc, "from a shared tile or a fragment to an output tensor",
                    fmt::format("from {} to {}", name(source.space), name(target.space)));
  }
  constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16,
                               DType::i32, DType::u32, DType::u64};
  const bool is_added =
      std::find(std::begin(kDTypes), std::end(kDTypes), target.dtype) != std::end(kDTypes);
  if (!is_added || source.dtype != target.dtype) {
    recorder_->fail("DTYPE",
                    fmt::format("copy_add from '{}' to '{}' cannot add", source.name, target.name),
                    loc, "f32, f16, bf16, i32, u32 or u64 on both sides",
                    fmt::format("{} to {}", name(source.dtype), name(target.dtype)));
  }
  const bool by_threads = source.space == ir::Space::fragment;
  const bool is_offered =
      options.engine == ir::Engine::automatic || options.engine == ir::Engine::tensor;
  if (!is_offered || (by_threads && options.engine == ir::Engine::tensor)) {
    recorder_->fail("COPY_ENGINE",
                    fmt::format("copy_add from '{}' to '{}' has no choice of an engine",
                                source.name, target.name),
                    loc, by_threads ? "a shared tile" : "Engine::tensor or Engine::automatic",
                    by_threads ? "a fragment" : std::string(name(options.engine)),
                    by_threads ? "copy the fragment into a shared tile first, or leave out .engine"
                               : "leave out .engine");
  }
  if (to.region().terms.cache != ir::CacheHint::none) {
    recorder_->fail("CACHE_HINT",
                    fmt::format("copy_add to '{}' takes no hint for the caches", target.name), loc);
  }
  ir::Copy terms;
  terms.adds = true;
  terms.plan.engine = options.engine;
  copy(from, to, std::move(terms), loc);
}

void Builder::copy(const Ref& from, const Ref& to, ir::Copy terms, SourceLoc loc) {
  require_tile(*recorder_, from, "copy", loc);
  require_tile(*recorder_, to, "copy", loc);
  ir::Region source = from.region(), target = to.region();
  const auto a = region_shape(source);
  const auto b = region_shape(target);
  if (!same_shape(a, b)) {
    source = without_ones(std::move(source));
    target = without_ones(std::move(target));
  }
  if (!same_shape(region_shape(source), region_shape(target))) {
    recorder_->fail("SHAPE",
                    fmt::format("copy from '{}' to '{}' between different shapes",
                                from.region().buffer->name, to.region().buffer->name),
                    loc, shape_text(b), shape_text(a));
  }
  for (const Ref* side : {&from, &to}) {
    for (const ir::Expr& offset : side->region().offsets) recorder_->check_in_scope(offset, loc);
  }
  // One thread would write what another has yet to read. Fragments move by value.
  if (from.region().buffer->space == ir::Space::shared && overlap(from.region(), to.region()) &&
      !same_place(from.region(), to.region())) {
    recorder_->fail(
        "COPY_OVERLAP",
        fmt::format("a copy within '{}' writes what it reads", from.region().buffer->name), loc, {},
        {}, "copy it into a fragment first");
  }
  if (!on_chip(to) && !to.region().buffer->is_output) {
    recorder_->fail("WRITE_READ_ONLY",
                    fmt::format("copy writes the input tensor '{}'", to.region().buffer->name), loc,
                    "a tensor declared with k.output", "k.input");
  }
  if (from.is_bulk_) terms.plan.engine = ir::Engine::bulk;
  terms.from = std::move(source);
  terms.to = std::move(target);
  recorder_->add({std::move(terms), loc});
}

void Builder::fill(const Ref& to, Arg value, SourceLoc loc) {
  require_tile(*recorder_, to, "fill", loc);
  for (const ir::Expr& offset : to.region().offsets) recorder_->check_in_scope(offset, loc);
  const Value v = value.as(to.dtype(), recorder_.get());
  recorder_->check_in_scope(v.expr(), loc);
  recorder_->add({ir::Fill{to.region(), v.expr()}, loc});
}

void Builder::reduce(ir::ReduceOp op, const Ref& from, const Ref& to, Axis axis, SourceLoc loc) {
  const auto d = static_cast<int>(axis);
  const ir::Buffer& source = *from.region().buffer;
  const ir::Buffer& result = *to.region().buffer;
  for (const Ref* side : {&from, &to}) {
    const ir::Region& region = side->region();
    if (region.buffer->space != ir::Space::fragment || region.order.empty()) {
      recorder_->fail(
          "REDUCE", fmt::format("reduce works on fragments, '{}' is not one", region.buffer->name),
          loc, "a fragment or a part of one",
          fmt::format("{}{}", region.order.empty() ? "one element, " : "",
                      name(region.buffer->space)),
          region.order.empty() ? "" : "copy it into k.fragment(...) first");
    }
  }
  if (storage_of(source).id == storage_of(result).id) {
    recorder_->fail("REDUCE", fmt::format("a reduction of '{}' writes what it reads", source.name),
                    loc, "another fragment", "a view of it");
  }
  const std::vector<ir::Expr> shape = region_shape(from.region());
  if (d < 0 || d >= static_cast<int>(shape.size())) {
    recorder_->fail("REDUCE",
                    fmt::format("reduce of '{}' over an axis it does not have", source.name), loc,
                    fmt::format("0 .. {}", shape.size() - 1), fmt::format("{}", d));
  }
  std::vector<ir::Expr> expected = shape;
  expected.erase(expected.begin() + d);
  const std::vector<ir::Expr> have = region_shape(to.region());
  if (!same_shape(expected, have)) {
    recorder_->fail("SHAPE",
                    fmt::format("the result '{}' of a reduction has the wrong shape", result.name),
                    loc, shape_text(expected), shape_text(have));
  }
  // f32 holds 16-bit and narrower floats exactly, so they may be folded in f32.
  const bool is_narrow = is_float(source.dtype) && source.dtype != DType::f64;
  const bool widened = is_narrow && result.dtype == DType::f32;
  // 8-bit and 4-bit floats are stored and converted, not computed with. Their extremes are found in f32.
  const bool is_stored_only = is_float(source.dtype) && bits(source.dtype) < 16;
  const bool is_extreme = op == ir::ReduceOp::max || op == ir::ReduceOp::min;
  if (source.dtype == DType::boolean && !is_extreme) {
    recorder_->fail("DTYPE",
                    fmt::format("reduce_{} of '{}' takes no bool", ir::name(op), source.name), loc,
                    "numbers", "bool", "convert the elements with cast(dtype, value)");
  }
  if (is_stored_only && op == ir::ReduceOp::sum && source.dtype == result.dtype) {
    recorder_->fail(
        "DTYPE",
        fmt::format("the sum '{}' of '{}' is of a dtype that is stored, not computed with",
                    result.name, source.name),
        loc, "f32", std::string(name(result.dtype)), "sum into a fragment of f32");
  }
  if (source.dtype != result.dtype && !widened) {
    recorder_->fail(
        "DTYPE",
        fmt::format("the result '{}' of a reduction of '{}' has the wrong dtype", result.name,
                    source.name),
        loc,
        is_narrow ? fmt::format("{} or f32", name(source.dtype)) : std::string(name(source.dtype)),
        std::string(name(result.dtype)));
  }
  // The lowering folds whole fragments: parts and transposed views are copied to fragments first.
  const Ref whole_from =
      is_whole(from.region()) ? from : recorder_->fragment_like(from.region(), loc);
  if (!is_whole(from.region())) copy(from, whole_from, loc);
  std::optional<Ref> folded;
  if (is_stored_only && !widened) {
    std::vector<int64_t> extents;
    for (const ir::Expr& extent : expected) extents.push_back(extent->integer);
    folded = fragment(DType::f32, std::move(extents), result.name + "_f32", loc);
  } else if (!is_whole(to.region())) {
    folded = recorder_->fragment_like(to.region(), loc);
  }
  const ir::Region& reduced = (folded ? *folded : to).region();
  recorder_->add({ir::Reduce{op, whole_from.region(), reduced, d}, loc});
  if (folded) copy(*folded, to, loc);
}

void Builder::reduce_sum(const Ref& from, const Ref& to, Axis axis, SourceLoc loc) {
  reduce(ir::ReduceOp::sum, from, to, axis, loc);
}
void Builder::reduce_max(const Ref& from, const Ref& to, Axis axis, SourceLoc loc) {
  reduce(ir::ReduceOp::max, from, to, axis, loc);
}
void Builder::reduce_min(const Ref& from, const Ref& to, Axis axis, SourceLoc loc) {
  reduce(ir::ReduceOp::min, from, to, axis, loc);
}
void Builder::reduce_absmax(const Ref& from, const Ref& to, Axis axis, SourceLoc loc) {
  reduce(ir::ReduceOp::absmax, from, to, axis, loc);
}

}  // namespace tessera::dsl
