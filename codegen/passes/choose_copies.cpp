#include "codegen/passes/choose_copies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "codegen/analysis/disjoint_parts.h"
#include "codegen/layouts/layout_cost.h"
#include "codegen/passes/copy_obstacles.h"
#include "codegen/products/atoms.h"
#include "codegen/tile_ir/copy_loop.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"
#include "dsl/base/target_facts.h"

namespace tessera::codegen {
namespace {

constexpr size_t kMaxMaps = 16;  // of a kernel, 128 bytes each

class CopyChooser {
 public:
  CopyChooser(const ir::Kernel& kernel, Target target, std::vector<std::string>& notes)
      : kernel_(kernel), target_(target), notes_(notes), facts_(kernel, target) {
    look(kernel.body);
  }

  /// The divergent conditions and loops around a body.
  struct Apart {
    Divergence in_block;
    Divergence in_cluster;  // threads stay away, or come in other rounds of the loops around
  };
  void choose(ir::Body& body, Apart outer) {
    for (ir::Stmt& stmt : body) {
      facts_.in_block.note(stmt);
      facts_.in_cluster.note(stmt);
      if (const auto* begun = std::get_if<ir::Pointer>(&stmt.node))
        facts_.begun[begun->buffer->id] = facts_.role;
      const auto* loop = std::get_if<ir::Loop>(&stmt.node);
      if (loop != nullptr && leaves_apart(loop->body))
        diverge(outer.in_cluster, "a loop", stmt.loc);
      Apart inside = outer;
      const auto* branch = std::get_if<ir::If>(&stmt.node);
      if (branch != nullptr) {
        const std::string cause =
            fmt::format("the condition '{}'", ir::to_string(branch->condition));
        if (!facts_.in_block.is_common(branch->condition))
          diverge(inside.in_block, cause, stmt.loc);
        if (!facts_.in_cluster.is_common(branch->condition))
          diverge(inside.in_cluster, cause, stmt.loc);
      }
      if (loop != nullptr) {
        if (loop->kind == ir::LoopKind::parallel)
          diverge(inside.in_block, "a parallel loop", stmt.loc);
        if (!facts_.in_cluster.has_common_rounds(*loop))
          diverge(inside.in_cluster, "a loop", stmt.loc);
      }
      const std::set<const ir::Var*> loops = loops_;
      if (loop != nullptr) loops_.insert(loop->vars[0].get());
      const auto* turn = std::get_if<ir::RingTurn>(&stmt.node);
      const bool fills = turn != nullptr && turn->fills;
      if (fills) facts_.filled.insert(turn->ring);
      for_each_body(stmt, [&](ir::Body& inner) {
        facts_.math.enter_scope();
        const bool is_then = branch != nullptr && &inner == &branch->then;
        if (has_stores_ && is_then) facts_.math.add_fact(branch->condition);
        const ir::Body* const outer_role = facts_.role;
        if (std::holds_alternative<ir::Roles>(stmt.node)) facts_.role = &inner;
        choose(inner, inside);
        facts_.role = outer_role;
        facts_.math.leave_scope();
      });
      if (fills) facts_.filled.erase(turn->ring);
      loops_ = loops;
      if (auto* copy = std::get_if<ir::Copy>(&stmt.node)) choose(*copy, outer, stmt.loc);
      auto* rows = std::get_if<ir::Loop>(&stmt.node);
      if (rows != nullptr && rows->plan) choose_without_tensor(*rows->plan, *rows, stmt.loc);
    }
  }

 private:
  /// Keeps the outermost cause.
  static void diverge(Divergence& known, std::string cause, SourceLoc loc) {
    if (known.cause.empty()) known = {std::move(cause), loc};
  }

  /// Collects what copies need to know of other statements.
  void look(const ir::Body& body) {
    for (const ir::Stmt& stmt : body) {
      for_each_binding(stmt, [&](const ir::VarRef& var, const ir::Expr* value) {
        if (value == nullptr || !is_integer(var->type)) return;
        facts_.math.define(var, *value);
        values_.define(var, *value);
      });
      const auto* gemm = std::get_if<ir::Gemm>(&stmt.node);
      if (gemm != nullptr) add_tiles_read(*gemm, facts_.operands);
      const auto* copy = std::get_if<ir::Copy>(&stmt.node);
      if (copy != nullptr && copy->adds) ++num_adds_[copy->to.buffer->id];
      has_stores_ |= copy != nullptr && (copy->adds || copy->plan.engine == ir::Engine::tensor);
      facts_.has_roles = facts_.has_roles || std::holds_alternative<ir::Roles>(stmt.node);
      for_each_body(stmt, [&](const ir::Body& inner) { look(inner); });
    }
  }

  /// True if the blocks of a cluster may leave a loop with this body in different rounds.
  bool leaves_apart(const ir::Body& body) const {
    return std::any_of(body.begin(), body.end(), [&](const ir::Stmt& stmt) {
      return any_in(stmt, [&](const ir::Stmt& inner) {
        const auto* leave = std::get_if<ir::Break>(&inner.node);
        return leave != nullptr && !facts_.in_cluster.is_common(leave->condition);
      });
    });
  }

  void choose(ir::Copy& copy, const Apart& apart, SourceLoc loc) {
    const bool is_automatic = copy.plan.engine != ir::Engine::tensor;
    if (is_automatic && !copy.adds) return choose_without_tensor(copy, loc);
    const Sides sides = sides_of(copy);
    const std::string what =
        fmt::format("{}: {} {} -> {}", to_string(loc), copy.adds ? "copy_add" : "copy",
                    copy.from.buffer->name, copy.to.buffer->name);
    if (copy.adds && is_float(copy.to.buffer->dtype) && !adds_once(copy.to)) {
      note(what + ": COPY_ADD_ORDER: an element may get several additions, in any order");
    }
    Obstacle obstacle = find_obstacle(copy, sides, apart.in_block);
    const bool is_possible = !obstacle.found();
    if (!is_possible && !is_automatic) refuse(copy, sides, std::move(obstacle), loc);
    const char* const instead = copy.adds ? "atomics" : sides.stores ? "stores" : "pieces";
    const bool is_written = sides.tensor.buffer->map != nullptr;
    const TargetFacts target = facts_of(target_);
    if (!target.has_tensor_copies || (is_written && !target.writes_maps)) {
      const char* const lack =
          target.has_tensor_copies ? "writes no tensor maps" : "has no tensor copies";
      note(fmt::format("{}: {}: the target {}", what, instead, lack));
    } else if (!is_possible) {
      note(fmt::format("{}: {}: expected {}, got {}", what, instead, obstacle.expected,
                       obstacle.got));
    } else {
      copy.plan.engine = ir::Engine::tensor;
      note(fmt::format(
          "{}: tensor {} of {}{}", what,
          copy.adds      ? "additions"
          : sides.stores ? "stores"
                         : "copies",
          fmt::join(box_of(sides), " x "),
          sides.stores ? std::string() : choose_multicast(copy, apart.in_cluster, loc)));
      return;
    }
    choose_without_tensor(copy, loc);
  }

  // Copies that are none of boxes.
  void choose_without_tensor(ir::Copy& copy, SourceLoc loc) {
    if (copy.plan.when == ir::CopyTime::at_once) {
      copy.plan.engine = ir::Engine::threads;
      return;
    }
    int next_var = kernel_.num_vars;  // of a loop that only answers
    choose_without_tensor(copy.plan, loop_of(copy, loc, next_var), loc);
  }
  void choose_without_tensor(ir::CopyPlan& plan, const ir::Loop& loop, SourceLoc loc) {
    if (plan.when == ir::CopyTime::at_once) {
      plan.engine = ir::Engine::threads;
      return;
    }
    const ir::Buffer &from = *load_of(loop).buffer, &to = *store_of(loop).buffer;
    const std::string what = fmt::format("{}: copy {} -> {}", to_string(loc), from.name, to.name);
    if (plan.engine == ir::Engine::bulk) {
      note(what + ": bulk copies of its rows");
      return;
    }
    const std::vector<int64_t> widths = piece_widths(values_, loop);
    if (!widths.empty()) {
      plan.engine = ir::Engine::pieces;
      note(fmt::format("{}: pieces of {} bytes", what, widths.front() * bits(to.dtype) / 8));
      return;
    }
    const int64_t run = common_run(values_, loop);
    if (plan.when == ir::CopyTime::awaited) refuse_pieces(from, to, run, loc);
    plan.engine = ir::Engine::threads;
    note(fmt::format("{}: waits for its loads: {}", what,
                     from.dtype == to.dtype
                         ? fmt::format("runs of {} bits, the hardware copies 4, 8 or 16 bytes",
                                       run * bits(from.dtype))
                         : fmt::format("it converts {} to {}", name(from.dtype), name(to.dtype))));
  }

  [[noreturn]] void refuse_pieces(const ir::Buffer& from, const ir::Buffer& to, int64_t run,
                                  SourceLoc loc) const {
    throw Error(
        {.kind = ErrorKind::program,
         .op = kernel_.name,
         .what = fmt::format("'{}' cannot be copied to '{}' asynchronously", from.name, to.name),
         .expected = "aligned runs of 4, 8 or 16 bytes",
         .got = fmt::format("{} x {}, {} bits", run, name(from.dtype), run * bits(from.dtype)),
         .hint = "declare multiple_of for the strides and extents involved, or use k.copy",
         .code = "CPASYNC_WIDTH",
         .loc = loc});
  }

  /// Returns its part of the note.
  std::string choose_multicast(ir::Copy& copy, const Divergence& in_cluster, SourceLoc loc) const {
    const bool is_vouched = copy.plan.multicast == ir::Multicast::required;
    const bool is_asked = copy.plan.multicast != ir::Multicast::never;
    copy.plan.multicast = ir::Multicast::never;
    if (!is_asked || (kernel_.cluster == 1 && !is_vouched)) return {};
    const Obstacle obstacle = find_multicast_obstacle(facts_, copy, in_cluster, is_vouched);
    if (!obstacle.found()) {
      copy.plan.multicast = ir::Multicast::required;
      return fmt::format(", a part from each of {} blocks into all", kernel_.cluster);
    }
    if (is_vouched && facts_of(target_).has_multicast) refuse(copy, sides_of(copy), obstacle, loc);
    return fmt::format(", no multicast: {}, not {}", obstacle.got, obstacle.expected);
  }

  void note(std::string text) {
    if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) {
      notes_.push_back(std::move(text));
    }
  }

  [[noreturn]] void refuse(const ir::Copy& copy, const Sides& sides, Obstacle obstacle,
                           SourceLoc loc) const {
    throw Error(
        {.kind = ErrorKind::program,
         .op = kernel_.name,
         .what = fmt::format("'{}' cannot be copied to '{}' by tensor copies",
                             copy.from.buffer->name, copy.to.buffer->name),
         .argument = sides.tensor.buffer->name,
         .expected = std::move(obstacle.expected),
         .got = std::move(obstacle.got),
         .hint = copy.token >= 0 ? obstacle.remedy + "; or use k.copy" : std::move(obstacle.remedy),
         .code = "COPY_ENGINE",
         .loc = loc});
  }

  /// True if no element of the part gets two additions.
  bool adds_once(const ir::Region& part) const {
    return num_adds_.at(part.buffer->id) == 1 &&
           are_parts_disjoint(kernel_, facts_.math, loops_, part);
  }

  /// The first condition that is not proved.
  Obstacle find_obstacle(const ir::Copy& copy, const Sides& sides, const Divergence& in_block) {
    Obstacle obstacle = codegen::find_obstacle(facts_, copy, sides, in_block);
    if (obstacle.found()) return obstacle;
    maps_.insert({sides.tensor.buffer->id, box_of(sides)});
    if (maps_.size() > kMaxMaps) {
      return {fmt::format("at most {} tensor maps in a kernel", kMaxMaps), "one more",
              "copy by pieces where tiles are small, or take tiles of one shape from a tensor"};
    }
    // A pipelined loop issues it ahead, or it fills a ring.
    if (!sides.stores && copy.plan.when != ir::CopyTime::ahead) {
      return {"a copy that a pipelined loop issues ahead, or that fills a ring",
              "one that threads wait for", "copy in k.pipelined or in ring.fill"};
    }
    return {};
  }

  const ir::Kernel& kernel_;
  const Target target_;
  std::vector<std::string>& notes_;
  CopyFacts facts_;
  IndexMath values_;  // knows no conditions, as that of solve_layouts
  bool has_stores_ = false;
  std::set<const ir::Var*> loops_;                       // indices around the statement
  std::map<int, int> num_adds_;                          // copies that add, by tensor
  std::set<std::pair<int, std::vector<int64_t>>> maps_;  // tensor and box
};

}  // namespace

void choose_copies(ir::Kernel& kernel, Target target, std::vector<std::string>& notes) {
  CopyChooser(kernel, target, notes).choose(kernel.body, {});
}

}  // namespace tessera::codegen
