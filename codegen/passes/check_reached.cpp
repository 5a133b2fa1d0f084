#include "codegen/passes/check_reached.h"

#include "codegen/analysis/uniform.h"
#include "codegen/passes/walk.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

using Over = UniformValues::Over;

/// Follows which threads of the block, or of the whole grid, may have parted from the others.
class ReachCheck {
 public:
  ReachCheck(const Program& program, Over over, const std::vector<VarRef>& uniform)
      : program_(program), over_(over), uniform_(program, over, uniform) {
    walk(program.body, [&](const Stmt& stmt) {
      const auto* copy = std::get_if<AsyncCopy>(&stmt.node);
      copies_rows_ = copies_rows_ || (copy != nullptr && copy->is_row);
    });
  }
  void run() { visit(program_.body); }

 private:
  void visit(const Body& body) {
    for (const Stmt& stmt : body) {
      if (const auto* leave = std::get_if<Return>(&stmt.node)) {
        if (apart_ != nullptr || !uniform_(leave->condition)) left_ = &stmt;
        any_left_ = &stmt;
      } else if (const auto* loop = std::get_if<For>(&stmt.node)) {
        under(stmt, uniform_(loop->begin) && uniform_(loop->end) && uniform_(loop->step), [&] {
          visit(loop->body);
          visit(loop->body);  // a round meets what the one before left behind
        });
      } else if (const auto* branch = std::get_if<If>(&stmt.node)) {
        under(stmt, uniform_(branch->condition), [&] {
          visit(branch->then);
          visit(branch->otherwise);
        });
      } else if (over_ == Over::grid) {
        check_grid(stmt);
      } else {
        check_block(stmt);
      }
    }
  }

  template <class Fn>
  void under(const Stmt& stmt, bool is_uniform, const Fn& fn) {
    const Stmt* const before = apart_;
    if (!is_uniform && apart_ == nullptr) apart_ = &stmt;
    fn();
    apart_ = before;
  }

  void check_grid(const Stmt& stmt) const {
    const auto* barrier = std::get_if<Barrier>(&stmt.node);
    if (barrier == nullptr || barrier->scope != BarrierScope::grid) return;
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
    if (any_left_ != nullptr && meets_cluster(stmt)) {
      fail(code,
           "some blocks of the cluster may have left the kernel before this point, where they meet",
           "no return_if before it", hint, *any_left_, stmt);
    }
    // Whole rows have landed when all warps have closed their group.
    const bool closes_rows = copies_rows_ && std::holds_alternative<AsyncCommit>(stmt.node);
    if (closes_rows && apart_ != nullptr) {
      fail("SYNC_DIVERGENT",
           "an asynchronous copy that some threads may never start, in a kernel that copies whole "
           "rows",
           "conditions and loop bounds that are the same for the whole block",
           "copy outside of the condition, or leave out whole_rows()", *apart_, stmt);
    }
    if (left_ != nullptr && (closes_rows || waits(stmt))) {
      fail(code,
           std::holds_alternative<Barrier>(stmt.node)
               ? "some threads have left the kernel before this barrier of the block"
           : closes_rows ? "some threads have left the kernel before this copy of the whole block"
                         : "some threads have left the kernel before this step of the whole warp",
           "a condition of return_if that is the same for the whole block", hint, *left_, stmt);
    }
  }

  static bool waits(const Stmt& stmt) {
    const auto* call = std::get_if<ExternCall>(&stmt.node);
    return std::holds_alternative<Barrier>(stmt.node) ||
           (call != nullptr && call->function->synchronises) ||
           std::holds_alternative<WarpBarrier>(stmt.node) ||
           std::holds_alternative<Collective>(stmt.node) ||
           std::holds_alternative<LoadMatrix>(stmt.node) || std::holds_alternative<Mma>(stmt.node);
  }

  static bool meets_cluster(const Stmt& stmt) {
    const auto* barrier = std::get_if<Barrier>(&stmt.node);
    return barrier != nullptr && barrier->scope != BarrierScope::block &&
           barrier->scope != BarrierScope::grid;
  }

  [[noreturn]] void fail(const char* code, const char* what, const char* expected, const char* hint,
                         const Stmt& cause, const Stmt& stmt) const {
    throw Error({.kind = ErrorKind::program,
                 .op = program_.name,
                 .what = what,
                 .expected = expected,
                 .hint = hint,
                 .code = code,
                 .loc = stmt.loc,
                 .related = cause.loc});
  }

  const Program& program_;
  const Over over_;
  const UniformValues uniform_;
  const Stmt* apart_ = nullptr;     // the outermost condition around that not all threads share
  const Stmt* left_ = nullptr;      // a return that not all of them take together
  const Stmt* any_left_ = nullptr;  // any return
  bool copies_rows_ = false;        // somewhere
};

}  // namespace

void check_reached(const Program& program, const std::vector<VarRef>& uniform) {
  if (program.cooperative) ReachCheck(program, Over::grid, uniform).run();
  ReachCheck(program, Over::block, uniform).run();
}

}  // namespace tessera::codegen
