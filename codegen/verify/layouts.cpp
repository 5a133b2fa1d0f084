#include "codegen/verify/layouts.h"

#include <fmt/format.h>

#include "codegen/rule.h"
#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

class LayoutVerifier {
 public:
  LayoutVerifier(const ir::Kernel& kernel, const LayoutSolution& plan, std::string_view after)
      : kernel_(kernel), layouts_(plan), after_(after), threads_(kernel.threads) {}

  void run() {
    for_each_use(kernel_.body, [&](const ir::BufferRef& buffer, bool) {
      if (buffer->space == ir::Space::fragment) verify_fragment(*buffer);
    });
    verify_loops(kernel_.body);
  }

 private:
  template <class What>
  void require(bool holds, std::string_view rule, const What& what, SourceLoc loc) const {
    require_rule(holds, after_, rule, what, loc);
  }

  void verify_fragment(const ir::Buffer& fragment) {
    const auto found = layouts_.fragments.find(fragment.id);
    require(found != layouts_.fragments.end(), "a fragment has a layout", fragment.name,
            fragment.loc);
    verify_layout(found->second, fragment.shape, fragment.name, fragment.loc);
  }

  void verify_loops(const ir::Body& body) {
    for (const ir::Stmt& stmt : body) {
      const auto* loop = std::get_if<ir::Loop>(&stmt.node);
      if (loop != nullptr && loop->kind == ir::LoopKind::parallel) verify_loop(*loop, stmt.loc);
      if (const auto* roles = std::get_if<ir::Roles>(&stmt.node)) {
        for (const ir::Roles::Role& role : roles->roles) {
          threads_ = role.count;
          verify_loops(role.body);
        }
        threads_ = kernel_.threads;
        continue;
      }
      for_each_body(stmt, [&](const ir::Body& inner) { verify_loops(inner); });
    }
  }

  void verify_loop(const ir::Loop& loop, SourceLoc loc) {
    const std::string& name = loop.label.empty() ? loop.vars[0]->name : loop.label;
    const auto found = layouts_.loops.find(loop_id(loop));
    require(found != layouts_.loops.end(), "a parallel loop has a layout", name, loc);
    const LoopLayout& plan = found->second;
    verify_layout(plan.layout, loop.extents, name, loc);
    require(plan.vector > 0 && loop.extents.back()->integer % plan.vector == 0,
            "the vector width of a loop divides its last extent",
            fmt::format("{} by {}", name, plan.vector), loc);
    require(plan.copies != Copies::none || plan.layout.num_replicas() == 1,
            "an iteration that must run once has one thread", name, loc);
  }

  void verify_layout(const layout::Layout& layout, const std::vector<ir::Expr>& extents,
                     const std::string& name, SourceLoc loc) const {
    std::vector<int64_t> shape;
    for (const ir::Expr& extent : extents) shape.push_back(extent->integer);
    const auto text = [&] { return fmt::format("{}: {}", name, layout::to_string(layout)); };
    require(layout.shape() == shape, "a layout has the shape of what it lays out", text, loc);
    require(
        layout.num_threads() <= threads_, "a layout needs at most the threads that hold it",
        [&] { return fmt::format("{}: {} of {}", name, layout.num_threads(), threads_); }, loc);
    require(!layout::find_collision(layout), "a layout gives no register to two elements", text,
            loc);
  }

  const ir::Kernel& kernel_;
  const LayoutSolution& layouts_;
  const std::string_view after_;
  int64_t threads_;  // of the block, or of the role around
};

}  // namespace

void verify_layouts(const ir::Kernel& kernel, const LayoutSolution& plan, std::string_view after) {
  LayoutVerifier(kernel, plan, after).run();
}

}  // namespace tessera::codegen
