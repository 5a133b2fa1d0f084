#include "dsl/reducer.h"

#include <fmt/format.h>

#include <algorithm>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {

struct TESSERA_LOCAL Reducer::State {
  State(Recorder* r, const Ref& fragment, ir::ReduceOp operation)
      : recorder(r), parts(fragment), op(operation) {}

  Recorder* recorder;
  Ref parts;  // the whole fragment
  ir::ReduceOp op;
  bool open = false;
  int scope = 0;   // of init()
  SourceLoc last;  // init or finalize, whichever came last
  ir::Expr start;
  Value result;

  const ir::Buffer& buffer() const { return *parts.region().buffer; }

  [[noreturn]] void fail(const std::string& what, const char* expected, const char* got,
                         SourceLoc loc) const {
    recorder->fail("REDUCER_STATE", fmt::format("reducer '{}' is {}", buffer().name, what), loc,
                   expected, got, {}, last);
  }
  /// Throws unless the reducer is open (or closed), as `what` needs.
  void require(bool is_open, const char* what, SourceLoc loc) const {
    if (open == is_open) return;
    const char* closed = last.known() ? "finalized" : "not initialised";
    fail(what,
         is_open ? "init(), then updates, then finalize()" : "finalize() before the next init()",
         open ? "open" : closed, loc);
  }
};

Reducer Builder::reducer(ReduceOp op, DType dtype, std::vector<int64_t> shape,
                         ReducerOptions options, std::string name, SourceLoc loc) {
  Recorder& r = *recorder_;
  if (op == ReduceOp::absmax ||
      (dtype != DType::f64 && dtype != DType::f32 && dtype != DType::i32 && dtype != DType::i64)) {
    r.fail("DTYPE", fmt::format("reducer '{}' is of a kind that does not exist", name), loc,
           "sum, max or min of f64, f32, i32 or i64",
           fmt::format("{} of {}", ir::name(op), tessera::name(dtype)));
  }
  if (!r.launched) {
    r.fail("NO_LAUNCH", fmt::format("reducer '{}' is declared before launch()", name), loc);
  }
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  const bool everywhere = elements == 1 || options.kind == ReducerKind::wide;
  constexpr int64_t kMostWide = 64;  // registers per thread, and tests per update
  if (everywhere && elements > kMostWide) {
    r.fail("SHAPE", fmt::format("wide reducer '{}' has too many elements", name), loc,
           fmt::format("at most {}", kMostWide), fmt::format("{}", elements),
           "use the narrow plan, or atomics on shared memory");
  }
  Ref parts = everywhere && elements > 0
                  ? fragment(dtype, layout::replicated(shape, 1), std::move(name), loc)
                  : fragment(dtype, std::move(shape), std::move(name), loc);
  return Reducer(std::make_shared<Reducer::State>(&r, parts, op));
}

void Reducer::open(ir::Expr start, SourceLoc loc) const {
  State& s = *state_;
  s.require(false, "opened twice", loc);
  if (s.recorder->parallel_depth > 0) {
    s.fail("opened inside a parallel loop", "init() outside", "a parallel loop around it", loc);
  }
  s.recorder->add({ir::ReducerInit{s.op, s.parts.region().buffer}, loc});
  s.open = true;
  s.scope = s.recorder->scope();
  s.last = loc;
  s.start = std::move(start);
}

void Reducer::init(SourceLoc loc) const {
  open({}, loc);
}

void Reducer::init(const Arg& start, SourceLoc loc) const {
  const Value value = start.as(state_->buffer().dtype, state_->recorder);
  state_->recorder->check_in_scope(value.expr(), loc);
  open(value.expr(), loc);
}

void Reducer::contribute(std::vector<ir::Expr> indices, const Arg& value, SourceLoc loc) const {
  const State& s = *state_;
  s.require(true, "updated while it is not open", loc);
  if (s.recorder->parallel_depth == 0) {
    s.fail("updated outside of a parallel loop", "one contribution per parallel iteration",
           "no parallel loop around it", loc);
  }
  const Value v = value.as(s.buffer().dtype, s.recorder);
  s.recorder->check_in_scope(v.expr(), loc);
  s.recorder->check_whole(v.expr());
  for (const ir::Expr& index : indices) s.recorder->check_in_scope(index, loc);
  s.recorder->add(
      {ir::ReducerUpdate{s.op, s.parts.region().buffer, std::move(indices), v.expr()}, loc});
}

void Reducer::update(const Arg& value, SourceLoc loc) const {
  const State& s = *state_;
  for (const ir::Expr& extent : s.buffer().shape) {
    if (ir::is_constant(extent, 1)) continue;
    s.recorder->fail("RANK", fmt::format("reducer '{}' has more than one element", s.buffer().name),
                     loc, fmt::format("{} indices and a value", s.buffer().shape.size()),
                     "a value alone");
  }
  contribute(s.parts.region().offsets, value, loc);
}

namespace {

std::vector<ir::Expr> indices_of(const Recorder& recorder, const Ref& element, SourceLoc loc) {
  const size_t rank = element.region().offsets.size();
  if (!element.region().order.empty()) {
    recorder.fail(
        "RANK",
        fmt::format("reducer '{}' is updated with too few indices", element.region().buffer->name),
        loc, fmt::format("{}", rank), fmt::format("{}", rank - element.region().order.size()));
  }
  return element.region().offsets;
}

}  // namespace

void Reducer::update(const Arg& i, const Arg& value, SourceLoc loc) const {
  contribute(indices_of(*state_->recorder, state_->parts(i), loc), value, loc);
}
void Reducer::update(const Arg& i, const Arg& j, const Arg& value, SourceLoc loc) const {
  contribute(indices_of(*state_->recorder, state_->parts(i, j), loc), value, loc);
}
void Reducer::update(const Arg& i, const Arg& j, const Arg& k, const Arg& value,
                     SourceLoc loc) const {
  contribute(indices_of(*state_->recorder, state_->parts(i, j, k), loc), value, loc);
}

void Reducer::close(const ir::BufferRef& to, ir::VarRef value, SourceLoc loc) const {
  State& s = *state_;
  s.require(true, "finalized while it is not open", loc);
  if (s.recorder->scope() != s.scope) {
    s.fail("finalized in another loop or branch than it was opened in",
           "init() and finalize() side by side", "another body", loc);
  }
  s.recorder->add({ir::ReducerFinalize{s.op, s.parts.region().buffer, s.start, to, value}, loc});
  s.open = false;
  s.last = loc;
}

void Reducer::finalize(const Ref& to, SourceLoc loc) const {
  Recorder& r = *state_->recorder;
  const ir::Buffer& from = state_->buffer();
  const ir::Buffer& result = *to.region().buffer;
  const std::vector<ir::Expr> shape = region_shape(to.region());
  const bool same =
      result.space == ir::Space::fragment && result.dtype == from.dtype &&
      std::equal(from.shape.begin(), from.shape.end(), shape.begin(), shape.end(), ir::equal);
  if (!same) {
    r.fail("REDUCE", fmt::format("reducer '{}' cannot close into '{}'", from.name, result.name),
           loc, fmt::format("a fragment {}{}", name(from.dtype), shape_text(from.shape)),
           fmt::format("{} {}{}", name(result.space), name(result.dtype), shape_text(shape)));
  }
  for (const ir::Expr& offset : to.region().offsets) r.check_in_scope(offset, loc);
  if (is_whole(to.region())) {
    close(to.region().buffer, {}, loc);
    return;
  }
  // The lowering finalizes into whole fragments: a part or a transposed view gets a copy.
  const Ref all = r.fragment_like(to.region(), loc);
  close(all.region().buffer, {}, loc);
  r.add({ir::Copy{all.region(), to.region()}, loc});
}

Value Reducer::finalize(SourceLoc loc) const {
  State& s = *state_;
  for (const ir::Expr& extent : s.buffer().shape) {
    if (ir::is_constant(extent, 1)) continue;
    s.recorder->fail("RANK", fmt::format("reducer '{}' has more than one element", s.buffer().name),
                     loc, "finalize(fragment)", "finalize()");
  }
  auto value = s.recorder->new_var(s.buffer().name, s.buffer().dtype, ir::VarKind::value, loc);
  close({}, value, loc);
  s.result = Value(s.recorder, ir::var(value));
  return s.result;
}

Value Reducer::value(SourceLoc loc) const {
  state_->require(false, "read before it is finalized", loc);
  if (!state_->result.expr()) {
    state_->fail("read without a result", "finalize() before", "no result", loc);
  }
  return state_->result;
}

}  // namespace tessera::dsl
