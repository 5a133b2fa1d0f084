#include "codegen/passes/place_declarations.h"

#include <set>

#include "codegen/passes/walk.h"

namespace tessera::codegen {
namespace {

/// Register arrays that a statement names, in order.
void named_arrays(const Stmt& stmt, std::vector<ArrayRef>& out) {
  auto add = [&](const ArrayRef& array) {
    if (array && array->space == ArraySpace::registers) out.push_back(array);
  };
  if (const auto* load = std::get_if<Load>(&stmt.node)) {
    add(load->from.array);
    add(load->into.array);
  } else if (const auto* store = std::get_if<Store>(&stmt.node)) {
    add(store->to.array);
    add(store->from.array);
  } else if (const auto* convert = std::get_if<Convert>(&stmt.node)) {
    add(convert->into.array);
    add(convert->from.array);
  } else if (const auto* packed = std::get_if<Packed>(&stmt.node)) {
    add(packed->into.array);
    for (const Slice& arg : packed->args) add(arg.array);
  } else if (const auto* matrices = std::get_if<LoadMatrix>(&stmt.node)) {
    add(matrices->into.array);
  } else if (const auto* mma = std::get_if<Mma>(&stmt.node)) {
    add(mma->c.array);
    add(mma->a.array);
    add(mma->b.array);
  }
}

}  // namespace

void place_declarations(Program& program) {
  std::set<const Array*> declared;
  walk(program.body, [&](const Stmt& stmt) {
    if (const auto* declare = std::get_if<Declare>(&stmt.node))
      declared.insert(declare->array.get());
  });
  Body result;
  // The comment of a DSL statement stays with it: declarations go in front of it.
  size_t comment = 0;
  bool has_comment = false;
  for (Stmt& stmt : program.body) {
    if (std::holds_alternative<Comment>(stmt.node)) {
      comment = result.size();
      has_comment = true;
      result.push_back(std::move(stmt));
      continue;
    }
    std::vector<ArrayRef> arrays;
    named_arrays(stmt, arrays);
    if (auto* loop = std::get_if<For>(&stmt.node)) {
      walk(loop->body, [&](const Stmt& s) { named_arrays(s, arrays); });
    } else if (auto* branch = std::get_if<If>(&stmt.node)) {
      walk(branch->then, [&](const Stmt& s) { named_arrays(s, arrays); });
      walk(branch->otherwise, [&](const Stmt& s) { named_arrays(s, arrays); });
    }
    for (const ArrayRef& array : arrays) {
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
