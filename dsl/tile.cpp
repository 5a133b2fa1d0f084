// Arithmetic on whole tiles, and the statements of Builder that take it.

#include "dsl/tile.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {

struct Tile::Node {
  Recorder* recorder = nullptr;
  std::vector<int64_t> shape;
  DType dtype = DType::f32;
  SourceLoc loc;
  // Either the elements of a buffer..
  std::optional<Ref> ref = {};
  int name = 0;                  // of the region, for check_fresh
  std::optional<int> axis = {};  // a dimension of extent 1 that the buffer does not have
  // .. or the index of each element along a dimension, negative from the end..
  std::optional<int> index_axis = {};
  // .. or a function of other tiles.
  std::function<Value(const std::vector<Value>&)> fn = {};
  std::vector<Tile> operands = {};
};

namespace {

std::string text_of(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// A value of the dtype, to find out what a function makes of it.
Value any_value(Recorder* recorder, DType dtype) {
  auto var = std::make_shared<ir::Var>();
  var->name = "element";
  var->type = dtype;
  return Value(recorder, ir::var(var));
}

template <class Fn>
Tile map2(const Tile& a, const Tile& b, const Fn& fn) {
  return Tile::map([fn](const std::vector<Value>& v) { return fn(v[0], v[1]); }, {a, b}, {});
}
template <class Fn>
Tile map1(const Tile& a, const Fn& fn) {
  return Tile::map([fn](const std::vector<Value>& v) { return fn(v[0]); }, {a}, {});
}

/// Element d of a shape whose last dimensions these are.
int64_t extent_from_end(const std::vector<int64_t>& shape, size_t from_end) {
  return from_end < shape.size() ? shape[shape.size() - 1 - from_end] : 1;
}

/// A statement that takes its extents from the tile needs some: indices alone have none.
void require_extents(const Recorder& recorder, const Tile& tile, SourceLoc loc) {
  if (!tile.shape().empty()) return;
  recorder.fail("SHAPE", "a tile of indices has no extents of its own", loc,
                "an expression with a tile of a buffer", "k.index alone",
                "store it to a tile with extents");
}

/// A fragment of what is computed of `source`; messages call it so.
Ref made_of(const Ref& source, DType dtype, const std::vector<int64_t>& shape, std::string name,
            const std::string& what, SourceLoc loc) {
  const ir::Buffer& from = *source.region().buffer;
  ir::Buffer buffer;
  buffer.shape = constant_shape(*source.recorder(), shape, name, loc);
  buffer.name = std::move(name);
  buffer.stands_for =
      fmt::format("{} {}", what, from.stands_for.empty() ? from.name : from.stands_for);
  buffer.dtype = dtype;
  buffer.space = ir::Space::fragment;
  buffer.loc = loc;
  return source.recorder()->new_buffer(std::move(buffer));
}

}  // namespace

Tile::Tile(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
Tile::Tile(const Tile& other) = default;
Tile& Tile::operator=(const Tile& other) = default;
Tile::~Tile() = default;

Tile::Tile(const Ref& ref, SourceLoc loc) {
  const ir::Region& region = ref.region();
  Recorder& recorder = *ref.recorder();
  auto node = std::make_shared<Node>();
  node->recorder = &recorder;
  for (const ir::Expr& extent : region_shape(region)) {
    if (!ir::is_constant(extent)) {
      recorder.fail("REGION",
                    fmt::format("a tile of '{}' needs constant extents", region.buffer->name), loc,
                    "x.tile({offsets}, {extents})", shape_text(region_shape(region)));
    }
    node->shape.push_back(extent->integer);
  }
  if (node->shape.empty()) {
    recorder.fail("REGION", fmt::format("one element of '{}' is no tile", region.buffer->name), loc,
                  "at least 1 dimension left free", "0");
  }
  node->dtype = ref.dtype();
  node->loc = loc;
  node->ref = ref;
  node->name = recorder.new_name(*region.buffer);
  node_ = std::move(node);
}

Tile::Tile(const TileRef& ref, SourceLoc loc) : Tile(static_cast<const Ref&>(ref), loc) {}

const std::vector<int64_t>& Tile::shape() const {
  return node_->shape;
}

DType Tile::dtype() const {
  return node_->dtype;
}

TileRef Tile::ref(SourceLoc loc) const {
  if (!node_->ref) {
    node_->recorder->fail("NOT_A_BUFFER", "an expression of tiles is used as a buffer", loc,
                          "the tile of a buffer", "an expression", "k.evaluate(tile).ref()");
  }
  return TileRef(node_->axis ? node_->ref->reshape(node_->shape, loc) : *node_->ref);
}

Tile Tile::with_axis(int axis) const {
  auto node = std::make_shared<Node>(*node_);
  node->axis = axis;
  node->shape.insert(node->shape.begin() + axis, 1);
  return Tile(std::shared_ptr<const Node>(std::move(node)));
}

Tile Tile::map(std::function<Value(const std::vector<Value>&)> fn, std::vector<Tile> tiles,
               SourceLoc loc) {
  const Node& first = *tiles.front().node_;
  Recorder* recorder = first.recorder;
  auto node = std::make_shared<Node>();
  node->recorder = recorder;
  std::vector<Value> arguments;
  for (const Tile& tile : tiles) {
    const size_t rank = std::max(node->shape.size(), tile.shape().size());
    std::vector<int64_t> shape(rank);
    for (size_t i = 0; i < rank; ++i) {
      const int64_t a = extent_from_end(node->shape, i), b = extent_from_end(tile.shape(), i);
      if (a != b && a != 1 && b != 1) {
        recorder->fail("SHAPE", "tiles of an expression have different shapes",
                       loc.known() ? loc : tile.node_->loc, text_of(node->shape),
                       text_of(tile.shape()), "equal extents, or 1", first.loc);
      }
      shape[rank - 1 - i] = std::max(a, b);
    }
    node->shape = std::move(shape);
    arguments.push_back(any_value(recorder, tile.dtype()));
  }
  node->dtype = fn(arguments).dtype();
  node->loc = first.loc;
  node->fn = std::move(fn);
  node->operands = std::move(tiles);
  return Tile(std::shared_ptr<const Node>(std::move(node)));
}

Value Tile::at(const std::vector<Value>& index, const std::vector<int64_t>& extents) const {
  if (node_->index_axis) {
    const int axis = *node_->index_axis, rank = static_cast<int>(index.size());
    const int d = axis < 0 ? rank + axis : axis;
    if (d < 0 || d >= rank) {
      node_->recorder->fail(
          "SHAPE", "a tile of indices along an axis that the statement does not have", node_->loc,
          fmt::format("{} .. {}", -rank, rank - 1), fmt::format("{}", axis));
    }
    return index[static_cast<size_t>(d)];
  }
  if (!node_->ref) {
    std::vector<Value> arguments;
    for (const Tile& operand : node_->operands) arguments.push_back(operand.at(index, extents));
    return node_->fn(arguments);
  }
  std::vector<Arg> at;
  const std::vector<int64_t>& shape = node_->shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (node_->axis && static_cast<size_t>(*node_->axis) == d) continue;
    const size_t of_loop = extents.size() - shape.size() + d;
    const bool is_spread = shape[d] == 1 && extents[of_loop] != 1;
    at.push_back(is_spread ? Arg(0, node_->loc) : Arg(index[of_loop], node_->loc));
  }
  return node_->ref->index(std::move(at)).read(node_->loc);
}

void Tile::check_fresh(SourceLoc loc) const {
  if (node_->ref) {
    return node_->ref->recorder()->check_fresh(node_->name, node_->ref->region(), loc);
  }
  for (const Tile& operand : node_->operands) operand.check_fresh(loc);
}

// ---- Builder

Tile Builder::index(Axis axis, SourceLoc loc) {
  auto node = std::make_shared<Tile::Node>();
  node->recorder = recorder_.get();
  node->dtype = DType::i32;
  node->loc = loc;
  node->index_axis = static_cast<int>(axis);
  return Tile(std::shared_ptr<const Tile::Node>(std::move(node)));
}

Ref Builder::operand(const Tile& tile, SourceLoc loc) {
  return (tile.node_->ref ? tile : evaluate(tile, loc)).ref(loc);
}

Tile Builder::load(const Ref& from, SourceLoc loc) {
  const Tile source(from, loc);
  const Ref to = fragment(source.dtype(), source.shape(), from.region().buffer->name, loc);
  copy(from, to, loc);
  return Tile(to, loc);
}

Tile Builder::evaluate(const Tile& tile, SourceLoc loc) {
  require_extents(*recorder_, tile, loc);
  const Ref to = fragment(tile.dtype(), tile.shape(), "tile", loc);
  store(tile, to, loc);
  return Tile(to, loc);
}

void Builder::store(const Tile& tile, const Ref& to, SourceLoc loc) {
  for_elements(
      tile, to, [&](const Ref& element, const Value& value) { element = Arg(value, loc); }, loc);
}

void Builder::store(const Tile& tile, const TileAt& to, SourceLoc loc) {
  require_extents(*recorder_, tile, loc);
  store(tile, to.with_extents(tile.shape()), loc);
}

void Builder::atomic_add(const Ref& to, const Tile& tile, MemoryOrder order, SourceLoc loc) {
  for_elements(
      tile, to,
      [&](const Ref& element, const Value& value) {
        atomic_add(element, Arg(value, loc), order, loc);
      },
      loc);
}

void Builder::for_elements(const Tile& tile, const Ref& to,
                           const std::function<void(const Ref&, const Value&)>& body,
                           SourceLoc loc) {
  const std::vector<int64_t> extents = Tile(to, loc).shape();
  // Which dimension of `to` each of the tile is: the last ones, extents of 1 that `to` lacks aside.
  std::vector<int> dimension(tile.shape().size(), -1);
  auto free = static_cast<int>(extents.size());
  bool fits = true;
  for (size_t d = dimension.size(); d-- > 0;) {
    const int64_t extent = tile.shape()[d];
    const bool is_extra = static_cast<int>(d) + 1 > free;
    if (extent == 1 && is_extra && (free == 0 || extents[static_cast<size_t>(free - 1)] != 1)) {
      continue;
    }
    if (free > 0) dimension[d] = --free;
    fits = fits && dimension[d] >= 0 &&
           (extent == 1 || extent == extents[static_cast<size_t>(dimension[d])]);
  }
  if (!fits) {
    recorder_->fail("SHAPE",
                    fmt::format("a tile goes to '{}' of another shape", to.region().buffer->name),
                    loc, text_of(extents), text_of(tile.shape()));
  }
  tile.check_fresh(loc);
  parallel_loop(
      extents,
      [&](const std::vector<Value>& index) {
        // The dimensions of `to` in front of those of the tile, for indices of elements; then these.
        std::vector<Value> of_tile(index.begin(), index.begin() + free);
        std::vector<int64_t> extents_of_tile(extents.begin(), extents.begin() + free);
        for (const int d : dimension) {
          const auto place = static_cast<size_t>(d);
          of_tile.push_back(d < 0 ? Value(recorder_.get(), ir::index(0)) : index[place]);
          extents_of_tile.push_back(d < 0 ? 1 : extents[place]);
        }
        const Value value = tile.at(of_tile, extents_of_tile);
        std::vector<Arg> at;
        for (const Value& i : index) at.emplace_back(i, loc);
        const bool converts = value.dtype() != to.dtype();
        body(to.index(std::move(at)), converts ? cast(to.dtype(), Arg(value, loc)) : value);
      },
      loc);
}

Tile Builder::reduce(ir::ReduceOp op, const Tile& from, Axis axis, SourceLoc loc) {
  from.check_fresh(loc);
  const auto rank = static_cast<int>(from.shape().size());
  const int d = static_cast<int>(axis) < 0 ? rank + static_cast<int>(axis) : static_cast<int>(axis);
  if (d < 0 || d >= rank) {
    recorder_->fail("REDUCE", "a tile is reduced over an axis that it does not have", loc,
                    fmt::format("{} .. {}", -rank, rank - 1),
                    fmt::format("{}", static_cast<int>(axis)));
  }
  const bool is_fragment = from.node_->ref && !from.node_->axis &&
                           from.node_->ref->region().buffer->space == ir::Space::fragment;
  const Ref buffer = (is_fragment ? from : evaluate(from, loc)).ref(loc);
  const DType dtype =
      is_float(from.dtype()) && from.dtype() != DType::f64 ? DType::f32 : from.dtype();
  const auto result = [&](const std::vector<int64_t>& extents) {
    return made_of(buffer, dtype, extents, "reduced", fmt::format("reduce_{} of", ir::name(op)),
                   loc);
  };
  if (rank == 1) {
    const Ref to = result({1});
    const Ref line = is_whole(buffer.region()) ? buffer : evaluate(from, loc).ref(loc);
    reduce(op, line.reshape({1, from.shape()[0]}, loc), to, Axis(1), loc);
    return Tile(to, loc);
  }
  std::vector<int64_t> shape = from.shape();
  shape.erase(shape.begin() + d);
  const Ref to = result(shape);
  reduce(op, buffer, to, Axis(d), loc);
  return Tile(to, loc).with_axis(d);
}

Tile Builder::reduce_sum(const Tile& from, Axis axis, SourceLoc loc) {
  return reduce(ir::ReduceOp::sum, from, axis, loc);
}
Tile Builder::reduce_max(const Tile& from, Axis axis, SourceLoc loc) {
  return reduce(ir::ReduceOp::max, from, axis, loc);
}
Tile Builder::reduce_min(const Tile& from, Axis axis, SourceLoc loc) {
  return reduce(ir::ReduceOp::min, from, axis, loc);
}
Tile Builder::reduce_absmax(const Tile& from, Axis axis, SourceLoc loc) {
  return reduce(ir::ReduceOp::absmax, from, axis, loc);
}

TileBest Builder::best(ir::ReduceOp op, const Tile& from, Axis axis, SourceLoc loc) {
  const Tile tile = from.node_->ref ? from : evaluate(from, loc);
  const Tile value = reduce(op, tile, axis, loc);
  const std::vector<int64_t>& extents = tile.shape();
  const size_t d = static_cast<int>(axis) < 0
                       ? extents.size() - static_cast<size_t>(-static_cast<int>(axis))
                       : static_cast<size_t>(axis);
  // The lowest index whose element is the value. Others stand for the last index, which never precedes one.
  const Ref places = made_of(*tile.node_->ref, DType::i32, extents, "places", "places in", loc);
  parallel_loop(
      extents,
      [&](const std::vector<Value>& index) {
        const Value mine = tile.at(index, extents), wanted = value.at(index, extents);
        const bool converts = mine.dtype() != wanted.dtype();
        const Value same = (converts ? cast(wanted.dtype(), Arg(mine, loc)) : mine) == wanted;
        std::vector<Arg> at;
        for (const Value& i : index) at.emplace_back(i, loc);
        places.index(std::move(at)) = Arg(select(same, index[d], extents[d] - 1), loc);
      },
      loc);
  return {value, reduce(ir::ReduceOp::min, Tile(places, loc), axis, loc)};
}

TileBest Builder::argmax(const Tile& from, Axis axis, SourceLoc loc) {
  return best(ir::ReduceOp::max, from, axis, loc);
}
TileBest Builder::argmin(const Tile& from, Axis axis, SourceLoc loc) {
  return best(ir::ReduceOp::min, from, axis, loc);
}

// ---- Operators and functions

#define TESSERA_TILE_BINARY(NAME, CALL)                                     \
  Tile NAME(const Tile& a, const Tile& b) {                                 \
    return map2(a, b, [](const Value& x, const Value& y) { return CALL; }); \
  }                                                                         \
  Tile NAME(const Tile& a, const Arg& b) {                                  \
    return map1(a, [y = b](const Value& x) { return CALL; });               \
  }                                                                         \
  Tile NAME(const Arg& a, const Tile& b) {                                  \
    return map1(b, [x = a](const Value& y) { return CALL; });               \
  }
TESSERA_TILE_BINARY(operator+, x + y)
TESSERA_TILE_BINARY(operator-, x - y)
TESSERA_TILE_BINARY(operator*, x* y)
TESSERA_TILE_BINARY(operator/, x / y)
TESSERA_TILE_BINARY(operator%, x % y)
TESSERA_TILE_BINARY(operator&, x& y)
TESSERA_TILE_BINARY(operator|, x | y)
TESSERA_TILE_BINARY(operator^, x ^ y)
TESSERA_TILE_BINARY(operator<, x < y)
TESSERA_TILE_BINARY(operator<=, x <= y)
TESSERA_TILE_BINARY(operator>, x > y)
TESSERA_TILE_BINARY(operator>=, x >= y)
TESSERA_TILE_BINARY(operator==, x == y)
TESSERA_TILE_BINARY(operator!=, x != y)
TESSERA_TILE_BINARY(operator&&, x&& y)
TESSERA_TILE_BINARY(operator||, x || y)
TESSERA_TILE_BINARY(max, max(x, y))
TESSERA_TILE_BINARY(min, min(x, y))
TESSERA_TILE_BINARY(copysign, copysign(x, y))
#undef TESSERA_TILE_BINARY

#define TESSERA_TILE_UNARY(NAME, CALL)                   \
  Tile NAME(const Tile& a) {                             \
    return map1(a, [](const Value& x) { return CALL; }); \
  }
TESSERA_TILE_UNARY(operator-, -x)
TESSERA_TILE_UNARY(operator!, !x)
TESSERA_TILE_UNARY(abs, abs(x))
TESSERA_TILE_UNARY(sqrt, sqrt(x))
TESSERA_TILE_UNARY(rsqrt, rsqrt(x))
TESSERA_TILE_UNARY(exp, exp(x))
TESSERA_TILE_UNARY(exp2, exp2(x))
TESSERA_TILE_UNARY(log, log(x))
TESSERA_TILE_UNARY(log2, log2(x))
TESSERA_TILE_UNARY(log1p, log1p(x))
TESSERA_TILE_UNARY(sin, sin(x))
TESSERA_TILE_UNARY(cos, cos(x))
TESSERA_TILE_UNARY(tanh, tanh(x))
TESSERA_TILE_UNARY(erf, erf(x))
TESSERA_TILE_UNARY(silu, silu(x))
TESSERA_TILE_UNARY(floor, floor(x))
TESSERA_TILE_UNARY(ceil, ceil(x))
TESSERA_TILE_UNARY(rint, rint(x))
TESSERA_TILE_UNARY(exp2_approx, exp2_approx(x))
TESSERA_TILE_UNARY(exp_approx, exp_approx(x))
TESSERA_TILE_UNARY(log2_approx, log2_approx(x))
TESSERA_TILE_UNARY(log_approx, log_approx(x))
TESSERA_TILE_UNARY(sin_approx, sin_approx(x))
TESSERA_TILE_UNARY(cos_approx, cos_approx(x))
TESSERA_TILE_UNARY(tanh_approx, tanh_approx(x))
TESSERA_TILE_UNARY(is_nan, is_nan(x))
TESSERA_TILE_UNARY(is_inf, is_inf(x))
TESSERA_TILE_UNARY(f32, cast(DType::f32, x))
TESSERA_TILE_UNARY(i32, cast(DType::i32, x))
#undef TESSERA_TILE_UNARY

Tile cast(DType dtype, const Tile& a) {
  return map1(a, [dtype](const Value& x) { return cast(dtype, x); });
}
Tile fma(const Tile& a, const Tile& b, const Tile& c) {
  return Tile::map([](const std::vector<Value>& v) { return fma(v[0], v[1], v[2]); }, {a, b, c},
                   {});
}
Tile select(const Tile& condition, const Tile& then, const Tile& otherwise) {
  return Tile::map([](const std::vector<Value>& v) { return select(v[0], v[1], v[2]); },
                   {condition, then, otherwise}, {});
}
Tile select(const Tile& condition, const Tile& then, const Arg& otherwise) {
  return map2(condition, then,
              [otherwise](const Value& c, const Value& x) { return select(c, x, otherwise); });
}

}  // namespace tessera::dsl
