// Ref: indexing, tiles, views, element reads and writes.

#include <fmt/format.h>

#include "dsl/recorder.h"
#include "dsl/value.h"

namespace tessera::dsl {
namespace {

bool is_index_type(DType type) {
  return type == DType::i32 || type == DType::i64 || type == DType::u32;
}

/// An index value: i32 or i64.
ir::Expr as_index(const Arg& arg, const Recorder& recorder) {
  const Value value = arg.value();
  if (!is_index_type(value.dtype())) {
    recorder.fail("INDEX_DTYPE", "an index must be an integer", arg.loc(), "i32, u32 or i64",
                  std::string(name(value.dtype())));
  }
  if (value.dtype() == DType::u32) return ir::cast(DType::i64, value.expr(), arg.loc());
  return value.expr();
}

}  // namespace

Ref Ref::index(std::vector<Arg> indices) const {
  const SourceLoc loc = indices.front().loc();
  const auto& buffer = *region_.buffer;
  if (indices.size() > region_.order.size()) {
    recorder_->fail("RANK", fmt::format("'{}' is indexed with too many values", buffer.name), loc,
                    fmt::format("at most {}", region_.order.size()),
                    fmt::format("{}", indices.size()));
  }
  ir::Region part = region_;
  for (const Arg& arg : indices) {
    const auto d = static_cast<size_t>(part.order.front());
    part.order.erase(part.order.begin());
    const ir::Expr i = as_index(arg, *recorder_);
    const ir::Expr extent = part.extents[d];
    if (ir::is_constant(i) &&
        (i->integer < 0 || (ir::is_constant(extent) && i->integer >= extent->integer))) {
      recorder_->fail("OOB_CONST", fmt::format("index of '{}' is out of range", buffer.name), loc,
                      fmt::format("0 <= index < {}", to_string(extent)),
                      fmt::format("{} in dimension {}", i->integer, d));
    }
    part.offsets[d] = part.offsets[d] + i;
    part.extents[d] = ir::Expr();
  }
  return Ref(recorder_, std::move(part), loc);
}

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

Ref Ref::tile(std::vector<Arg> offsets, std::vector<int64_t> extents, SourceLoc loc) const {
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
    if (ir::is_constant(offset) && ir::is_constant(part.extents[d]) &&
        (offset->integer < 0 || offset->integer + extents[i] > part.extents[d]->integer)) {
      recorder_->fail(
          "OOB_CONST", fmt::format("a tile of '{}' reaches outside", buffer.name), loc,
          fmt::format("within 0..{}", part.extents[d]->integer),
          fmt::format("{}..{} in dimension {}", offset->integer, offset->integer + extents[i], d));
    }
    // What lies outside of a global tensor is guarded.
    if (buffer.space != ir::Space::global && extents[i] > part.extents[d]->integer) {
      recorder_->fail("OOB_CONST", fmt::format("a tile of '{}' is larger than it", buffer.name),
                      loc, fmt::format("at most {}", part.extents[d]->integer),
                      fmt::format("{} in dimension {}", extents[i], d));
    }
    part.offsets[d] = part.offsets[d] + offset;
    part.extents[d] = ir::index(extents[i]);
  }
  return Ref(recorder_, std::move(part));
}

Ref Ref::transposed(SourceLoc loc) const {
  if (region_.order.size() < 2) {
    recorder_->fail("RANK", fmt::format("'{}' cannot be transposed", region_.buffer->name), loc,
                    "at least 2 free dimensions", fmt::format("{}", region_.order.size()));
  }
  ir::Region part = region_;
  std::swap(part.order[part.order.size() - 1], part.order[part.order.size() - 2]);
  return Ref(recorder_, std::move(part));
}

Ref Ref::reshape(std::vector<int64_t> shape, SourceLoc loc) const {
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
  view.dtype = buffer.dtype;
  view.space = buffer.space;
  view.alias_of = buffer.alias_of ? buffer.alias_of : region_.buffer;
  view.loc = loc;
  view.shape = std::move(extents);
  return recorder_->new_buffer(std::move(view));
}

Ref Ref::unchecked() const {
  ir::Region part = region_;
  part.terms.unchecked = true;
  return Ref(recorder_, std::move(part), loc_);
}

Ref Ref::cached(ir::CacheHint hint, SourceLoc loc) const {
  const ir::Buffer& buffer = *region_.buffer;
  if (buffer.space != ir::Space::global || buffer.dtype == DType::e2m1) {
    recorder_->fail("CACHE_HINT", fmt::format("'{}' takes no hint for the caches", buffer.name),
                    loc, "a global tensor of another dtype than e2m1",
                    fmt::format("{} {}", ir::name(buffer.space), name(buffer.dtype)));
  }
  ir::Region part = region_;
  part.terms.cache = hint;
  return Ref(recorder_, std::move(part), loc_);
}

Ref Ref::whole_rows(SourceLoc loc) const {
  const ir::Buffer& buffer = *region_.buffer;
  if (buffer.space != ir::Space::global || buffer.dtype == DType::e2m1) {
    recorder_->fail("CPASYNC_ROWS", fmt::format("'{}' has no rows to copy", buffer.name), loc,
                    "a global tensor of another dtype than e2m1",
                    fmt::format("{} {}", ir::name(buffer.space), name(buffer.dtype)));
  }
  if (buffer.is_output || buffer.may_alias) {  // bulk copies do not see what the kernel has stored
    recorder_->fail("CPASYNC_ROWS", fmt::format("'{}' has no rows to copy", buffer.name), loc,
                    "a tensor that the kernel does not write",
                    buffer.is_output ? "an output" : "one that may be the memory of an output");
  }
  ir::Region part = region_;
  part.terms.whole_rows = true;
  return Ref(recorder_, std::move(part), loc_);
}

Value Ref::read(SourceLoc loc) const {
  if (!region_.order.empty()) {
    recorder_->fail(
        "NOT_AN_ELEMENT",
        fmt::format("'{}' is used as a value but is not one element", region_.buffer->name), loc,
        fmt::format("{} indices", region_.offsets.size()),
        fmt::format("{} dimensions left free", region_.order.size()));
  }
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
  recorder_->store(region_, value.as(region_.buffer->dtype, recorder_), value.loc());
  return *this;
}

const Ref& Ref::operator=(const Ref& other) const {
  return *this = Arg(Value(other), loc_.known() ? loc_ : region_.buffer->loc);
}
const Ref& Ref::operator=(const Ref& other) {
  return static_cast<const Ref&>(*this) =
             Arg(Value(other), loc_.known() ? loc_ : region_.buffer->loc);
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

}  // namespace tessera::dsl
