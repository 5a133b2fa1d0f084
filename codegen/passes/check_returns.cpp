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
      } else if (left_ != nullptr && waits(stmt)) {
        fail(stmt);
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

  [[noreturn]] void fail(const Stmt& stmt) const {
    ErrorFields fields;
    fields.kind = ErrorKind::program;
    fields.op = program_.name;
    fields.code = "RETURN_BEFORE_BARRIER";
    fields.what = std::holds_alternative<Barrier>(stmt.node)
                      ? "some threads have left the kernel before this barrier of the block"
                      : "some threads have left the kernel before this step of the whole warp";
    fields.expected = "a condition of return_if that is the same for the whole block";
    fields.hint = "return later, or put the work under if_ and keep the barrier outside";
    fields.loc = stmt.loc;
    fields.related = left_->loc;
    throw Error(std::move(fields));
  }

  const Program& program_;
  const UniformValues uniform_;
  const Stmt* left_ = nullptr;  // a return that not all threads of the block take together
  int divergence_ = 0;          // conditions around the statement that differ between threads
};

}  // namespace

void check_returns(const Program& program) {
  ReturnCheck(program).run();
}

}  // namespace tessera::codegen
