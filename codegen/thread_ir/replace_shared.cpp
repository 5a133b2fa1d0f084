#include "codegen/thread_ir/replace_shared.h"

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {

void replace_shared(Program& program, const std::map<ArrayRef, ArrayRef>& now) {
  std::map<ArrayRef, ArrayRef> views;
  const auto replace = [&](ArrayRef& array) {
    if (array->space == ArraySpace::shared) array = now.at(array);
    if (array->space != ArraySpace::cluster) return;
    ArrayRef& view = views[array];
    if (!view) {
      const auto fresh = std::make_shared<Array>(*array);
      fresh->mine = now.at(array->mine);
      fresh->size = fresh->mine->size;
      view = fresh;
    }
    array = view;
  };
  for (ArrayRef& array : program.shared) replace(array);
  walk(program.body, [&](Stmt& stmt) {
    if (auto* declare = std::get_if<Declare>(&stmt.node)) replace(declare->array);
    for_each_access(stmt, [&](Access& access, bool) { replace(access.array); });
  });
}

}  // namespace tessera::codegen
