#include "codegen/tile_ir/copy_loop.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

namespace tessera::codegen {
namespace {

ir::VarRef new_var(std::string name, DType type, ir::VarKind kind, SourceLoc loc, ir::Expr upper,
                   int& next_var) {
  auto var = std::make_shared<ir::Var>();
  var->name = std::move(name);
  var->type = type;
  var->kind = kind;
  var->id = next_var++;
  if (upper) {
    var->lower = ir::index(0);
    var->upper = std::move(upper);
  }
  var->loc = loc;
  return var;
}

/// True if the element of this iteration exists; null if constants alone prove it for all.
ir::Expr inside(const ir::Region& region, const ir::Loop& loop) {
  const std::vector<ir::Expr> at = element_of(region, loop);
  ir::Expr result;
  const auto require = [&](const ir::Expr& test) { result = result ? result && test : test; };
  for (size_t d = 0; d < at.size(); ++d) {
    const ir::Expr& extent = region.buffer->shape[d];
    const ir::Expr& offset = region.offsets[d];
    const int64_t size = region.extents[d] ? region.extents[d]->integer : 1;
    const bool exists = ir::is_constant(offset) && ir::is_constant(extent) &&
                        offset->integer >= 0 && offset->integer + size <= extent->integer;
    if (exists) continue;
    require(ir::binary(ir::Op::le, ir::constant(at[d]->type, 0), at[d]));
    require(at[d] < extent);
  }
  return result;
}

}  // namespace

ir::Loop loop_over(const ir::Region& to, SourceLoc loc, int& next_var) {
  static const char* const kNames[] = {"i", "j", "k", "l"};
  ir::Loop loop;
  loop.kind = ir::LoopKind::parallel;
  loop.begin = ir::index(0);
  loop.step = ir::index(1);
  for (size_t i = 0; i < to.order.size(); ++i) {
    const ir::Expr& extent = to.extents[static_cast<size_t>(to.order[i])];
    loop.extents.push_back(extent);
    loop.vars.push_back(new_var(kNames[i], DType::i32, ir::VarKind::loop, loc, extent, next_var));
  }
  if (loop.vars.empty()) {
    loop.extents.push_back(ir::index(1));
    loop.vars.push_back(
        new_var(kNames[0], DType::i32, ir::VarKind::loop, loc, ir::index(1), next_var));
  }
  return loop;
}

std::vector<ir::Expr> element_of(const ir::Region& region, const ir::Loop& loop) {
  std::vector<ir::Expr> result = region.offsets;
  for (size_t i = 0; i < region.order.size(); ++i) {
    const auto d = static_cast<size_t>(region.order[i]);
    result[d] = result[d] + ir::var(loop.vars[i]);
  }
  return result;
}

ir::Loop loop_of(const ir::Copy& copy, SourceLoc loc, int& next_var) {
  ir::Loop loop = loop_over(copy.to, loc, next_var);
  const ir::Buffer& from = *copy.from.buffer;
  auto var = new_var(from.name + "_value", from.dtype, ir::VarKind::value, loc, {}, next_var);
  ir::Expr value = ir::cast(copy.to.buffer->dtype, ir::var(var), loc);
  if (copy.outside) {
    if (const ir::Expr test = inside(copy.from, loop)) {
      value = ir::select(test, value, copy.outside, loc);
    }
  }
  loop.body.push_back(
      {ir::ElementLoad{var, copy.from.buffer, element_of(copy.from, loop), copy.from.terms}, loc});
  const std::vector<ir::Expr> to = element_of(copy.to, loop);
  if (copy.adds) {
    ir::Atomic sum;
    sum.op = ir::AtomicOp::add;
    sum.buffer = copy.to.buffer;
    sum.indices = to;
    sum.value = value;
    sum.terms = copy.to.terms;
    loop.body.push_back({std::move(sum), loc});
  } else {
    loop.body.push_back({ir::ElementStore{copy.to.buffer, to, value, copy.to.terms}, loc});
  }
  loop.label =
      fmt::format("{} {} -> {}", copy.adds ? "copy_add" : "copy", from.name, copy.to.buffer->name);
  loop.plan = copy.plan;
  return loop;
}

}  // namespace tessera::codegen
