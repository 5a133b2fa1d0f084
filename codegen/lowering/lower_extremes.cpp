// TileLowering: maxima and minima of 16-bit floats, and of 8-bit floats as such, in pairs.
//
// The extreme is one of the elements, so it is found in 16 bits and widened once. The order of
// comparisons is free: a NaN loses against everything, and -0 is below +0.

#include <fmt/format.h>

#include <algorithm>

#include "codegen/lowering/tile_lowering.h"

namespace tessera::codegen {
namespace {

/// The 16-bit float type that holds every value of the dtype; the dtype itself if there is none.
DType half_for(DType dtype) {
  return dtype == DType::e4m3 ? DType::f16 : dtype;
}
/// Elements per vector of neighbours in the innermost slots of a thread; 1 if they hold none.
int64_t neighbours(const layout::Layout& layout) {
  const int last = static_cast<int>(layout.shape().size()) - 1;
  for (const layout::Digit& digit : layout.digits()) {
    if (digit.axis == last && digit.div == 1 && digit.slot == 1) {
      return std::min<int64_t>(digit.extent & -digit.extent, 16);
    }
  }
  return 1;
}

/// True if every thread of the block owns an element in each slot.
bool fills_all_slots(const layout::Layout& layout, int64_t threads) {
  int64_t owners = 1;
  for (const layout::Digit& digit : layout.digits()) owners *= digit.thread > 0 ? digit.extent : 1;
  return !layout.is_ragged() && owners * layout.num_replicas() == threads;
}

/// Packs elements `even` and `odd` into one word, and back.
Expr pair_of(const Expr& even, const Expr& odd) {
  const auto bits = [](const Expr& half) {
    return ir::cast(DType::u32, ir::bitcast(DType::u16, half));
  };
  return ir::binary(ir::Op::bit_or, bits(even),
                    ir::binary(ir::Op::shl, bits(odd), ir::constant(DType::u32, 16)));
}
Expr half_of(DType dtype, const Expr& pair, int64_t shift) {
  const Expr bits =
      shift == 0 ? pair : ir::binary(ir::Op::shr, pair, ir::constant(DType::u32, shift));
  return ir::bitcast(dtype, ir::cast(DType::u16, bits));
}

}  // namespace

class ExtremeLowering {
 public:
  ExtremeLowering(TileLowering& tiles, const ir::Reduce& reduce, SourceLoc loc)
      : t_(tiles),
        from_(*reduce.from.buffer),
        to_(*reduce.to.buffer),
        axis_(reduce.axis),
        reduce_op_(reduce.op),
        op_(reduction_op(reduce.op)),
        loc_(loc),
        source_(t_.layouts_.fragments.at(from_.id)),
        in_(t_.array_of(reduce.from.buffer)),
        out_(t_.array_of(reduce.to.buffer)),
        half_(half_for(in_->dtype)),
        outputs_(t_.layouts_.fragments.at(to_.id).num_slots()),
        vector_(neighbours(source_)) {}

  bool applies() const {
    return reduce_op_ != ir::ReduceOp::sum && is_half(half_) && vector_ > 1 &&
           (out_->dtype == DType::f32 || out_->dtype == half_) &&
           fills_all_slots(source_, t_.group_.count);
  }

  void lower(const std::vector<int64_t>& masks) {
    // If neighbours belong to one output, even and odd elements have an extreme each.
    const bool along_neighbours = axis_ + 1 == static_cast<int>(from_.shape.size());
    parts_ = along_neighbours ? 2 : 1;
    found_ = out_->dtype == half_ && parts_ == 1 ? out_ : declare(out_->name, outputs_ * parts_);
    t_.fill(found_, reduction_identity(reduce_op_, half_), loc_);
    fold_own_slots();
    if (!masks.empty() && outputs_ % 2 == 0) {
      join_parts();
      for (const int64_t mask : masks) fold_lanes(mask);
      widen();
    } else {
      widen();
      t_.fold_lanes(reduce_op_, masks, out_, outputs_, loc_);
    }
  }

 private:
  ArrayRef declare(const std::string& name, int64_t size) {
    const ArrayRef array =
        t_.new_registers(fmt::format("{}_{}", name, tessera::name(half_)), half_, size, loc_);
    t_.emit({Declare{array, false}, loc_});
    return array;
  }
  void pairwise(ir::Op op, const Slice& into, std::vector<Slice> args, int64_t width) {
    t_.emit({Packed{op, into, std::move(args), static_cast<int>(width)}, loc_});
  }
  Expr load(const ArrayRef& array, const Expr& slot) {
    Access at;
    at.array = array;
    at.offset = t_.math_.simplify(slot);
    const VarRef value = t_.new_var(array->name + "_value", array->dtype, ir::VarKind::value);
    t_.emit({Load{at, value, {}}, loc_});
    return ir::var(value);
  }
  void store(const ArrayRef& array, const Expr& slot, const Expr& value) {
    Access at;
    at.array = array;
    at.offset = t_.math_.simplify(slot);
    t_.emit({Store{at, value, {}}, loc_});
  }

  void fold_own_slots() {
    std::vector<Expr> extents;
    for (const Expr& extent : from_.shape) extents.push_back(extent);
    t_.for_each_slot(source_, extents, vector_, loc_, [&](const TileLowering::Iteration& it) {
      std::vector<Expr> first;  // of the vector
      for (const Expr& coordinate : it.coordinates) {
        first.push_back(ir::substitute(
            coordinate, [&](const VarRef& var) { return var == it.lane ? ir::index(0) : Expr(); }));
      }
      Slice values{in_, t_.register_slot(from_, first, loc_)};
      if (in_->dtype != half_) {
        const Slice halves{declare(from_.name, vector_), ir::index(0)};
        t_.emit({Convert{halves, values, static_cast<int>(vector_)}, loc_});
        values = halves;
      }
      first.erase(first.begin() + axis_);
      const Expr output = t_.register_slot(to_, first, loc_);
      const Slice into{found_, t_.math_.simplify(output * ir::index(parts_))};
      if (parts_ == 1) {
        fold(into, values, vector_);
        return;
      }
      t_.unrolled("i", vector_ / 2, loc_, [&](const Expr& i) {
        const Slice pair{values.array, t_.math_.simplify(values.base + i * ir::index(2))};
        fold(into, pair, 2);
      });
    });
  }
  void fold(const Slice& into, const Slice& values, int64_t width) {
    const bool of_magnitude = reduce_op_ == ir::ReduceOp::absmax;
    t_.emit({Packed{op_, into, {into, values}, static_cast<int>(width), of_magnitude}, loc_});
  }

  void join_parts() {
    if (parts_ == 1) return;
    const ArrayRef even = declare(out_->name + "_even", outputs_);
    const ArrayRef odd = declare(out_->name + "_odd", outputs_);
    t_.unrolled("s", outputs_, loc_, [&](const Expr& s) {
      store(even, s, load(found_, s * ir::index(2)));
      store(odd, s, load(found_, s * ir::index(2) + ir::index(1)));
    });
    pairwise(op_, {even, ir::index(0)}, {{even, ir::index(0)}, {odd, ir::index(0)}}, outputs_);
    found_ = even;
    parts_ = 1;
  }

  void fold_lanes(int64_t mask) {
    const ArrayRef others = declare(out_->name + "_others", outputs_);
    t_.unrolled("s", outputs_ / 2, loc_, [&](const Expr& s) {
      const Expr even = s * ir::index(2), odd = even + ir::index(1);
      const VarRef other = t_.new_var(out_->name + "_other", DType::u32, ir::VarKind::value);
      const Expr mine = pair_of(load(found_, even), load(found_, odd));
      t_.emit(
          {Collective{other, ir::CollectiveKind::shuffle_xor, {mine, ir::index(mask)}, 32}, loc_});
      store(others, even, half_of(half_, ir::var(other), 0));
      store(others, odd, half_of(half_, ir::var(other), 16));
    });
    pairwise(op_, {found_, ir::index(0)}, {{found_, ir::index(0)}, {others, ir::index(0)}},
             outputs_);
  }

  /// Combines with the identity once more: the result of a comparison is no NaN, which the compiler
  /// would have to handle.
  void widen() {
    if (found_ == out_) return;
    t_.unrolled("s", outputs_, loc_, [&](const Expr& s) {
      const Expr first = load(found_, s * ir::index(parts_));
      const Expr second = parts_ == 1 ? reduction_identity(reduce_op_, out_->dtype)
                                      : load(found_, s * ir::index(2) + ir::index(1));
      store(out_, s, ir::binary(op_, ir::cast(out_->dtype, first), ir::cast(out_->dtype, second)));
    });
  }

  TileLowering& t_;
  const ir::Buffer& from_;
  const ir::Buffer& to_;
  const int axis_;
  const ir::ReduceOp reduce_op_;
  const ir::Op op_;
  const SourceLoc loc_;
  const layout::Layout& source_;
  const ArrayRef in_, out_;
  const DType half_;
  const int64_t outputs_;
  const int64_t vector_;  // neighbouring elements in one thread
  int64_t parts_ = 1;     // registers of found_ per output
  ArrayRef found_;
};

bool TileLowering::lower_extreme(const ir::Reduce& reduce, const std::vector<int64_t>& masks,
                                 SourceLoc loc) {
  ExtremeLowering lowering(*this, reduce, loc);
  if (!lowering.applies()) return false;
  lowering.lower(masks);
  return true;
}

}  // namespace tessera::codegen
