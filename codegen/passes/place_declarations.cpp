#include "codegen/passes/place_declarations.h"

#include <set>

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

/// Register arrays that a statement and those inside it access, in order.
std::vector<ArrayRef> named_arrays(const Stmt& stmt) {
  std::vector<ArrayRef> result;
  walk_stmt(stmt, [&](const Stmt& inner) {
    for_each_array(inner, [&](const ArrayRef& array) {
      if (array->space == ArraySpace::registers) result.push_back(array);
    });
  });
  return result;
}

}  // namespace

void place_declarations(Program& program) {
  std::set<const Array*> declared;
  walk(program.body, [&](const Stmt& stmt) {
    for_each_declaration(stmt, [&](const ArrayRef& array) { declared.insert(array.get()); });
  });
  Body result;
  // The comment of a DSL statement stays with it: declarations go before it.
  size_t comment = 0;
  bool has_comment = false;
  for (Stmt& stmt : program.body) {
    if (std::holds_alternative<Comment>(stmt.node)) {
      comment = result.size();
      has_comment = true;
      result.push_back(std::move(stmt));
      continue;
    }
    for (const ArrayRef& array : named_arrays(stmt)) {
      if (!declared.insert(array.get()).second) continue;
      const size_t at = has_comment ? comment : result.size();
      result.insert(result.begin() + static_cast<std::ptrdiff_t>(at),
                    {Declare{array, false}, array->loc});
      if (has_comment) ++comment;
    }
    has_comment = has_comment && std::holds_alternative<Declare>(stmt.node);
    result.push_back(std::move(stmt));
  }
  program.body = std::move(result);
}

}  // namespace tessera::codegen
