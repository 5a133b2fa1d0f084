#pragma once
// Visits every statement of a thread-IR body, outer before inner.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

template <class BodyType, class Fn>
void walk(BodyType& body, const Fn& fn) {
  for (auto& stmt : body) {
    fn(stmt);
    if (auto* loop = std::get_if<For>(&stmt.node)) {
      walk(loop->body, fn);
    } else if (auto* branch = std::get_if<If>(&stmt.node)) {
      walk(branch->then, fn);
      walk(branch->otherwise, fn);
    }
  }
}

/// The memory access of a Load, LoadMatrix or Store; null for other statements.
template <class StmtType>
auto* access_of(StmtType& stmt) {
  using Result = std::conditional_t<std::is_const_v<StmtType>, const Access, Access>;
  if (auto* load = std::get_if<Load>(&stmt.node)) return static_cast<Result*>(&load->from);
  if (auto* load = std::get_if<LoadMatrix>(&stmt.node)) return static_cast<Result*>(&load->from);
  if (auto* store = std::get_if<Store>(&stmt.node)) return static_cast<Result*>(&store->to);
  return static_cast<Result*>(nullptr);
}

}  // namespace tessera::codegen
