#pragma once
// The state shared by the parts of lower_lanes: one vector of a straight-line body.

#include <algorithm>
#include <map>
#include <set>

#include "codegen/lowering/tile_lowering.h"

namespace tessera::codegen {

inline const ir::ElementLoad* load_in(const ir::Stmt& stmt) {
  return std::get_if<ir::ElementLoad>(&stmt.node);
}
inline const ir::ElementStore* store_in(const ir::Stmt& stmt) {
  return std::get_if<ir::ElementStore>(&stmt.node);
}

class LaneLowering {
 public:
  LaneLowering(TileLowering& tiles, const ir::Body& body, const TileLowering::Iteration& it,
               SourceLoc loc, bool contract)
      : t_(tiles), body_(body), lane_(it.lane), width_(it.vector), loc_(loc), contract_(contract) {}

  void lower();

 private:
  /// A store, or a sum in memory, whose lanes are gathered first.
  struct Collected {
    const ir::ElementStore* element = nullptr;
    SourceLoc loc;
    int64_t fits = 1;           // elements per instruction
    Slice values;               // of the stored dtype: stored from here
    Slice wide;                 // to be converted into `values`
    bool given = false;         // `wide` is a vector already
    std::vector<Slice> packed;  // arguments of the operation on pairs that gives `values`
    bool whole = false;         // `values` is a complete vector: nothing to do per lane
    bool adds = false;          // to what is there
  };

  // ---- facts

  /// The statement as a store, if it is one or adds to memory as a run could; else null.
  const ir::ElementStore* stored_by(const ir::Stmt& stmt) const {
    const auto sum = sums_.find(&stmt);
    return sum != sums_.end() ? &sum->second : store_in(stmt);
  }

  const Array* array(const ir::BufferRef& buffer) const { return t_.array_of(buffer).get(); }
  bool in_registers(const ir::BufferRef& buffer) const;

  /// Finds arrays that the body writes and then reads, or writes again at a place that may be the
  /// same. Their accesses stay in order, lane by lane.
  void note_order();

  /// True if two stores of one lane certainly go to the same element, or certainly to different
  /// ones.
  bool same_or_apart(const ir::ElementStore& a, const ir::ElementStore& b) const;

  /// Expands the body's own integer lets, which are bound only inside the lane loop.
  Expr expand(const Expr& e) const;
  std::vector<Expr> expand(const std::vector<Expr>& list) const;
  template <class Element>  // ElementLoad or ElementStore
  std::vector<Expr> indices_of(const Element& element) const {
    return t_.resolve(expand(element.indices));
  }

  Expr at_lane(const Expr& e, int64_t lane) const;
  std::vector<Expr> at_lane(const std::vector<Expr>& list, int64_t lane) const;

  /// Elements per instruction; 1 = lane by lane.
  int64_t vector_of(const ir::BufferRef& buffer, const std::vector<Expr>& indices) const;
  /// The same without what vectorized() demands.
  int64_t feasible(const ir::BufferRef& buffer, const std::vector<Expr>& indices) const;

  /// The registers of a fragment or local buffer that the lanes access, if they are consecutive.
  Slice register_run(const ir::BufferRef& buffer, const std::vector<Expr>& indices) const;

  /// True if all lanes read the same register and no lane writes its array.
  bool is_one_register(const ir::ElementLoad& element) const;

  /// The variable that a statement of the body binds inside the lane loop, or null.
  static const ir::Var* bound_by(const ir::Stmt& stmt);
  static bool use(const std::vector<Expr>& indices, const ir::Var* value);

  /// True if an index depends on the lane, or on a value bound inside the lane loop.
  bool varies(const std::vector<Expr>& indices) const;

  /// True if all values of the body that the indices use are the same in all lanes and can be
  /// loaded before the lane loop.
  bool is_known_ahead(const std::vector<Expr>& indices) const;
  /// Loads those of these values that are in registers.
  void load_values_of(const std::vector<Expr>& indices);

  Slice new_vector(const std::string& name, DType dtype, SourceLoc loc);
  Slice part(const Slice& slice, int64_t first) const;
  Access element_of(const Slice& slice) const;

  /// Emits the checks of all lanes of a whole-vector access.
  template <class Element>
  void check_lanes(const Element& element, SourceLoc loc) {
    const auto any_lane = [&](const Expr& e) { return t_.resolve(expand(e)); };
    const Body checks = t_.nested([&] { t_.check_indices(element, any_lane, loc); });
    if (checks.empty()) return;
    t_.unrolled("lane", width_, loc, [&](const Expr& lane) {
      t_.check_indices(
          element,
          [&](const Expr& e) {
            return ir::substitute(any_lane(e),
                                  [&](const VarRef& var) { return var == lane_ ? lane : Expr(); });
          },
          loc);
    });
  }

  // ---- steps

  /// Loads before the lane loop if possible. True if the body does nothing else.
  bool load_ahead(const ir::Stmt& stmt);

  /// The registers that receive the value in a body of one load and one store.
  Slice moved_into(const ir::ElementLoad& element) const;

  void collect(const ir::Stmt& stmt);

  // ---- two 16-bit floats at a time

  /// True if all lanes of a 16-bit float are in registers, or result from operations on pairs of
  /// such. `target` is the destination: its own registers may be operands if no other statement
  /// writes them.
  bool can_pack(const Expr& e, const ir::ElementStore& target) const;
  bool is_same_in_all_lanes(const Expr& e) const;
  std::ptrdiff_t stores_to(const Array& registers) const;

  /// The lanes of an expression for which can_pack holds.
  Slice packed(const Expr& e, const std::string& name, SourceLoc loc);

  void lane_loop();

  void one_lane(const ir::Stmt& stmt);

  void store_vector(const Collected& c);

  TileLowering& t_;
  const ir::Body& body_;
  const VarRef lane_;
  const int64_t width_;
  const SourceLoc loc_;
  const bool contract_;                      // vectorized(): every memory access must be one vector
  std::map<const ir::Var*, Expr> lets_;      // integer values of the body, without lets
  std::set<int> written_, in_order_;         // of memory_of()
  std::map<const ir::Var*, Slice> vectors_;  // loaded as a whole: lane l in element l
  std::map<const ir::Var*, Slice> changed_;  // the same for registers that the body writes
  std::map<const ir::Var*, const ir::Stmt*> same_registers_;  // loads of one register for all lanes
  std::set<const ir::Stmt*> done_;                            // loads done before the lane loop
  std::map<const ir::Stmt*, Collected> collected_;
  std::map<const ir::Stmt*, ir::ElementStore> sums_;  // atomics that may be one instruction per run
};

}  // namespace tessera::codegen
