#include "codegen/passes/check_returns.h"

#include "codegen/analysis/uniform.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

class ReturnCheck {
 public:
  explicit ReturnCheck(const Program& program) : program_(program), uniform_(program) {}
  void run() { visit(program_.body); }

 private:
  static bool waits(const Stmt& stmt) {
    const auto* call = std::get_if<ExternCall>(&stmt.node);
    return std::holds_alternative<Barrier>(stmt.node) ||
           (call != nullptr && call->function->synchronises) ||
           std::holds_alternative<WarpBarrier>(stmt.node) ||
           std::holds_alternative<Collective>(stmt.node) ||
           std::holds_alternative<LoadMatrix>(stmt.node) || std::holds_alternative<Mma>(stmt.node);
  }

  void visit(const Body& body) {
    for (const Stmt& stmt : body) {
      if (const auto* leave = std::get_if<Return>(&stmt.node)) {
        if (divergence_ > 0 || !uniform_(leave->condition)) left_ = &stmt;
        any_left_ = &stmt;
      } else if (any_left_ != nullptr && meets_blocks(stmt)) {
        fail(
            "some blocks of the cluster may have left the kernel before this point, where they "
            "meet",
            "no return_if before it", *any_left_, stmt);
      } else if (left_ != nullptr && waits(stmt)) {
        fail(std::holds_alternative<Barrier>(stmt.node)
                 ? "some threads have left the kernel before this barrier of the block"
                 : "some threads have left the kernel before this step of the whole warp",
             "a condition of return_if that is the same for the whole block", *left_, stmt);
      } else if (const auto* loop = std::get_if<For>(&stmt.node)) {
        const bool differs = !uniform_(loop->begin) || !uniform_(loop->end);
        if (differs) ++divergence_;
        visit(loop->body);
        visit(loop->body);  // a round meets what the one before left behind
        if (differs) --divergence_;
      } else if (const auto* branch = std::get_if<If>(&stmt.node)) {
        const bool differs = !uniform_(branch->condition);
        if (differs) ++divergence_;
        visit(branch->then);
        visit(branch->otherwise);
        if (differs) --divergence_;
      }
    }
  }

  static bool meets_blocks(const Stmt& stmt) {
    const auto* barrier = std::get_if<Barrier>(&stmt.node);
    return barrier != nullptr && barrier->scope != BarrierScope::block &&
           barrier->scope != BarrierScope::grid;
  }

  [[noreturn]] void fail(const char* what, const char* expected, const Stmt& left,
                         const Stmt& stmt) const {
    ErrorFields fields;
    fields.kind = ErrorKind::program;
    fields.op = program_.name;
    fields.code = "RETURN_BEFORE_BARRIER";
    fields.what = what;
    fields.expected = expected;
    fields.hint = "return later, or put the work under if_ and keep the barrier outside";
    fields.loc = stmt.loc;
    fields.related = left.loc;
    throw Error(std::move(fields));
  }

  const Program& program_;
  const UniformValues uniform_;
  const Stmt* left_ = nullptr;      // a return that not all threads of the block take together
  const Stmt* any_left_ = nullptr;  // any return
  int divergence_ = 0;              // conditions around the statement that differ between threads
};

}  // namespace

void check_returns(const Program& program) {
  ReturnCheck(program).run();
}

}  // namespace tessera::codegen
