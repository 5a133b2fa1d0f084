#include "codegen/passes/place_declarations.h"

#include <map>
#include <set>

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

/// The register arrays that a statement and its inner statements access, in order.
std::vector<ArrayRef> named_arrays(const Stmt& stmt) {
  std::vector<ArrayRef> result;
  walk_stmt(stmt, [&](const Stmt& inner) {
    for_each_array(inner, [&](const ArrayRef& array) {
      if (array->space == ArraySpace::registers) result.push_back(array);
    });
  });
  return result;
}

using Declared = std::set<const Array*>;

/// Arrays that only one role of body[at] and no later statement names: they are declared in that
/// role.
Declared of_one_role(const Body& body, size_t at) {
  const auto* bodies = std::get_if<RoleBodies>(&body[at].node);
  if (bodies == nullptr) return {};
  std::map<const Array*, int> naming;  // number of roles and later statements that name it
  const auto count = [&](auto begin, auto end) {
    Declared named;
    for (; begin != end; ++begin) {
      for (const ArrayRef& array : named_arrays(*begin)) named.insert(array.get());
    }
    for (const Array* array : named) ++naming[array];
  };
  for (const RoleBodies::Role& role : bodies->roles) count(role.body.begin(), role.body.end());
  count(body.begin() + static_cast<std::ptrdiff_t>(at) + 1, body.end());
  Declared result;
  for (const auto& [array, times] : naming) {
    if (times == 1) result.insert(array);
  }
  return result;
}

void place(Body& body, Declared& declared) {
  Body result;
  // The comment of a DSL statement stays with it: declarations go before the comment.
  size_t comment = 0;
  bool has_comment = false;
  for (size_t i = 0; i < body.size(); ++i) {
    Stmt& stmt = body[i];
    if (std::holds_alternative<Comment>(stmt.node)) {
      comment = result.size();
      has_comment = true;
      result.push_back(std::move(stmt));
      continue;
    }
    const Declared inside = of_one_role(body, i);
    for (const ArrayRef& array : named_arrays(stmt)) {
      if (inside.contains(array.get()) || !declared.insert(array.get()).second) continue;
      const size_t at = has_comment ? comment : result.size();
      result.insert(result.begin() + static_cast<std::ptrdiff_t>(at),
                    {Declare{array, false}, array->loc});
      if (has_comment) ++comment;
    }
    has_comment = has_comment && std::holds_alternative<Declare>(stmt.node);
    if (auto* bodies = std::get_if<RoleBodies>(&stmt.node)) {
      for (RoleBodies::Role& role : bodies->roles) place(role.body, declared);
    }
    result.push_back(std::move(stmt));
  }
  body = std::move(result);
}

}  // namespace

void place_declarations(Program& program) {
  Declared declared;
  walk(program.body, [&](const Stmt& stmt) {
    for_each_declaration(stmt, [&](const ArrayRef& array) { declared.insert(array.get()); });
  });
  place(program.body, declared);
}

}  // namespace tessera::codegen
