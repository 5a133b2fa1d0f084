// Ref: indexing, tiles, views, element reads and writes.

#include <fmt/format.h>

#include <algorithm>

#include "dsl/recorder.h"
#include "dsl/value.h"

namespace tessera::dsl {
namespace {

bool is_index_type(DType type) {
  return type == DType::i32 || type == DType::i64 || type == DType::u32;
}

/// Checks that the index is i32 or i64.
ir::Expr as_index(const Arg& arg, const Recorder& recorder) {
  const Value value = arg.value();
  if (!is_index_type(value.dtype())) {
    recorder.fail("INDEX_DTYPE", "an index must be an integer", arg.loc(), "i32, u32 or i64",
                  std::string(name(value.dtype())));
  }
  if (value.dtype() == DType::u32) return ir::cast(DType::i64, value.expr(), arg.loc());
  return value.expr();
}

/// True if the region is narrower than its buffer in dimension d.
bool is_part(const ir::Region& region, size_t d) {
  return !ir::equal(region.extents[d], region.buffer->shape[d]);
}

/// The name of the buffer in messages.
const std::string& name_of(const ir::Buffer& buffer) {
  return buffer.stands_for.empty() ? buffer.name : buffer.stands_for;
}

/// True if the region has no outside in dimension d. Reads outside a global tensor give 0 and
/// writes are dropped, but a tile of a tile ends where the outer tile ends.
bool has_no_outside(const ir::Region& region, size_t d) {
  return region.buffer->space != ir::Space::global || is_part(region, d);
}

/// How an index reaches a value, for the end of a message.
std::string reached(const Recorder::Corner& corner) {
  return corner.where.empty() ? "" : fmt::format(", where {}", corner.where);
}

}  // namespace

Ref Ref::index(std::vector<Arg> indices) const {
  const SourceLoc loc = indices.front().loc();
  const auto& buffer = *region_.buffer;
  if (indices.size() > region_.order.size()) {
    recorder_->fail("RANK", fmt::format("'{}' is indexed with too many values", name_of(buffer)),
                    loc, fmt::format("at most {}", region_.order.size()),
                    fmt::format("{}", indices.size()));
  }
  ir::Region part = region_;
  size_t kept = 0;  // leading dimensions that stay free
  for (const Arg& arg : indices) {
    if (arg.is_all()) {
      ++kept;
      continue;
    }
    const auto place = part.order.begin() + static_cast<std::ptrdiff_t>(kept);
    const auto d = static_cast<size_t>(*place);
    part.order.erase(place);
    const ir::Expr i = as_index(arg, *recorder_);
    const ir::Expr extent = part.extents[d];
    if (ir::is_constant(i) || has_no_outside(region_, d)) {
      for (const Recorder::Corner& corner : recorder_->corners(i)) {
        if (corner.value >= 0 && (!ir::is_constant(extent) || corner.value < extent->integer)) {
          continue;
        }
        recorder_->fail("OOB_CONST",
                        fmt::format("index of {}'{}' is out of range",
                                    is_part(region_, d) ? "a tile of " : "", name_of(buffer)),
                        arg.loc(), fmt::format("0 <= index < {}", to_string(extent)),
                        fmt::format("{} in dimension {}{}", corner.value, d, reached(corner)), {},
                        corner.loop);
      }
    }
    const ir::Expr begin = part.offsets[d];
    part.offsets[d] = begin + i;
    part.extents[d] = ir::Expr();
    if (is_part(region_, d) && !ir::is_constant(i)) {
      part.terms.tile_indices.push_back({part.offsets[d], begin, extent});
    }
  }
  Ref result = derived(std::move(part), loc);
  if (result.region_.order.empty()) result.name_ = recorder_->new_name(buffer);
  return result;
}

Ref Ref::derived(ir::Region region, SourceLoc loc) const {
  Ref result(recorder_, std::move(region), loc);
  result.is_bulk_ = is_bulk_;
  return result;
}

Ref::~Ref() = default;
Ref::Ref(const Ref& other)
    : recorder_(other.recorder_),
      region_(other.region_),
      loc_(other.loc_),
      name_(other.name_ == 0 ? 0 : recorder_->copy_name(other.name_)),
      is_bulk_(other.is_bulk_) {}

Ref Ref::operator()(Arg i) const {
  return index({std::move(i)});
}
Ref Ref::operator()(Arg i, Arg j) const {
  return index({std::move(i), std::move(j)});
}
Ref Ref::operator()(Arg i, Arg j, Arg k) const {
  return index({std::move(i), std::move(j), std::move(k)});
}
Ref Ref::operator()(Arg i, Arg j, Arg k, Arg l) const {
  return index({std::move(i), std::move(j), std::move(k), std::move(l)});
}

TileRef Ref::tile(std::vector<Arg> offsets, std::vector<int64_t> extents, SourceLoc loc) const {
  const auto& buffer = *region_.buffer;
  if (offsets.size() != region_.order.size() || extents.size() != region_.order.size()) {
    recorder_->fail("RANK",
                    fmt::format("a tile of '{}' needs one offset and one extent per free dimension",
                                buffer.name),
                    loc, fmt::format("{} of each", region_.order.size()),
                    fmt::format("{} offsets, {} extents", offsets.size(), extents.size()));
  }
  ir::Region part = region_;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const auto d = static_cast<size_t>(part.order[i]);
    const ir::Expr offset = as_index(offsets[i], *recorder_);
    if (extents[i] <= 0) {
      recorder_->fail("REGION", fmt::format("a tile of '{}' is empty", buffer.name), loc,
                      "positive extents", fmt::format("{}", extents[i]));
    }
    // Accesses outside a global tensor are guarded.
    if (buffer.space != ir::Space::global && extents[i] > part.extents[d]->integer) {
      recorder_->fail("OOB_CONST", fmt::format("a tile of '{}' is larger than it", buffer.name),
                      loc, fmt::format("at most {}", part.extents[d]->integer),
                      fmt::format("{} in dimension {}", extents[i], d));
    }
    if (ir::is_constant(part.extents[d]) &&
        (ir::is_constant(offset) || has_no_outside(region_, d))) {
      for (const Recorder::Corner& corner : recorder_->corners(offset)) {
        const int64_t end = corner.value + extents[i];
        if (corner.value >= 0 && end <= part.extents[d]->integer) continue;
        recorder_->fail(
            "OOB_CONST", fmt::format("a tile of '{}' reaches outside", buffer.name), loc,
            fmt::format("within 0..{}", part.extents[d]->integer),
            fmt::format("{}..{} in dimension {}{}", corner.value, end, d, reached(corner)), {},
            corner.loop);
      }
    }
    const ir::Expr begin = part.offsets[d];
    const ir::Expr extent = part.extents[d];
    part.offsets[d] = begin + offset;
    part.extents[d] = ir::index(extents[i]);
    if (buffer.space != ir::Space::global && is_part(region_, d) && !ir::is_constant(offset)) {
      // Where the tile of the tile may begin.
      part.terms.tile_indices.push_back(
          {part.offsets[d], begin, extent - ir::index(extents[i] - 1)});
    }
  }
  return TileRef(derived(std::move(part)));
}

TileAt Ref::tile(std::vector<Arg> offsets, SourceLoc loc) const {
  return {*this, std::move(offsets), loc};
}

TileRef TileAt::with_extents(std::vector<int64_t> extents) const {
  const size_t rank = offsets_.size();
  while (extents.size() > rank) {
    const auto one = std::find(extents.begin(), extents.end(), 1);
    if (one == extents.end()) break;
    extents.erase(one);
  }
  if (extents.size() < rank) extents.insert(extents.begin(), rank - extents.size(), 1);
  return of_.tile(offsets_, std::move(extents), loc_);
}

std::vector<int64_t> Ref::extents(SourceLoc loc) const {
  std::vector<int64_t> extents;
  for (const ir::Expr& extent : region_shape(region_)) {
    if (!ir::is_constant(extent)) {
      recorder_->fail("REGION",
                      fmt::format("the extents of '{}' are not constant", region_.buffer->name),
                      loc, "x.tile({offsets}, {extents})", shape_text(region_shape(region_)));
    }
    extents.push_back(extent->integer);
  }
  return extents;
}

TileRef TileAt::with_extents_of(const Ref& other) const {
  return with_extents(other.extents(loc_));
}

TileRef Ref::transposed(SourceLoc loc) const {
  if (region_.order.size() < 2) {
    recorder_->fail("RANK", fmt::format("'{}' cannot be transposed", region_.buffer->name), loc,
                    "at least 2 free dimensions", fmt::format("{}", region_.order.size()));
  }
  ir::Region part = region_;
  std::swap(part.order[part.order.size() - 1], part.order[part.order.size() - 2]);
  return TileRef(derived(std::move(part)));
}

TileRef Ref::reshape(std::vector<int64_t> shape, SourceLoc loc) const {
  const ir::Buffer& buffer = *region_.buffer;
  const bool fixed = buffer.space != ir::Space::global && buffer.space != ir::Space::cluster;
  if (!fixed || !is_whole(region_)) {
    recorder_->fail(
        "RESHAPE",
        fmt::format("only a whole fragment, shared or local buffer can be reshaped, '{}' is not",
                    buffer.name),
        loc);
  }
  std::vector<ir::Expr> extents = constant_shape(*recorder_, shape, buffer.name, loc);
  int64_t have = 1;
  int64_t want = 1;
  for (const ir::Expr& extent : buffer.shape) have *= extent->integer;
  for (const int64_t extent : shape) want *= extent;
  if (have != want) {
    recorder_->fail("RESHAPE",
                    fmt::format("reshape of '{}' changes the number of elements", buffer.name), loc,
                    fmt::format("{}", have), fmt::format("{}", want));
  }
  ir::Buffer view;
  view.name = buffer.name;
  view.stands_for = buffer.stands_for;
  view.dtype = buffer.dtype;
  view.space = buffer.space;
  view.alias_of = buffer.alias_of ? buffer.alias_of : region_.buffer;
  view.loc = loc;
  view.shape = std::move(extents);
  return TileRef(recorder_->new_buffer(std::move(view)));
}

Ref Ref::unchecked() const {
  Ref part = *this;
  part.region_.terms.unchecked = true;
  return part;
}

Ref Ref::cached(ir::CacheHint hint, SourceLoc loc) const {
  const ir::Buffer& buffer = *region_.buffer;
  if (buffer.space != ir::Space::global || buffer.dtype == DType::e2m1) {
    recorder_->fail("CACHE_HINT", fmt::format("'{}' takes no hint for the caches", buffer.name),
                    loc, "a global tensor of another dtype than e2m1",
                    fmt::format("{} {}", ir::name(buffer.space), name(buffer.dtype)));
  }
  Ref part = *this;
  part.region_.terms.cache = hint;
  return part;
}

Ref Ref::bulk(SourceLoc loc) const {
  const ir::Buffer& buffer = *region_.buffer;
  if (buffer.space != ir::Space::global || buffer.dtype == DType::e2m1) {
    recorder_->fail("CPASYNC_ROWS", fmt::format("'{}' has no rows to copy", buffer.name), loc,
                    "a global tensor of another dtype than e2m1",
                    fmt::format("{} {}", ir::name(buffer.space), name(buffer.dtype)));
  }
  if (buffer.is_output || buffer.may_alias) {  // bulk copies do not see the kernel's own stores
    recorder_->fail("CPASYNC_ROWS", fmt::format("'{}' has no rows to copy", buffer.name), loc,
                    "a tensor that the kernel does not write",
                    buffer.is_output ? "an output" : "one that may be the memory of an output");
  }
  Ref part = *this;
  part.is_bulk_ = true;
  return part;
}

Value Ref::read(SourceLoc loc) const {
  if (!region_.order.empty()) {
    recorder_->fail(
        "NOT_AN_ELEMENT",
        fmt::format("'{}' is used as a value but is not one element", region_.buffer->name), loc,
        fmt::format("{} indices", region_.offsets.size()),
        fmt::format("{} dimensions left free", region_.order.size()));
  }
  if (name_ != 0) recorder_->check_fresh(name_, region_, loc);
  return recorder_->load(region_, loc);
}

Ref::operator Value() const {
  return read(loc_.known() ? loc_ : region_.buffer->loc);
}

const Ref& Ref::operator=(const Arg& value) const {
  if (!region_.order.empty()) {
    recorder_->fail("NOT_AN_ELEMENT",
                    fmt::format("'{}' is assigned but is not one element", region_.buffer->name),
                    value.loc(), fmt::format("{} indices", region_.offsets.size()),
                    fmt::format("{} dimensions left free", region_.order.size()),
                    "use k.fill or k.copy for tiles");
  }
  recorder_->check_inside(region_, value.loc());
  recorder_->store(region_, value.as(region_.buffer->dtype, recorder_), value.loc(), name_);
  return *this;
}

const Ref& Ref::operator=(const Ref& other) const {
  const SourceLoc loc = loc_.known() ? loc_ : region_.buffer->loc;
  if (!region_.order.empty() && !other.region_.order.empty()) {
    recorder_->fail("NOT_AN_ELEMENT",
                    fmt::format("'{}' is assigned to '{}', which does not rename it",
                                other.region_.buffer->name, region_.buffer->name),
                    loc, "one element on both sides", "buffers, or parts of them",
                    "a Ref names its buffer for good: begin another one, keep a "
                    "std::vector<Ref>, or copy with k.copy");
  }
  return *this = Arg(Value(other), loc);
}
const Ref& Ref::operator=(const Ref& other) {
  return static_cast<const Ref&>(*this) = other;
}
const Ref& Ref::operator+=(const Arg& value) const {
  return *this = Arg(Arg(*this, value.loc()) + value, value.loc());
}
const Ref& Ref::operator-=(const Arg& value) const {
  return *this = Arg(Arg(*this, value.loc()) - value, value.loc());
}
const Ref& Ref::operator*=(const Arg& value) const {
  return *this = Arg(Arg(*this, value.loc()) * value, value.loc());
}
const Ref& Ref::operator/=(const Arg& value) const {
  return *this = Arg(Arg(*this, value.loc()) / value, value.loc());
}

}  // namespace tessera::dsl
