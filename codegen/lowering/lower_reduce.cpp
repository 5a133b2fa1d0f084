// TileLowering: reductions of fragments.
//
// The order depends only on shapes and block size. Every thread folds its own slots in ascending
// order, from the identity. Lanes of a warp fold by xor of ascending thread digits, the largest
// distance first. Parts in different warps (and groups that are no powers of two) go through shared
// memory once and are folded in ascending order of the thread digit.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "codegen/lowering/tile_lowering.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

bool power_of_two(int64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

}  // namespace

Expr reduction_identity(ir::ReduceOp op, DType dtype) {
  if (is_float(dtype)) {
    const double infinity = std::numeric_limits<double>::infinity();
    switch (op) {
      case ir::ReduceOp::max:
        return ir::float_constant(dtype, -infinity);
      case ir::ReduceOp::min:
        return ir::float_constant(dtype, infinity);
      default:
        return ir::float_constant(dtype, 0);
    }
  }
  const int width = bits(dtype);
  switch (op) {
    case ir::ReduceOp::max:
      if (!is_signed(dtype)) return ir::constant(dtype, 0);
      return ir::constant(
          dtype, width == 64 ? std::numeric_limits<int64_t>::min() : -(int64_t{1} << (width - 1)));
    case ir::ReduceOp::min:
      if (!is_signed(dtype)) return ir::constant(dtype, -1);
      return ir::constant(dtype, width == 64 ? std::numeric_limits<int64_t>::max()
                                             : (int64_t{1} << (width - 1)) - 1);
    default:
      return ir::constant(dtype, 0);
  }
}

ir::Op reduction_op(ir::ReduceOp op) {
  switch (op) {
    case ir::ReduceOp::sum:
      return ir::Op::add;
    case ir::ReduceOp::min:
      return ir::Op::min;
    default:
      return ir::Op::max;
  }
}

void TileLowering::combine(ir::ReduceOp op, const Slice& into, const Expr& value, SourceLoc loc) {
  Access at;
  at.array = into.array;
  at.offset = into.base;
  const VarRef before = new_var(into.array->name + "_value", into.array->dtype, ir::VarKind::value);
  emit({Load{at, before, {}}, loc});
  emit({Store{at, ir::binary(reduction_op(op), ir::var(before), value), {}}, loc});
}

void TileLowering::lower_reduce(const ir::Reduce& reduce, SourceLoc loc) {
  const ir::Buffer& from = *reduce.from.buffer;
  const layout::Layout& source = layouts_.fragments.at(from.id);
  const layout::Layout& target = layouts_.fragments.at(reduce.to.buffer->id);
  const layout::Layout result = layout::reduce(source, reduce.axis);
  emit({Comment{
            fmt::format("reduce_{} {} -> {}", name(reduce.op), from.name, reduce.to.buffer->name)},
        loc});

  // The destination may hold fewer replicas than the reduction leaves; its slots must be the same.
  if (target.digits() != result.digits()) {
    fail("LAYOUT_CONFLICT",
         fmt::format("the result '{}' of a reduction has another layout than the reduction leaves",
                     reduce.to.buffer->name),
         loc, to_string(result), to_string(target));
  }
  const ArrayRef in = array_of(reduce.from.buffer);
  const ArrayRef out = array_of(reduce.to.buffer);
  const int64_t outputs = target.num_slots();

  std::vector<layout::Digit> parts;
  for (const layout::Digit& digit : source.digits()) {
    if (digit.axis == reduce.axis && digit.thread > 0) parts.push_back(digit);
  }
  const PartExchange exchange = exchange_of(parts);
  if (!lower_extreme(reduce, exchange.masks, loc)) {
    fold_own_slots(reduce, loc);
    fold_lanes(reduce.op, exchange.masks, out, outputs, loc);
  }
  fold_warps(reduce.op, exchange, out, outputs, loc);
}

void TileLowering::fill(const ArrayRef& registers, const Expr& value, SourceLoc loc) {
  unrolled("s", registers->size, loc, [&](const Expr& s) {
    Access at;
    at.array = registers;
    at.offset = s;
    emit({Store{at, value, {}}, loc});
  });
}

void TileLowering::fold_own_slots(const ir::Reduce& reduce, SourceLoc loc) {
  const ir::Buffer& from = *reduce.from.buffer;
  const ArrayRef in = array_of(reduce.from.buffer);
  const ArrayRef out = array_of(reduce.to.buffer);
  fill(out, reduction_identity(reduce.op, out->dtype), loc);
  std::vector<Expr> extents;
  for (const Expr& extent : from.shape) extents.push_back(extent);
  for_each_slot(layouts_.fragments.at(from.id), extents, 1, loc, [&](const Iteration& it) {
    std::vector<Expr> kept = it.coordinates;
    kept.erase(kept.begin() + reduce.axis);
    Access at;
    at.array = in;
    at.offset = register_slot(from, it.coordinates, loc);
    const VarRef element = new_var(from.name + "_value", in->dtype, ir::VarKind::value);
    emit({Load{at, element, {}}, loc});
    Expr value = ir::cast(out->dtype, ir::var(element));
    if (reduce.op == ir::ReduceOp::absmax) value = ir::unary(ir::Op::abs, value);
    combine(reduce.op, {out, register_slot(*reduce.to.buffer, kept, loc)}, value, loc);
  });
}

TileLowering::PartExchange TileLowering::exchange_of(
    const std::vector<layout::Digit>& digits) const {
  PartExchange exchange;
  for (const layout::Digit& digit : digits) {
    const int64_t inside = digit.thread < kThreadsPerWarp
                               ? std::min<int64_t>(digit.extent, kThreadsPerWarp / digit.thread)
                               : 1;
    const bool butterfly = power_of_two(digit.thread) && inside > 1 && power_of_two(inside) &&
                           digit.extent % inside == 0 && group_.is_whole_warps();
    if (!butterfly) {
      exchange.through_shared.push_back(digit);
      continue;
    }
    for (int64_t mask = digit.thread; mask < digit.thread * inside; mask *= 2)
      exchange.masks.push_back(mask);
    if (inside < digit.extent) {
      exchange.through_shared.push_back(
          {digit.axis, digit.div * inside, digit.extent / inside, digit.thread * inside, 0});
    }
  }
  std::sort(exchange.masks.rbegin(), exchange.masks.rend());
  return exchange;
}

void TileLowering::fold_lanes(ir::ReduceOp op, const std::vector<int64_t>& masks,
                              const ArrayRef& result, int64_t outputs, SourceLoc loc) {
  for (const int64_t mask : masks) {
    unrolled("s", outputs, loc, [&](const Expr& s) {
      Access at;
      at.array = result;
      at.offset = s;
      const VarRef mine = new_var(result->name + "_mine", result->dtype, ir::VarKind::value);
      const VarRef other = new_var(result->name + "_other", result->dtype, ir::VarKind::value);
      emit({Load{at, mine, {}}, loc});
      emit(
          {Collective{other, ir::CollectiveKind::shuffle_xor, {ir::var(mine), ir::index(mask)}, 32},
           loc});
      emit({Store{at, ir::binary(reduction_op(op), ir::var(mine), ir::var(other)), {}}, loc});
    });
  }
}

/// Shared memory of `parts` parts of each output.
ArrayRef TileLowering::new_exchange(const ArrayRef& result, int64_t outputs, int64_t parts,
                                    SourceLoc loc) {
  auto scratch = std::make_shared<Array>();
  scratch->name = result->name + "_exchange";
  scratch->dtype = result->dtype;
  scratch->space = ArraySpace::shared;
  scratch->shape = {ir::index(outputs), ir::index(parts)};
  scratch->size = outputs * parts;
  scratch->loc = loc;
  result_.program.shared.push_back(scratch);
  return scratch;
}

// Through scratch[output][warp], where all lanes of a warp hold the same part: the first one writes it. Every
// thread reads runs of the parts of its `count` warps, in ascending order.
void TileLowering::fold_whole_warps(ir::ReduceOp op, int64_t count, const ArrayRef& result,
                                    int64_t outputs, SourceLoc loc) {
  const ArrayRef scratch = new_exchange(result, outputs, group_.count / kThreadsPerWarp, loc);
  const Expr warp = thread() / ir::index(kThreadsPerWarp);
  const auto slot = [&](const ArrayRef& array, const Expr& offset) {
    Access at;
    at.array = array;
    at.offset = offset;
    return at;
  };
  when(ir::binary(ir::Op::eq, thread() % ir::index(kThreadsPerWarp), ir::index(0)), loc, [&] {
    unrolled("s", outputs, loc, [&](const Expr& s) {
      const VarRef mine = new_var(result->name + "_mine", result->dtype, ir::VarKind::value);
      emit({Load{slot(result, s), mine, {}}, loc});
      Access to;
      to.array = scratch;
      to.indices = {s, warp};
      emit({Store{to, ir::var(mine), {}}, loc});
    });
  });
  int64_t width = 16 / bytes(result->dtype);
  while (count % width != 0) width /= 2;
  const Expr first =
      count * kThreadsPerWarp == group_.count ? ir::index(0) : warp - warp % ir::index(count);
  unrolled("s", outputs, loc, [&](const Expr& s) {
    emit({Store{slot(result, s), reduction_identity(op, result->dtype), {}}, loc});
    unrolled("p", count / width, loc, [&](const Expr& p) {
      const ArrayRef others = new_registers(result->name + "_others", result->dtype, width, loc);
      emit({Declare{others, false}, loc});
      Access parts;
      parts.array = scratch;
      parts.indices = {s, math_.simplify(first + p * ir::index(width))};
      parts.width = static_cast<int>(width);
      emit({Load{parts, nullptr, {others, ir::index(0)}}, loc});
      unrolled("i", width, loc, [&](const Expr& i) {
        const VarRef other = new_var(result->name + "_other", result->dtype, ir::VarKind::value);
        emit({Load{slot(others, i), other, {}}, loc});
        combine(op, {result, s}, ir::var(other), loc);
      });
    });
  });
}

// Through scratch[output][thread]: every thread folds the parts of its group in ascending order.
void TileLowering::fold_warps(ir::ReduceOp op, const PartExchange& exchange, const ArrayRef& result,
                              int64_t outputs, SourceLoc loc) {
  const std::vector<layout::Digit>& exchanged = exchange.through_shared;
  if (exchanged.empty()) return;
  int64_t folded = 0;
  for (const int64_t mask : exchange.masks) folded |= mask;
  if (folded == kThreadsPerWarp - 1 && exchanged.size() == 1 &&
      exchanged[0].thread == kThreadsPerWarp) {
    return fold_whole_warps(op, exchanged[0].extent, result, outputs, loc);
  }
  const ArrayRef scratch = new_exchange(result, outputs, group_.count, loc);
  Expr base = thread();  // this thread with the exchanged digits cleared
  for (const layout::Digit& digit : exchanged) {
    base = base -
           thread() / ir::index(digit.thread) % ir::index(digit.extent) * ir::index(digit.thread);
  }
  unrolled("s", outputs, loc, [&](const Expr& s) {
    Access from;
    from.array = result;
    from.offset = s;
    const VarRef mine = new_var(result->name + "_mine", result->dtype, ir::VarKind::value);
    emit({Load{from, mine, {}}, loc});
    Access to;
    to.array = scratch;
    to.indices = {s, thread()};
    emit({Store{to, ir::var(mine), {}}, loc});
  });
  unrolled("s", outputs, loc, [&](const Expr& s) {
    Access into;
    into.array = result;
    into.offset = s;
    emit({Store{into, reduction_identity(op, result->dtype), {}}, loc});
    std::function<void(size_t, Expr)> fold = [&](size_t next, const Expr& position) {
      if (next < exchanged.size()) {
        unrolled("p", exchanged[next].extent, loc, [&](const Expr& p) {
          fold(next + 1, position + p * ir::index(exchanged[next].thread));
        });
        return;
      }
      Access part;
      part.array = scratch;
      part.indices = {s, math_.simplify(position)};
      const VarRef other = new_var(result->name + "_other", result->dtype, ir::VarKind::value);
      emit({Load{part, other, {}}, loc});
      combine(op, {result, s}, ir::var(other), loc);
    };
    fold(0, base);
  });
}

}  // namespace tessera::codegen
