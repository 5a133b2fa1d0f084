#include "codegen/passes/expand_tiles.h"

#include <fmt/format.h>

#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

class Expander {
 public:
  explicit Expander(int& next_var) : next_var_(next_var) {}

  ir::Body body(const ir::Body& from) {
    ir::Body to;
    for (const ir::Stmt& stmt : from) to.push_back(stmt);
    for (ir::Stmt& stmt : to) {
      for_each_body(stmt, [&](ir::Body& inner) { inner = body(inner); });
      const auto* const copy = std::get_if<ir::Copy>(&stmt.node);
      const bool is_store = copy != nullptr && copy->plan.engine == ir::Engine::tensor &&
                            copy->to.buffer->space == ir::Space::global;
      if (copy != nullptr && !is_store) {
        stmt.node = expand(*copy, stmt.loc);
      } else if (const auto* fill = std::get_if<ir::Fill>(&stmt.node)) {
        stmt.node = expand(*fill, stmt.loc);
      }
    }
    return to;
  }

 private:
  ir::VarRef new_var(std::string name, DType type, ir::VarKind kind, SourceLoc loc,
                     ir::Expr upper) {
    auto var = std::make_shared<ir::Var>();
    var->name = std::move(name);
    var->type = type;
    var->kind = kind;
    var->id = next_var_++;
    if (upper) {
      var->lower = ir::index(0);
      var->upper = std::move(upper);
    }
    var->loc = loc;
    return var;
  }

  /// A parallel loop over the extents of `to`; of a single element, one round.
  ir::Loop loop_over(const ir::Region& to, SourceLoc loc) {
    static const char* const kNames[] = {"i", "j", "k", "l"};
    ir::Loop loop;
    loop.kind = ir::LoopKind::parallel;
    loop.begin = ir::index(0);
    loop.step = ir::index(1);
    for (size_t i = 0; i < to.order.size(); ++i) {
      const ir::Expr& extent = to.extents[static_cast<size_t>(to.order[i])];
      loop.extents.push_back(extent);
      loop.vars.push_back(new_var(kNames[i], DType::i32, ir::VarKind::loop, loc, extent));
    }
    if (loop.vars.empty()) {
      loop.extents.push_back(ir::index(1));
      loop.vars.push_back(new_var(kNames[0], DType::i32, ir::VarKind::loop, loc, ir::index(1)));
    }
    return loop;
  }

  static std::vector<ir::Expr> indices(const ir::Region& region, const ir::Loop& loop) {
    std::vector<ir::Expr> result = region.offsets;
    for (size_t i = 0; i < region.order.size(); ++i) {
      const auto d = static_cast<size_t>(region.order[i]);
      result[d] = result[d] + ir::var(loop.vars[i]);
    }
    return result;
  }

  /// True if the element of this iteration exists; null if constants alone prove it for all.
  static ir::Expr inside(const ir::Region& region, const ir::Loop& loop) {
    const std::vector<ir::Expr> at = indices(region, loop);
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

  ir::Loop expand(const ir::Copy& copy, SourceLoc loc) {
    ir::Loop loop = loop_over(copy.to, loc);
    const ir::Buffer& from = *copy.from.buffer;
    auto var = new_var(from.name + "_value", from.dtype, ir::VarKind::value, loc, {});
    ir::Expr value = ir::cast(copy.to.buffer->dtype, ir::var(var), loc);
    if (copy.outside) {
      if (const ir::Expr test = inside(copy.from, loop)) {
        value = ir::select(test, value, copy.outside, loc);
      }
    }
    loop.body.push_back(
        {ir::ElementLoad{var, copy.from.buffer, indices(copy.from, loop), copy.from.terms}, loc});
    const std::vector<ir::Expr> to = indices(copy.to, loop);
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
    loop.label = fmt::format("{} {} -> {}", copy.adds ? "copy_add" : "copy", from.name,
                             copy.to.buffer->name);
    loop.plan = copy.plan;
    return loop;
  }

  ir::Loop expand(const ir::Fill& fill, SourceLoc loc) {
    ir::Loop loop = loop_over(fill.to, loc);
    loop.body.push_back(
        {ir::ElementStore{fill.to.buffer, indices(fill.to, loop), fill.value, fill.to.terms}, loc});
    loop.label = fmt::format("fill {}", fill.to.buffer->name);
    return loop;
  }

  int& next_var_;
};

}  // namespace

ir::Kernel expand_tiles(const ir::Kernel& kernel) {
  ir::Kernel result = kernel;
  result.body = Expander(result.num_vars).body(kernel.body);
  return result;
}

}  // namespace tessera::codegen
