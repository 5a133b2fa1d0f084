// Builder: barriers, shuffles, votes and warp reductions.

#include <fmt/format.h>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

using ir::CollectiveKind;

void require_warps(const Recorder& r, const char* what, SourceLoc loc) {
  if (r.num_threads() % 32 != 0) {
    r.fail("PARTIAL_WARP", fmt::format("{} needs whole warps", what), loc,
           "a block size that is a multiple of 32", fmt::format("{} threads", r.num_threads()));
  }
}

Value collective(Recorder& r, CollectiveKind kind, std::vector<ir::Expr> args, DType type,
                 int width, SourceLoc loc) {
  require_warps(r, std::string(name(kind)).c_str(), loc);
  if (r.parallel_depth > 0) {
    r.fail("NESTED_PARALLEL", "a shuffle, vote or reduction of a warp inside a parallel loop", loc,
           "a statement of every thread", "one per iteration; which lanes have which is open",
           "use k.reduce_sum (_max, _min) or k.reducer, or put it before or after the loop");
  }
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) {
    r.fail("SHUFFLE_WIDTH", fmt::format("the width of {} must be a power of two", name(kind)), loc,
           "1, 2, 4, 8, 16 or 32", fmt::format("{}", width));
  }
  for (const ir::Expr& arg : args) r.check_in_scope(arg, loc);
  auto var = r.new_var(std::string(name(kind)), type, ir::VarKind::value, loc);
  r.add({ir::Collective{var, kind, std::move(args), width}, loc});
  return Value(&r, ir::var(var));
}

void require_integer(const Recorder& r, const char* what, const Arg& value, SourceLoc loc) {
  const DType type = value.value().dtype();
  if (is_integer(type)) return;
  r.fail("DTYPE", fmt::format("operand of '{}' has the wrong dtype", what), loc, "an integer",
         std::string(name(type)));
}

/// 8-bit and 4-bit floats are stored and converted, not computed with.
void require_number(const Recorder& r, CollectiveKind kind, DType type, SourceLoc loc) {
  if (is_integer(type) || (is_float(type) && bits(type) >= 16)) return;
  r.fail("DTYPE", fmt::format("operand of '{}' of a warp has the wrong dtype", name(kind)), loc,
         "an integer, f64, f32, f16 or bf16", std::string(name(type)),
         is_float(type) ? "convert it with f32(value)" : "use k.warp_any or k.warp_all");
}

}  // namespace

void Builder::sync(SourceLoc loc) {
  recorder_->add({ir::Sync{ir::SyncKind::block}, loc});
}
void Builder::sync_warp(SourceLoc loc) {
  recorder_->add({ir::Sync{ir::SyncKind::warp}, loc});
}

void Builder::sync_grid(SourceLoc loc) {
  recorder_->add({ir::Sync{ir::SyncKind::grid}, loc});
}

Value Builder::shuffle(Arg value, Arg lane, int width, SourceLoc loc) {
  const Value v = value.value();
  return collective(*recorder_, CollectiveKind::shuffle,
                    {v.expr(), lane.as(DType::i32, recorder_.get()).expr()}, v.dtype(), width, loc);
}
Value Builder::shuffle_xor(Arg value, Arg mask, int width, SourceLoc loc) {
  const Value v = value.value();
  return collective(*recorder_, CollectiveKind::shuffle_xor,
                    {v.expr(), mask.as(DType::i32, recorder_.get()).expr()}, v.dtype(), width, loc);
}
Value Builder::shuffle_up(Arg value, Arg delta, int width, SourceLoc loc) {
  const Value v = value.value();
  return collective(*recorder_, CollectiveKind::shuffle_up,
                    {v.expr(), delta.as(DType::i32, recorder_.get()).expr()}, v.dtype(), width,
                    loc);
}
Value Builder::shuffle_down(Arg value, Arg delta, int width, SourceLoc loc) {
  const Value v = value.value();
  return collective(*recorder_, CollectiveKind::shuffle_down,
                    {v.expr(), delta.as(DType::i32, recorder_.get()).expr()}, v.dtype(), width,
                    loc);
}

Value Builder::warp_reduce(CollectiveKind kind, ir::Op op, Arg value, SourceLoc loc) {
  Value v = value.value();
  require_number(*recorder_, kind, v.dtype(), loc);
  if (v.dtype() == DType::i32 || v.dtype() == DType::u32) {
    return collective(*recorder_, kind, {v.expr()}, v.dtype(), 32, loc);
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    const Value other = shuffle_xor(Arg(v, loc), Arg(mask, loc), 32, loc);
    v = Value(recorder_.get(), ir::binary(op, v.expr(), other.expr(), loc));
  }
  return v;
}
Value Builder::warp_sum(Arg value, SourceLoc loc) {
  return warp_reduce(CollectiveKind::reduce_add, ir::Op::add, std::move(value), loc);
}
Value Builder::warp_max(Arg value, SourceLoc loc) {
  return warp_reduce(CollectiveKind::reduce_max, ir::Op::max, std::move(value), loc);
}
Value Builder::warp_min(Arg value, SourceLoc loc) {
  return warp_reduce(CollectiveKind::reduce_min, ir::Op::min, std::move(value), loc);
}

Value Builder::warp_and(Arg value, SourceLoc loc) {
  require_integer(*recorder_, "warp_and", value, loc);
  return warp_reduce(CollectiveKind::reduce_and, ir::Op::bit_and, std::move(value), loc);
}
Value Builder::warp_or(Arg value, SourceLoc loc) {
  require_integer(*recorder_, "warp_or", value, loc);
  return warp_reduce(CollectiveKind::reduce_or, ir::Op::bit_or, std::move(value), loc);
}

Value Builder::warp_any(Arg condition, SourceLoc loc) {
  return collective(*recorder_, CollectiveKind::vote_any,
                    {condition.as(DType::boolean, recorder_.get()).expr()}, DType::boolean, 32,
                    loc);
}
Value Builder::warp_all(Arg condition, SourceLoc loc) {
  return collective(*recorder_, CollectiveKind::vote_all,
                    {condition.as(DType::boolean, recorder_.get()).expr()}, DType::boolean, 32,
                    loc);
}
Value Builder::ballot(Arg condition, SourceLoc loc) {
  return collective(*recorder_, CollectiveKind::ballot,
                    {condition.as(DType::boolean, recorder_.get()).expr()}, DType::u32, 32, loc);
}
Value Builder::match_any(Arg value, SourceLoc loc) {
  const Value v = value.value();
  if (!is_integer(v.dtype()) || bits(v.dtype()) < 32) {
    recorder_->fail("DTYPE", "match_any has an operand of the wrong dtype", loc,
                    "i32, u32, i64 or u64", std::string(name(v.dtype())));
  }
  return collective(*recorder_, CollectiveKind::match_any, {v.expr()}, DType::u32, 32, loc);
}

}  // namespace tessera::dsl
