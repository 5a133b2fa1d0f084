#include "codegen/passes/check_convergence.h"

#include "codegen/analysis/uniform.h"
#include "codegen/thread_ir/walk.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

using Over = UniformValues::Over;

/// Tracks which threads of the block, or of the grid, may have diverged.
class ReachCheck {
 public:
  ReachCheck(const Program& program, Over over, const std::vector<VarRef>& uniform)
      : program_(program), over_(over), uniform_(program, over, uniform) {
    walk(program.body,
         [&](const Stmt& stmt) { copies_in_bulk_ = copies_in_bulk_ || uses_async_proxy(stmt); });
  }
  void run() { visit(program_.body); }

 private:
  void visit(const Body& body) {
    for (const Stmt& stmt : body) {
      if (over_ == Over::grid) {
        check_grid(stmt);
      } else {
        check_block(stmt);
      }
      // The statement's own expressions decide whether, or how often, the threads go on.
      std::string why_not;
      const auto look = [&](const Expr& e) {
        if (why_not.empty() && !uniform_(e)) why_not = uniform_.why_not(e);
      };
      for_each_expression(stmt, look);
      if (const auto* loop = std::get_if<For>(&stmt.node)) {
        if (const Break* leave = break_of(*loop)) {
          look(leave->condition);
          if (leave->together && over_ == Over::block) check_break(*loop, *leave);
        }
      }
      const bool is_uniform = why_not.empty();
      if (has_order(stmt, Order::Kind::leave)) {
        if (apart_ != nullptr || !is_uniform) left_ = &stmt;
        any_left_ = &stmt;
      }
      under(stmt, why_not, [&] {
        for_each_body(stmt, [&](const Body& inner) {
          visit(inner);
          if (repeats(stmt)) visit(inner);  // a round continues what the last one left
        });
      });
    }
  }

  template <class Fn>
  void under(const Stmt& stmt, const std::string& why_not, const Fn& fn) {
    const Stmt* const before = apart_;
    if (!why_not.empty() && apart_ == nullptr) {
      apart_ = &stmt;
      why_apart_ = why_not;
    }
    fn();
    apart_ = before;
  }

  void check_break(const For& loop, const Break& leave) const {
    if (uniform_(leave.condition)) return;
    throw Error({.kind = ErrorKind::program,
                 .op = program_.name,
                 .what =
                     "threads may leave a loop in different rounds, and its body holds what all "
                     "threads of the block do together",
                 .expected = "a condition of break_if that is the same for the whole block",
                 .got = uniform_.why_not(leave.condition),
                 .hint = "let the block agree: reduce the condition, or vouch for it by k.uniform",
                 .code = "SYNC_DIVERGENT",
                 .loc = loop.body.back().loc});
  }

  void check_grid(const Stmt& stmt) const {
    if (!meets(stmt, Group::grid)) return;
    constexpr const char* hint = "put the work under if_ and keep the barrier outside";
    if (apart_ != nullptr) {
      fail("SYNC_DIVERGENT", "a barrier of the grid that some blocks may never reach",
           "conditions and loop bounds of sizes and parameters alone", hint, *apart_, stmt);
    }
    if (left_ != nullptr) {
      fail("RETURN_BEFORE_BARRIER",
           "some threads have left the kernel before this barrier of the grid",
           "a condition of return_if that is the same for the whole grid", hint, *left_, stmt);
    }
  }

  void check_block(const Stmt& stmt) const {
    constexpr const char* code = "RETURN_BEFORE_BARRIER";
    constexpr const char* hint =
        "return later, or put the work under if_ and keep the barrier outside";
    if (any_left_ != nullptr && meets(stmt, Group::cluster)) {
      fail(code,
           "some blocks of the cluster may have left the kernel before this point, where they meet",
           "no return_if before it", hint, *any_left_, stmt);
    }
    // Bulk copies complete when all warps have committed their group.
    const bool commits_bulk = copies_in_bulk_ && has_order(stmt, Order::Kind::commit, Work::copies);
    if (commits_bulk && apart_ != nullptr) {
      fail("SYNC_DIVERGENT",
           "an asynchronous copy that some threads may never start, in a kernel that copies in "
           "bulk",
           "conditions and loop bounds that are the same for the whole block",
           "copy outside of the condition, or leave out bulk()", *apart_, stmt);
    }
    const bool is_copy = commits_bulk || has_order(stmt, Order::Kind::commit, Work::stores);
    if (left_ != nullptr && (is_copy || waits(stmt))) {
      fail(code,
           meets(stmt, Group::block) || meets(stmt, Group::cluster) || meets(stmt, Group::grid)
               ? "some threads have left the kernel before this barrier of the block"
           : is_copy ? "some threads have left the kernel before this copy of the whole block"
                     : "some threads have left the kernel before this step of the whole warp",
           "a condition of return_if that is the same for the whole block", hint, *left_, stmt);
    }
  }

  /// True if all threads of some group must take part.
  static bool waits(const Stmt& stmt) {
    return any_order(stmt, [](const Order& order) {
      switch (order.kind) {
        case Order::Kind::converge:
        case Order::Kind::exchange:
        case Order::Kind::barrier:
        case Order::Kind::arrive:
        case Order::Kind::wait:
          return order.group != Group::thread;
        case Order::Kind::fence:
        case Order::Kind::proxy_fence:
        case Order::Kind::commit:
        case Order::Kind::await:
        case Order::Kind::previous_kernel:
        case Order::Kind::next_kernel:
        case Order::Kind::leave:
          return false;
      }
      return true;
    });
  }

  /// True for a barrier of the group, or half of one.
  static bool meets(const Stmt& stmt, Group group) {
    return any_order(stmt, [&](const Order& order) {
      const bool is_barrier = order.kind == Order::Kind::barrier ||
                              order.kind == Order::Kind::arrive || order.kind == Order::Kind::wait;
      return is_barrier && order.group == group;
    });
  }

  [[noreturn]] void fail(const char* code, const char* what, const char* expected, const char* hint,
                         const Stmt& cause, const Stmt& stmt) const {
    throw Error({.kind = ErrorKind::program,
                 .op = program_.name,
                 .what = what,
                 .expected = expected,
                 .got = &cause == apart_ ? why_apart_ : std::string(),
                 .hint = hint,
                 .code = code,
                 .loc = stmt.loc,
                 .related = cause.loc});
  }

  const Program& program_;
  const Over over_;
  const UniformValues uniform_;
  const Stmt* apart_ = nullptr;     // the outermost condition around that not all threads share
  std::string why_apart_;           // the first value in it that differs
  const Stmt* left_ = nullptr;      // a return that not all of them take together
  const Stmt* any_left_ = nullptr;  // any return
  bool copies_in_bulk_ = false;     // anywhere in the program
};

}  // namespace

void check_convergence(const Program& program, const std::vector<VarRef>& uniform) {
  if (program.cooperative) ReachCheck(program, Over::grid, uniform).run();
  ReachCheck(program, Over::block, uniform).run();
}

}  // namespace tessera::codegen
