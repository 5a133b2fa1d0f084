#include "codegen/thread_ir/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

bool shows_its_dtype(const Expr& e) {
  switch (e->op) {
    case ir::Op::constant:
      return e->type == DType::i32;
    case ir::Op::var:
    case ir::Op::cast:
    case ir::Op::bitcast:
      return true;
    case ir::Op::shl:
    case ir::Op::shr:
      return shows_its_dtype(e->args[0]);
    case ir::Op::select:
      return shows_its_dtype(e->args[1]) || shows_its_dtype(e->args[2]);
    default:
      return e->type == DType::boolean ||
             std::any_of(e->args.begin(), e->args.end(), shows_its_dtype);
  }
}

}  // namespace

std::string dtype_suffix(const Expr& e) {
  return shows_its_dtype(e) ? std::string() : fmt::format(": {}", tessera::name(e->type));
}

std::vector<ArrayRef> undeclared_registers(const Body& body) {
  std::set<const Array*> known;
  walk(body, [&](const Stmt& stmt) {
    for_each_declaration(stmt, [&](const ArrayRef& array) { known.insert(array.get()); });
  });
  std::vector<ArrayRef> result;
  walk(body, [&](const Stmt& stmt) {
    for_each_array(stmt, [&](const ArrayRef& array) {
      const bool is_register = array->space == ArraySpace::registers;
      if (is_register && known.insert(array.get()).second) result.push_back(array);
    });
  });
  return result;
}

}  // namespace tessera::codegen
