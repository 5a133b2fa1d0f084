#include "codegen/passes/expand_tiles.h"

#include <fmt/format.h>

#include "codegen/tile_ir/copy_loop.h"
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
      if (copy != nullptr && !is_by_engine(copy->plan)) {
        stmt.node = loop_of(*copy, stmt.loc, next_var_);
      } else if (const auto* fill = std::get_if<ir::Fill>(&stmt.node)) {
        stmt.node = expand(*fill, stmt.loc);
      }
    }
    return to;
  }

 private:
  ir::Loop expand(const ir::Fill& fill, SourceLoc loc) {
    ir::Loop loop = loop_over(fill.to, loc, next_var_);
    loop.body.push_back(
        {ir::ElementStore{fill.to.buffer, element_of(fill.to, loop), fill.value, fill.to.terms},
         loc});
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
