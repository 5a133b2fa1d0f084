#include "codegen/passes/check_grid_barriers.h"

#include "codegen/analysis/uniform.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

class GridBarrierCheck {
 public:
  explicit GridBarrierCheck(const Program& program)
      : program_(program), same_(program, UniformValues::Over::grid) {}
  void run() { visit(program_.body); }

 private:
  void visit(const Body& body) {
    for (const Stmt& stmt : body) {
      if (const auto* leave = std::get_if<Return>(&stmt.node)) {
        if (apart_ != nullptr || !same_(leave->condition)) left_ = &stmt;
      } else if (const auto* barrier = std::get_if<Barrier>(&stmt.node)) {
        if (barrier->scope == BarrierScope::grid) check(stmt);
      } else if (const auto* loop = std::get_if<For>(&stmt.node)) {
        under(stmt, same_(loop->begin) && same_(loop->end) && same_(loop->step), [&] {
          visit(loop->body);
          visit(loop->body);  // a round meets what the one before left behind
        });
      } else if (const auto* branch = std::get_if<If>(&stmt.node)) {
        under(stmt, same_(branch->condition), [&] {
          visit(branch->then);
          visit(branch->otherwise);
        });
      }
    }
  }

  template <class Fn>
  void under(const Stmt& stmt, bool is_same, const Fn& fn) {
    const Stmt* const before = apart_;
    if (!is_same && apart_ == nullptr) apart_ = &stmt;
    fn();
    apart_ = before;
  }

  void check(const Stmt& stmt) const {
    if (apart_ != nullptr) {
      fail("SYNC_DIVERGENT", "a barrier of the grid that some blocks may never reach",
           "conditions and loop bounds of sizes and parameters alone", *apart_, stmt);
    }
    if (left_ != nullptr) {
      fail("RETURN_BEFORE_BARRIER",
           "some threads have left the kernel before this barrier of the grid",
           "a condition of return_if that is the same for the whole grid", *left_, stmt);
    }
  }

  [[noreturn]] void fail(const char* code, const char* what, const char* expected,
                         const Stmt& cause, const Stmt& stmt) const {
    ErrorFields fields;
    fields.kind = ErrorKind::program;
    fields.op = program_.name;
    fields.code = code;
    fields.what = what;
    fields.expected = expected;
    fields.hint = "put the work under if_ and keep the barrier outside";
    fields.loc = stmt.loc;
    fields.related = cause.loc;
    throw Error(std::move(fields));
  }

  const Program& program_;
  const UniformValues same_;     // for all threads of the grid
  const Stmt* apart_ = nullptr;  // the outermost condition around that is not
  const Stmt* left_ = nullptr;   // a return that not all threads take together
};

}  // namespace

void check_grid_barriers(const Program& program) {
  if (program.cooperative) GridBarrierCheck(program).run();
}

}  // namespace tessera::codegen
