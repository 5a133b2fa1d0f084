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

/// Calls fn(access, writes) for the accesses that one statement makes itself.
template <class StmtType, class Fn>
void for_each_access(StmtType& stmt, const Fn& fn) {
  if (auto* load = std::get_if<Load>(&stmt.node)) {
    fn(load->from, false);
  } else if (auto* matrices = std::get_if<LoadMatrix>(&stmt.node)) {
    fn(matrices->from, false);
  } else if (auto* store = std::get_if<Store>(&stmt.node)) {
    fn(store->to, true);
  } else if (auto* atomic = std::get_if<Atomic>(&stmt.node)) {
    fn(atomic->to, true);
  } else if (auto* copy = std::get_if<AsyncCopy>(&stmt.node)) {
    fn(copy->from, false);
    fn(copy->to, true);
  }
}

}  // namespace tessera::codegen
