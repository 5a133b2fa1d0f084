#pragma once
// The stores of a parallel loop, watched while it is recorded: several iterations that change one element, each
// from its old value, have no order, and threads that hold an element of their own each get a part.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dsl/ir/tile.h"

namespace tessera::dsl {

class IterationWrites {
 public:
  /// Why a store is refused.
  struct Clash {
    bool all = false;        // along an axis
    std::string iterations;  // "i = 0 .. 59", "(0, 0) and (0, 1)"
    SourceLoc loop;
  };

  /// The loop has an index with these values, from 0 on. `scope` is that of its body.
  void begin(const ir::VarRef& index, int64_t extent);
  void end();
  bool is_open() const { return !axes_.empty(); }

  /// A buffer declared in the loop: variables of the iteration.
  void declares(const ir::Buffer& buffer) { own_buffers_.insert(buffer.id); }
  /// A value that the iteration computes from others.
  void defines(const ir::VarRef& var, std::vector<ir::Expr> from);
  void loads(const ir::ElementLoad& load, const std::vector<int>& scopes);
  std::optional<Clash> stores(const ir::ElementStore& store, int scope);

  std::vector<ir::Expr> conditions;  // around the statement, also outside of the loop

 private:
  struct Axis {
    ir::VarRef index;
    int64_t extent = 1;
  };
  struct Load {
    ir::BufferRef buffer;
    std::vector<ir::Expr> indices;
    bool is_own = false;  // the iteration itself has stored the element before
  };
  struct Reset {
    int buffer = 0;
    std::vector<ir::Expr> indices;
    int scope = 0;
  };

  int64_t size(const ir::Expr& e) const;
  ir::Expr expand(const ir::Expr& e) const;
  std::vector<ir::Expr> expand(const std::vector<ir::Expr>& list) const;
  bool is_of_iteration(const ir::Var& var) const;
  static bool is_of_one_thread(const ir::Expr& condition, bool holds);
  static bool holds_once(const ir::Expr& condition, bool holds, const ir::VarRef& index);
  bool reads_old(const ir::Expr& value, const ir::Buffer& buffer,
                 const std::vector<ir::Expr>& indices, std::set<int>& seen) const;
  bool are_apart(const std::vector<ir::Expr>& indices) const;
  std::optional<Clash> find_clash(const std::vector<ir::Expr>& indices,
                                  const std::vector<int64_t>& extents) const;

  std::vector<Axis> axes_;
  int first_var_ = 0;                          // the id of the loop's first Var
  size_t conditions_around_ = 0;               // of the loop
  std::set<int> own_buffers_;                  // by id
  std::map<int, std::vector<ir::Expr>> from_;  // by the id of the Var
  std::map<int, ir::Expr> names_;  // of short expressions, expanded, by the id of the Var
  std::map<int, Load> loads_;      // by the id of the Var
  std::map<int, std::vector<ir::Expr>> variables_;  // what is stored, by the id of the buffer
  std::vector<Reset> resets_;                       // stores that do not read the old value
};

}  // namespace tessera::dsl
