#pragma once
// The recorded state of a Builder: the kernel, the open bodies and the scopes in which values may
// be used. Private to the room; authors use Builder.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "dsl/base/error.h"
#include "dsl/ir/extents.h"
#include "dsl/ir/tile.h"
#include "dsl/iteration_writes.h"
#include "dsl/value.h"

namespace tessera::dsl {

// The passes recurse into expressions and bodies. These limits keep them within the small stacks of
// threads: tests/codegen/lowering_cost_test.cpp lowers the deepest program on one.
constexpr int kMaxExpressionDepth = 256;     // depth of dependent operations
constexpr int kMaxExpressionSize = 1 << 16;  // operations in one value; x = x + x doubles them
constexpr int kMaxNesting = 64;              // nested loops and branches

class Recorder {
 public:
  explicit Recorder(std::string kernel_name);

  ir::Kernel kernel;
  bool launched = false;
  bool finished = false;
  const ir::Roles::Role* role = nullptr;  // whose body is recorded
  std::vector<int> turns;                 // rings that are filled or taken around the statement
  int parallel_depth = 0;                 // parallel loops around the statement being recorded
  int thread_depth = 0;            // conditions and bounds around it that use the thread index
  std::vector<std::string> marks;  // around it, outer first

  /// Threads that run the statement being recorded: of the role, or of the block.
  int num_threads() const { return role != nullptr ? role->count : kernel.threads; }
  /// Throws an Error of kind program at `loc`.
  [[noreturn]] void fail(const char* code, std::string what, SourceLoc loc,
                         std::string expected = {}, std::string got = {}, std::string hint = {},
                         SourceLoc related = {}) const;

  ir::VarRef new_var(std::string name, DType type, ir::VarKind kind, SourceLoc loc,
                     ir::Expr lower = {}, ir::Expr upper = {}, int64_t multiple_of = 1,
                     int per_sm = 0);
  Ref new_buffer(ir::Buffer buffer);
  /// A fragment of the shape and dtype of `region`.
  Ref fragment_like(const ir::Region& region, SourceLoc loc);
  /// A copy of a Var with what is known of it by now.
  ir::VarRef updated(ir::Var var);
  /// Tightens the bounds of dims so that no i32 step of `e`, an extent or a grid, exceeds
  /// kLargestExtent. The host checks these bounds on every call.
  void bound_dims(const ir::Expr& e, int64_t most = ir::kLargestExtent);
  /// Does the same for the extent of a grid. A scalar extent is within what the host launches.
  void bound_grid(const ir::Expr& extent, int axis);
  /// Appends a statement to the innermost open body. Checks that a launch was declared and that each
  /// value is in scope. `name` is the number of the name that the statement writes an element by.
  void add(ir::Stmt stmt, int name = 0);
  /// Records the load of an element and returns the bound value.
  Value load(const ir::Region& element, SourceLoc loc);
  void store(const ir::Region& element, const Value& value, SourceLoc loc, int name = 0);

  /// Names an element of the buffer from here on.
  int new_name(const ir::Buffer& buffer);
  /// Adds a name for the same element, as fresh as the first.
  int copy_name(int name);
  /// Throws if another name may have written the element since it was named, or may before the next
  /// iteration of a loop around the read.
  void check_fresh(int name, const ir::Region& element, SourceLoc loc);

  /// An index that certainly takes both of these values.
  struct Iteration {
    ir::VarRef var;
    int64_t first = 0, last = 0;
    int returns = 0;  // return_if() recorded before it began
  };
  /// Declares that `var` runs from `first` to `last` until the end of the body.
  void iterate(const ir::VarRef& var, int64_t first, int64_t last);
  /// The values of `e` at the first and last values of each index in it, the last ones first, with
  /// the index values. Empty if `e` depends on anything but such indices.
  struct Corner {
    int64_t value = 0;
    std::string where = {};  // "i = 7, j = 63"
    SourceLoc loop = {};
  };
  std::vector<Corner> corners(const ir::Expr& e) const;
  /// True if `e` depends on the thread index or a let of it.
  bool uses_thread(const ir::Expr& e) const;
  /// Throws unless `e`, which a statement uses, is made of values of this kernel whose scopes are open, and of no
  /// element outside of its tensor but for those between which a select chooses.
  void check_in_scope(const ir::Expr& e, SourceLoc loc) const { check_in_scope(e, loc, false); }
  /// Throws if the value is what a thread has summed up over its own iterations.
  void check_whole(const ir::Expr& e) const {
    if (const ErrorFields* part = find_part(e)) throw Error(*part);
  }
  /// Throws if the element, which is written, is outside of its tensor in some iteration for certain.
  void check_inside(const ir::Region& element, SourceLoc loc) const;
  /// Throws if `e`, just created, is too deep or too large.
  void check_size(const ir::Expr& e);

  /// Records the statements of `body`, of the loop or branch at `loc`, in a new scope. A
  /// conditional body may not run for the indices around it.
  enum class Runs { always, under_condition };
  template <class Fn>
  ir::Body record(SourceLoc loc, Runs runs, const Fn& body) {
    check_nesting(loc);
    open_.emplace_back();
    scopes_.push_back(++last_scope_);
    const std::vector<Iteration> around = iterations_;
    const size_t rests = rests_.size();
    if (runs == Runs::under_condition) iterations_.clear();
    body();
    close_rests(rests);
    iterations_ = around;
    scopes_.pop_back();
    ir::Body done = std::move(open_.back());
    open_.pop_back();
    return done;
  }
  /// Does the same for the body of a loop, which may run more than once.
  template <class Fn>
  ir::Body record_loop(SourceLoc loc, Runs runs, const Fn& body,
                       std::optional<Ref>* left = nullptr) {
    loops_.push_back({names_.size(), reads_.size(), left});
    ir::Body done = record(loc, runs, body);
    loops_.pop_back();
    if (loops_.empty()) reads_.clear();
    return done;
  }
  /// The variable that says whether threads have left the innermost loop, made by its first break_if(); null
  /// where none may stand.
  std::optional<Ref>* done() const { return loops_.empty() ? nullptr : loops_.back().done; }
  /// Ends what leave_loop() began since there were `left` of them.
  size_t rests() const { return rests_.size(); }
  void close_rests(size_t left);
  int breaks() const { return loops_.empty() ? 0 : loops_.back().breaks; }
  /// Threads for which the condition holds have left the innermost loop: what is recorded from here to
  /// the end of the body is for the others.
  void leave_loop(const ir::Expr& left, SourceLoc loc);
  /// Appends statements that have been recorded already.
  void splice(ir::Body body);
  /// Statements that store to the buffer, or bind `value` and its parts, are dropped by finish() unless the author
  /// uses `value`.
  void drop_if_unread(const ir::BufferRef& buffer, const ir::VarRef& value);
  void drop_unread(ir::Body& body) const;
  /// Identifies the innermost open body.
  int scope() const { return scopes_.back(); }
  int depth() const { return static_cast<int>(open_.size()); }
  ir::Body take_body();

  std::vector<ir::BufferRef> early_fragments;  // declared before the launch
  IterationWrites iteration_writes;            // of the parallel loop around the statement
  std::vector<int> present;  // buffer ids of optional tensors that are known to be present here

  /// Throws if a tile operation at `loc` would be of some threads only.
  void require_all_threads(SourceLoc loc) const;

  /// Whether a scope is still open.
  bool in_scope(int scope) const;
  /// Throws unless a statement may access the tensor here: it is present and its address is in
  /// scope.
  void check_available(const ir::Buffer& buffer, SourceLoc loc) const;

  int async_groups = 0;      // tokens handed out
  int stores = 0;            // the same of stores
  bool manual_sync = false;  // inside a manual-sync region
  int returns = 0;           // return_if() recorded
  bool has_effect = false;   // a statement writes a tensor, prints, asserts or calls a function

 private:
  /// A write: elements `region` of a buffer, by a name or (0) by none.
  struct Write {
    ir::Region region;
    int name;
    SourceLoc loc;
  };
  /// A read of an element that was named before the enclosing loop.
  struct Read {
    ir::Region element;
    int name;
    SourceLoc loc;
  };
  struct OpenLoop {
    size_t names, reads;                 // sizes of both lists when it began
    std::optional<Ref>* done = nullptr;  // see done()
    int breaks = 0;                      // recorded in it
  };

  void check_in_scope(const ir::Expr& e, SourceLoc loc, bool is_chosen) const;
  std::optional<ErrorFields> find_outside(const ir::Region& element, SourceLoc loc) const;
  bool is_unread(const ir::Stmt& stmt) const;
  void check_role(const ir::Stmt& stmt) const;
  void note_write(const ir::Region& region, int name, SourceLoc loc);
  void note_writes(const ir::Stmt& stmt, int name);
  void check_one_writer(const ir::ElementStore& store, SourceLoc loc);
  bool is_exchanged(const ir::Expr& e) const;
  const ErrorFields* find_part(const ir::Expr& e) const;
  void note_part(const ir::ElementStore& store);
  [[noreturn]] void fail_stale(const ir::Buffer& buffer, SourceLoc read, SourceLoc written) const;

  // Variables that each thread has summed up over its own iterations, by the id of the buffer, and values of them, by
  // that of the Var: errors unless threads combine them.
  std::map<int, ErrorFields> parts_, values_of_parts_;
  std::set<int> exchanged_;  // values that other lanes had a say in, by the id of the Var
  std::map<int, ErrorFields> outside_;        // reads outside of a tensor, by the id of the Var
  std::map<int, std::vector<Write>> writes_;  // by the id of the storage
  std::vector<size_t> names_;  // by name: the number of writes of its storage that leave it fresh
  std::vector<Read> reads_;
  /// The rest of a body after a break.
  struct Rest {
    ir::Expr stays;
    SourceLoc loc;
    bool by_thread;
  };

  std::vector<OpenLoop> loops_;
  std::vector<Rest> rests_;  // open, outer before inner
  std::vector<Iteration> iterations_;
  struct Size {
    ir::Expr e;  // keeps the node alive
    int depth = 0, operations = 0;
  };
  Size size_of(const ir::Expr& e);
  void check_nesting(SourceLoc loc) const;

  std::unordered_map<const ir::Node*, Size> sizes_;                // of operations
  std::map<const ir::Var*, std::shared_ptr<ir::Var>> parameters_;  // dims and scalars
  std::set<int> thread_lets_;  // ids of the Vars bound to expressions of the thread index
  std::set<const void*> own_;  // the Vars and Buffers of this kernel
  mutable std::map<const ir::Var*, int> unread_;  // see drop_if_unread(): the ids of their buffers
  std::map<int, int> view_scopes_;                // of Pointer statements, by buffer id
  std::vector<ir::Body> open_;
  std::vector<int> scopes_;
  int last_scope_ = 0;
};

/// Throws unless the text is a valid name: names reach generated code and file names.
void check_name(const Recorder& recorder, const std::string& text, SourceLoc loc);
/// Throws unless the extents are valid for a tile or a parallel loop; `what` names it in the
/// message.
std::vector<ir::Expr> constant_shape(const Recorder& recorder, const std::vector<int64_t>& shape,
                                     const std::string& what, SourceLoc loc);
/// Throws unless the declared alignment of a tensor is possible.
void check_align(const Recorder& recorder, const ir::Buffer& buffer, SourceLoc loc);
/// Sets shape and strides of a tensor; row-major without strides.
void set_shape(const Recorder& recorder, ir::Buffer& buffer, const std::vector<Arg>& shape,
               const std::vector<Arg>& strides, SourceLoc loc);

/// Throws unless `what` can change the element in one step.
void check_element(const Recorder& recorder, const Ref& element, const std::string& what,
                   SourceLoc loc);

/// Throws unless such a grid can run in clusters of that size.
void check_cluster(const Recorder& recorder, const std::vector<Arg>& grid, int cluster,
                   SourceLoc loc);

/// The buffer that `buffer` is a view of, or itself.
const ir::Buffer& storage_of(const ir::Buffer& buffer);
/// The region of a whole buffer.
ir::Region whole(const ir::BufferRef& buffer);
/// True if the region is its whole buffer in the buffer's order: neither a part nor transposed.
bool is_whole(const ir::Region& region);
/// Extents of a region, in its own order.
std::vector<ir::Expr> region_shape(const ir::Region& region);
std::string shape_text(const std::vector<ir::Expr>& shape);

}  // namespace tessera::dsl
