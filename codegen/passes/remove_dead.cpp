#include "codegen/passes/remove_dead.h"

#include <algorithm>
#include <set>

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

/// True for a statement without effects on the GPU: its expressions are only for the executor.
bool is_only_checked(const Stmt& stmt) {
  struct Receiver : EffectReceiver {
    void evaluates(const Expr&) override { other = true; }
    void checks(const Expr&) override { checked = true; }
    bool checked = false, other = false;
  } receiver;
  effects(stmt, receiver);
  return receiver.checked && !receiver.other && !outlives_its_values(stmt);
}

void drop_checks(Body& body) {
  body.erase(std::remove_if(body.begin(), body.end(), is_only_checked), body.end());
  for (Stmt& stmt : body) {
    for_each_body(stmt, [](Body& inner) { drop_checks(inner); });
  }
}

bool is_empty(const Body& body) {
  return std::all_of(body.begin(), body.end(),
                     [](const Stmt& stmt) { return std::holds_alternative<Comment>(stmt.node); });
}

/// Runs backwards: all uses of a variable or array are seen before its definition.
class DeadCode {
 public:
  void remove_from(Body& body) {
    for (size_t i = body.size(); i-- > 0;) {
      for_each_body(body[i], [&](Body& inner) { remove_from(inner); });
      if (auto* branch = std::get_if<If>(&body[i].node); branch && is_empty(branch->otherwise)) {
        branch->otherwise.clear();
      }
      if (is_dead(body[i])) {
        body.erase(body.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        use(body[i]);
      }
    }
  }

 private:
  bool is_dead(const Stmt& stmt) const {
    if (std::holds_alternative<Comment>(stmt.node)) return false;
    bool has_bodies = false, has_statements = false;
    for_each_body(stmt, [&](const Body& inner) {
      has_bodies = true;
      has_statements = has_statements || !is_empty(inner);
    });
    if (has_bodies) return !has_statements;
    bool declares = false, accessed = false;
    for_each_declaration(stmt, [&](const ArrayRef& array) {
      declares = true;
      accessed = accessed || arrays_.contains(array.get());
    });
    if (declares) return !accessed;
    if (outlives_its_values(stmt)) return false;
    bool used = false;
    for_each_binding(
        stmt, [&](const VarRef& var, const Expr*) { used = used || vars_.contains(var.get()); });
    return !used;
  }

  void use(const Stmt& stmt) {
    for_each_array(stmt, [&](const ArrayRef& array) { arrays_.insert(array.get()); });
    for_each_expression(stmt, [&](const Expr& e) {
      std::vector<VarRef> named;
      ir::collect_vars(e, named);
      for (const VarRef& var : named) vars_.insert(var.get());
    });
  }

  std::set<const ir::Var*> vars_;  // used by live statements
  std::set<const Array*> arrays_;
};

}  // namespace

void drop_checks(Program& program) {
  drop_checks(program.body);
}

void remove_dead(Program& program) {
  DeadCode().remove_from(program.body);
}

}  // namespace tessera::codegen
