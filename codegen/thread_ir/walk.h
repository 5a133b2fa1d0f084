#pragma once
// Visits the statements of a thread-IR body, nested ones included.

#include "codegen/thread_ir/effects.h"

namespace tessera::codegen {

template <class StmtType, class Fn>
void walk_stmt(StmtType& stmt, const Fn& fn);

/// Calls fn for every statement, outer before inner.
template <class BodyType, class Fn>
void walk(BodyType& body, const Fn& fn) {
  for (auto& stmt : body) walk_stmt(stmt, fn);
}

/// Calls fn for one statement and for those inside it.
template <class StmtType, class Fn>
void walk_stmt(StmtType& stmt, const Fn& fn) {
  fn(stmt);
  for_each_body(stmt, [&](auto& inner) { walk(inner, fn); });
}

/// Statements without bodies, listed by name: a new kind must be added here.
template <class Node>
concept Leaf = (std::is_same_v<Node, Let> || std::is_same_v<Node, Load> ||
                std::is_same_v<Node, Store> || std::is_same_v<Node, Atomic> ||
                std::is_same_v<Node, Convert> || std::is_same_v<Node, Packed> ||
                std::is_same_v<Node, LoadMatrix> || std::is_same_v<Node, Mma> ||
                std::is_same_v<Node, Commit> || std::is_same_v<Node, Await> ||
                std::is_same_v<Node, Fence> || std::is_same_v<Node, Barrier> ||
                std::is_same_v<Node, Collective> || std::is_same_v<Node, Comment> ||
                std::is_same_v<Node, Declare> || std::is_same_v<Node, Present> ||
                std::is_same_v<Node, Assert> || std::is_same_v<Node, CheckIndices> ||
                std::is_same_v<Node, Print> || std::is_same_v<Node, Dependency> ||
                std::is_same_v<Node, ExternCall> || std::is_same_v<Node, AsyncCopy> ||
                std::is_same_v<Node, Return> || std::is_same_v<Node, Break> ||
                std::is_same_v<Node, MbarrierInit> || std::is_same_v<Node, MbarrierArrive> ||
                std::is_same_v<Node, MbarrierWait> || std::is_same_v<Node, BulkCopy> ||
                std::is_same_v<Node, TensorCopy> || std::is_same_v<Node, TensorStore> ||
                std::is_same_v<Node, WriteMap>);

/// Calls on_loop(For&), on_branch(If&) or on_roles(RoleBodies&) for a statement with bodies, else
/// on_leaf(). For passes that depend on rounds, conditions and threads; others use walk() or
/// for_each_body().
template <class StmtType, class OnLoop, class OnBranch, class OnRoles, class OnLeaf>
void by_structure(StmtType& stmt, const OnLoop& on_loop, const OnBranch& on_branch,
                  const OnRoles& on_roles, const OnLeaf& on_leaf) {
  const auto visit = [&]<class Node>(Node& node) {
    using Kind = std::remove_const_t<Node>;
    if constexpr (std::is_same_v<Kind, For>) {
      on_loop(node);
    } else if constexpr (std::is_same_v<Kind, If>) {
      on_branch(node);
    } else if constexpr (std::is_same_v<Kind, RoleBodies>) {
      on_roles(node);
    } else {
      static_assert(Leaf<Kind>, "a kind of statement that is not described");
      on_leaf();
    }
  };
  std::visit(visit, stmt.node);
}
template <class StmtType, class OnLoop, class OnBranch, class OnRoles>
void by_structure(StmtType& stmt, const OnLoop& on_loop, const OnBranch& on_branch,
                  const OnRoles& on_roles) {
  by_structure(stmt, on_loop, on_branch, on_roles, [] {});
}

/// The Break that ends the body of the loop, or null: how many rounds it runs is known at run time only.
inline const Break* break_of(const For& loop) {
  return loop.body.empty() ? nullptr : std::get_if<Break>(&loop.body.back().node);
}

/// True if `holds` is true of the statement or of one inside it.
template <class Predicate>
bool any_in(const Stmt& stmt, const Predicate& holds) {
  bool found = false;
  walk_stmt(stmt, [&](const Stmt& inner) { found = found || holds(inner); });
  return found;
}

}  // namespace tessera::codegen
