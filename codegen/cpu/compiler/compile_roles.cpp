// Compiles roles.

#include "codegen/cpu/compiler/compiler.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {

/// Roles take turns on one frame, so each has its own part of the stack.
void Compiler::stmt(const RoleBodies& bodies) {
  TESSERA_CHECK(out_.roles.empty() && mask_depth_ == 1, "roles stand once, at the top level");
  const int64_t mark = top_;
  const size_t leaves = leaves_.size();
  const int part = here();
  emit(Code::part);
  for (const RoleBodies::Role& role : bodies.roles) {
    RoleCode code{role.name, role.threads, here()};
    if (role.thread) {
      vars_[role.thread.get()] =
          eval(ir::var(program_.thread) - ir::constant(role.thread->type, role.threads.first));
    }
    const int64_t start = top_;
    out_.above = std::max(out_.above, start);
    compile_body(role.body);
    if (role.thread) vars_.erase(role.thread.get());
    code.end = here();
    out_.roles.push_back(std::move(code));
    top_ = out_.above;  // above everything that the role has used
  }
  TESSERA_CHECK(leaves_.size() == leaves, "a thread that leaves the kernel in a role");
  land(part);
  top_ = mark;
}

}  // namespace tessera::codegen::cpu
