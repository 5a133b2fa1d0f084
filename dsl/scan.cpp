// Builder: scans, written in the language itself. A single line gives each thread one run
// of elements; several lines take one warp each, 32 elements at a time.

#include <fmt/format.h>

#include <limits>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

constexpr int kLanes = 32;

struct Lines {
  const Ref& from;
  const Ref& to;
  ScanOptions options;
  int axis = 0;
  int64_t length = 0, count = 1;

  /// Element `place` of line `line`, counted from where the scan begins.
  Ref of(const Ref& side, const Value& line, const Value& place) const {
    const Value at = options.from_end ? length - 1 - place : place;
    if (side.region().order.size() == 1) return side(at);
    return axis == 0 ? side(at, line) : side(line, at);
  }
};

void require_scannable(const Recorder& r, const Ref& side, SourceLoc loc) {
  const ir::Region& region = side.region();
  const ir::Buffer& buffer = *region.buffer;
  const bool on_chip = buffer.space == ir::Space::shared || buffer.space == ir::Space::fragment;
  if (!is_whole(region) || region.order.size() > 2 || !on_chip) {
    r.fail("SCAN", fmt::format("a scan does not take '{}'", buffer.name), loc,
           "a whole shared buffer or fragment of 1 or 2 dimensions",
           fmt::format("{} {}", name(buffer.space), shape_text(region_shape(region))));
  }
  const DType t = buffer.dtype;
  const bool is_integer = t == DType::i32 || t == DType::u32 || t == DType::i64 || t == DType::u64;
  if (!is_integer && t != DType::f32 && t != DType::f64) {
    r.fail("DTYPE", fmt::format("a scan does not take the dtype of '{}'", buffer.name), loc,
           "i32, u32, i64, u64, f64 or f32", std::string(name(t)));
  }
}

/// The result of combining no elements.
Arg neutral(ir::Op op, DType dtype, SourceLoc loc) {
  if (op == ir::Op::add || dtype == DType::u32 || dtype == DType::u64) return Arg(0, loc);
  if (dtype == DType::i32) return Arg(std::numeric_limits<int32_t>::min(), loc);
  if (dtype == DType::i64) return Arg(std::numeric_limits<int64_t>::min(), loc);
  return Arg(-std::numeric_limits<double>::infinity(), loc);
}

}  // namespace

void Builder::scan(ir::Op op, const Ref& from, const Ref& to, Axis axis, ScanOptions options,
                   SourceLoc loc) {
  Recorder& r = *recorder_;
  if (r.parallel_depth > 0) {
    r.fail("NESTED_PARALLEL", "a scan inside a parallel loop", loc, {}, {},
           "scan before or after the loop; several lines of a tile are one scan");
  }
  r.require_all_threads(loc);
  require_scannable(r, from, loc);
  require_scannable(r, to, loc);
  const ir::Buffer& buffer = *from.region().buffer;
  const ir::Buffer& result = *to.region().buffer;
  bool same = buffer.shape.size() == result.shape.size() && buffer.dtype == result.dtype;
  for (size_t d = 0; same && d < buffer.shape.size(); ++d) {
    same = ir::equal(buffer.shape[d], result.shape[d]);
  }
  if (!same) {
    r.fail("SHAPE",
           fmt::format("a scan from '{}' to '{}' changes shape or dtype", buffer.name, result.name),
           loc, fmt::format("{}{}", name(buffer.dtype), shape_text(buffer.shape)),
           fmt::format("{}{}", name(result.dtype), shape_text(result.shape)));
  }
  const auto rank = static_cast<int>(buffer.shape.size());
  if (static_cast<int>(axis) < 0 || static_cast<int>(axis) >= rank) {
    r.fail("REDUCE", fmt::format("a scan of '{}' along an axis it does not have", buffer.name), loc,
           fmt::format("0 .. {}", rank - 1), fmt::format("{}", static_cast<int>(axis)));
  }
  // Fragments go through shared memory. The author cannot name it, so the author's syncs do not
  // order it.
  const bool by_hand = r.manual_sync;
  std::vector<int64_t> shape;
  for (const ir::Expr& extent : buffer.shape) shape.push_back(extent->integer);
  if (buffer.space == ir::Space::fragment || result.space == ir::Space::fragment) {
    const Ref staged = shared(buffer.dtype, shape, buffer.name + "_scan", loc);
    r.manual_sync = false;
    copy(from, staged, loc);
    scan(op, staged, staged, axis, options, loc);
    copy(staged, to, loc);
    r.manual_sync = by_hand;
    return;
  }

  Lines lines{from, to, options};
  lines.axis = static_cast<int>(axis);
  lines.length = shape[static_cast<size_t>(lines.axis)];
  if (rank == 2) lines.count = shape[static_cast<size_t>(1 - lines.axis)];
  const DType dtype = buffer.dtype;
  const int64_t length = lines.length;
  const auto combine = [&](const Value& a, const Value& b) {
    return Value(&r, ir::binary(op, a.expr(), b.expr(), loc));
  };
  // The inclusive scan of one value per lane of a warp.
  const auto scan_lanes = [&](const Ref& value) {
    for (int reach = 1; reach < kLanes; reach *= 2) {
      const Value mine = value.read(loc);
      const Value before = shuffle_up(mine, reach, kLanes, loc);
      if_(
          lane() >= reach, [&] { value = Arg(combine(before, mine), loc); }, loc);
    }
  };
  const Arg none = neutral(op, dtype, loc);
  const auto number = [&](int64_t i) { return Value(&r, ir::index(i)); };

  if (lines.count > 1) {
    // All warps take the same number of rounds, because shuffles need whole warps. Lanes past the
    // end of a line hold 0, which no other lane uses.
    const int64_t warps = std::max(1, r.num_threads() / kLanes);
    const int64_t turns = (lines.count + warps - 1) / warps;
    const int64_t segments = (length + kLanes - 1) / kLanes;
    const auto turn_body = [&](const Value& turn) {
      const Value line = let("line", turn * warps + warp(), loc);
      const Ref carry = var(dtype, options.exclusive ? none : Arg(0, loc), "carry", loc);
      const auto segment_body = [&](const Value& segment) {
        const Value at = let("at", segment * kLanes + lane(), loc);
        const Value inside = let("inside", line < lines.count && at < length, loc);
        const Ref value = var(dtype, 0, "prefix", loc);
        if_(
            inside, [&] { value = Arg(lines.of(from, line, at).read(loc), loc); }, loc);
        scan_lanes(value);
        if_(
            segment > 0, [&] { value = Arg(combine(carry.read(loc), value.read(loc)), loc); }, loc);
        Value written = value.read(loc);
        if (options.exclusive) {
          const Value before = shuffle_up(written, 1, kLanes, loc);
          written = select(lane() == 0, Arg(carry.read(loc), loc), before);
        }
        if_(
            inside, [&] { lines.of(to, line, at) = Arg(written, loc); }, loc);
        carry = Arg(shuffle(value.read(loc), kLanes - 1, kLanes, loc), loc);
      };
      serial(0, segments, segment_body, 1, loc);
    };
    serial(0, turns, turn_body, 1, loc);
    return;
  }

  // One line: thread t owns `run` elements from t * run on.
  const int64_t threads = r.num_threads();
  const int64_t run = (length + threads - 1) / threads;
  const int64_t used = (length + run - 1) / run;  // threads that own elements
  const int64_t warps = (used + kLanes - 1) / kLanes;
  const Value first = let("first", thread() * run, loc);
  const Ref own = local(dtype, {run}, "own", loc);
  const Ref total = var(dtype, 0, "total", loc);
  const auto element = [&](int64_t i) { return first + i; };
  for (int64_t i = 0; i < run; ++i) {
    // Else a thread would keep the value of the scan before, in a loop, in a register.
    own(i) = Arg(cast(dtype, number(0)), loc);
    if_(
        element(i) < length,
        [&] {
          const Value value = lines.of(from, number(0), element(i)).read(loc);
          const Value sum = i == 0 ? value : combine(total.read(loc), value);
          own(i) = Arg(sum, loc);
          total = Arg(sum, loc);
        },
        loc);
  }
  // Threads without elements come after all others, so no thread uses their values.
  const Ref prefix = var(dtype, total.read(loc), "prefix", loc);
  scan_lanes(prefix);
  const Ref before = var(dtype, 0, "before", loc);
  const Value lane_before = shuffle_up(prefix.read(loc), 1, kLanes, loc);
  before = Arg(lane_before, loc);
  if (warps > 1) {
    const Ref totals = shared(dtype, {warps}, buffer.name + "_totals", loc);
    r.manual_sync = false;
    if_(
        lane() == kLanes - 1 && warp() < warps - 1,
        [&] { totals(min(warp(), warps - 1)) = Arg(prefix.read(loc), loc); }, loc);
    if_(
        warp() > 0 && warp() < warps,
        [&] {
          const Ref sum = var(dtype, totals(0).read(loc), "sum", loc);
          serial(
              1, warp(),
              [&](const Value& w) { sum = Arg(combine(sum.read(loc), totals(w).read(loc)), loc); },
              1, loc);
          if_else(
              lane() == 0, [&] { before = Arg(sum.read(loc), loc); },
              [&] { before = Arg(combine(sum.read(loc), lane_before), loc); }, loc);
        },
        loc);
    r.manual_sync = by_hand;
  }
  for (int64_t i = 0; i < run; ++i) {
    if_(
        element(i) < length,
        [&] {
          const Ref element_of_to = lines.of(to, number(0), element(i));
          const int64_t last = options.exclusive ? i - 1 : i;  // of `own`
          if_else(
              thread() > 0,
              [&] {
                const Value sum = before.read(loc);
                element_of_to = Arg(last < 0 ? sum : combine(sum, own(last).read(loc)), loc);
              },
              [&] { element_of_to = last < 0 ? none : Arg(own(last).read(loc), loc); }, loc);
        },
        loc);
  }
}

void Builder::scan_sum(const Ref& from, const Ref& to, Axis axis, ScanOptions options,
                       SourceLoc loc) {
  scan(ir::Op::add, from, to, axis, options, loc);
}
void Builder::scan_max(const Ref& from, const Ref& to, Axis axis, ScanOptions options,
                       SourceLoc loc) {
  scan(ir::Op::max, from, to, axis, options, loc);
}

}  // namespace tessera::dsl
