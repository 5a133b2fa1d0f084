#include "codegen/verify/tile_ir.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "codegen/rule.h"
#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

using Shape = std::vector<ir::Expr>;

Shape shape_of(const ir::Region& region) {
  Shape shape;
  for (const int d : region.order) shape.push_back(region.extents[static_cast<size_t>(d)]);
  return shape;
}

bool is_same(const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), ir::equal);
}

bool is_constant(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(),
                     [](const ir::Expr& extent) { return ir::is_constant(extent); });
}

class TileVerifier : TileEffectReceiver {
 public:
  TileVerifier(const ir::Kernel& kernel, const TileExpectations& expected, std::string_view after)
      : kernel_(kernel), expected_(expected), after_(after) {}

  void run() {
    for (const auto* const parameters : {&kernel_.dims, &kernel_.scalars, &kernel_.blocks}) {
      for (const ir::VarRef& var : *parameters) binds(var, nullptr);
    }
    binds(kernel_.thread, nullptr);
    for (const ir::BufferRef& tensor : kernel_.tensors) {
      begun_.insert(tensor->id);
      for (const ir::Expr& extent : tensor->shape) evaluates(extent);
      for (const ir::Expr& stride : tensor->strides) evaluates(stride);
    }
    for (const ir::Expr& extent : kernel_.grid) evaluates(extent);
    verify_body(kernel_.body);
    require(!is_open_, "asynchronous copies are committed before the end", kernel_.name);
  }

 private:
  template <class What>
  void require(bool holds, std::string_view rule, const What& what) const {
    require_rule(holds, after_, rule, what, loc_);
  }

  // ---- scopes
  void verify_body(const ir::Body& body) {
    const std::set<const ir::Var*> vars = vars_;
    const std::set<int> begun = begun_, groups = groups_;
    const std::map<int, ir::ReduceOp> reducers = std::exchange(reducers_of_body_, {});
    const std::vector<int> marks = std::exchange(open_marks_, {});
    for (const ir::Stmt& stmt : body) verify_stmt(stmt);
    require(open_marks_.empty(), "a mark ends in the body where it begins", kernel_.name);
    open_marks_ = marks;
    require(reducers_of_body_.empty(), "a reducer is finalized in the body that opens it",
            kernel_.name);
    vars_ = vars;
    begun_ = begun;
    groups_ = groups;
    reducers_of_body_ = reducers;
  }

  void verify_stmt(const ir::Stmt& stmt) {
    loc_ = stmt.loc;
    std::visit([&](const auto& node) { look(node); }, stmt.node);
    const bool in_parallel = in_parallel_, by_thread = by_thread_;
    if (is_of_block(stmt)) {
      require(!in_parallel_ || !expected_.are_layouts_solved,
              "a statement of the block stands outside of parallel loops", "a statement");
      require(!by_thread_, "a statement of the block stands under no condition on the thread",
              "a statement");
    }
    const auto* loop = std::get_if<ir::Loop>(&stmt.node);
    std::set<const ir::Var*> vars;  // around a loop
    if (loop != nullptr) {
      vars = vars_;
      in_parallel_ = in_parallel_ || loop->kind == ir::LoopKind::parallel;
      by_thread_ = by_thread_ || uses_thread(loop->begin) || uses_thread(loop->extents[0]);
    } else if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
      by_thread_ = by_thread_ || uses_thread(branch->condition);
    }
    effects(stmt, *this);
    in_parallel_ = in_parallel;
    by_thread_ = by_thread;
    if (loop != nullptr) vars_ = std::move(vars);  // its index ends with it
    loc_ = stmt.loc;
  }

  bool uses_thread(const ir::Expr& e) const {
    std::vector<ir::VarRef> used;
    ir::collect_vars(e, used);
    return std::any_of(used.begin(), used.end(),
                       [&](const ir::VarRef& var) { return of_thread_.contains(var.get()); });
  }

  // ---- effects
  void uses(const ir::BufferRef& buffer, bool writes) override {
    const ir::Buffer& b = *buffer;
    require(b.id >= 0 && b.id < kernel_.num_buffers, "buffers are numbered below num_buffers",
            b.name);
    const auto known = buffers_.try_emplace(b.id, &b).first;
    require(known->second == &b, "a buffer has a number of its own",
            [&] { return fmt::format("{} and {}", known->second->name, b.name); });
    if (b.alias_of && !b.block) uses(b.alias_of, writes);
    if (b.space == ir::Space::global || b.block) {
      const bool is_view_of_one = b.space == ir::Space::global && b.alias_of;
      require(begun_.contains(b.id) || is_view_of_one,
              "a buffer is a tensor, or a view that has begun", b.name);
    }
    if (b.space != ir::Space::global) {
      require(is_constant(b.shape), "a buffer on chip has constant extents", b.name);
    } else {
      require(!writes || b.is_output, "nothing writes an input tensor", b.name);
    }
  }
  void evaluates(const ir::Expr& e) override {
    std::vector<ir::VarRef> used;
    ir::collect_vars(e, used);
    for (const ir::VarRef& var : used) {
      require(vars_.contains(var.get()), "a variable is defined before it is used",
              [&] { return fmt::format("{} in {}", var->name, to_string(e)); });
    }
  }
  void binds(const ir::VarRef& var, const ir::Expr* value) override {
    require(var->id >= 0 && var->id < kernel_.num_vars, "variables are numbered below num_vars",
            var->name);
    const auto known = numbers_.try_emplace(var->id, var.get()).first;
    require(known->second == var.get(), "a variable has a number of its own",
            [&] { return fmt::format("{} and {}", known->second->name, var->name); });
    require(value == nullptr || (*value)->type == var->type, "a value has the dtype of its name",
            var->name);
    vars_.insert(var.get());
    const bool is_thread =
        var->kind == ir::VarKind::thread || (value != nullptr && uses_thread(*value));
    if (is_thread) of_thread_.insert(var.get());
  }
  void orders(const Order& order) override {
    if (order.work != Work::copies) return;
    if (order.kind == Order::Kind::commit) is_open_ = false;
    if (order.kind == Order::Kind::await) {
      require(!is_open_, "asynchronous copies are committed before a wait", "a wait");
    }
  }
  void body(const ir::Body& inner, bool repeats) override {
    const bool was_open = is_open_;
    verify_body(inner);
    // A round meets what the one before it left open.
    if (repeats && is_open_ && !was_open) verify_open(inner);
    is_open_ = is_open_ || was_open;
  }
  /// The rule of commits and waits alone: the rest of the body holds.
  void verify_open(const ir::Body& inner) {
    for (const ir::Stmt& stmt : inner) {
      loc_ = stmt.loc;
      if (has_order(stmt, Order::Kind::commit, Work::copies)) return;
      require(!has_order(stmt, Order::Kind::await, Work::copies),
              "asynchronous copies are committed before a wait", "a wait");
    }
  }

  // ---- rules of one kind of statement
  void look(const ir::Let&) const {}
  void look(const ir::ElementLoad& load) const {
    element(load.buffer, load.indices);
    require(load.var->type == load.buffer->dtype, "a load has the dtype of its buffer",
            load.var->name);
  }
  void look(const ir::ElementStore& store) const {
    element(store.buffer, store.indices);
    is_of_dtype(store.value, *store.buffer);
  }
  void look(const ir::Atomic& atomic) const {
    element(atomic.buffer, atomic.indices);
    const bool loads = atomic.op == ir::AtomicOp::load;
    require(static_cast<bool>(atomic.value) != loads, "an atomic has a value unless it loads",
            atomic.buffer->name);
    if (atomic.value) is_of_dtype(atomic.value, *atomic.buffer);
    if (!atomic.until) return;
    is_condition(atomic.until);
    require(loads && atomic.old && atomic.order == ir::MemoryOrder::acq_rel,
            "an ordered atomic load waits for a condition of its value", atomic.buffer->name);
  }
  void look(const ir::Copy& copy) {
    require(!expected_.are_tiles_expanded || is_by_engine(copy.plan), "copies and fills are loops",
            copy.to.buffer->name);
    require(copy.token < 0 || tokens_.insert(copy.token).second, "a store has a token of its own",
            copy.to.buffer->name);
    tile(copy.from);
    tile(copy.to);
    require(is_same(shape_of(copy.from), shape_of(copy.to)), "both sides of a copy have one shape",
            fmt::format("{} -> {}", copy.from.buffer->name, copy.to.buffer->name));
    if (copy.plan.when == ir::CopyTime::at_once) return;
    const ir::Buffer &from = *copy.from.buffer, &to = *copy.to.buffer;
    require(from.space == ir::Space::global && to.space == ir::Space::shared,
            "an asynchronous copy goes from global to shared memory",
            fmt::format("{} -> {}", from.name, to.name));
    require(copy.plan.when != ir::CopyTime::awaited || from.dtype == to.dtype,
            "an asynchronous copy converts nothing", fmt::format("{} -> {}", from.name, to.name));
    is_open_ = is_open_ || to.ring < 0;
  }
  void look(const ir::Fill& fill) const {
    require(!expected_.are_tiles_expanded, "copies and fills are loops", fill.to.buffer->name);
    tile(fill.to);
    is_of_dtype(fill.value, *fill.to.buffer);
  }
  void look(const ir::Reduce& reduce) const {
    tile(reduce.from);
    tile(reduce.to);
    Shape shape = shape_of(reduce.from);
    require(reduce.axis >= 0 && reduce.axis < std::ssize(shape), "a reduction has an axis",
            reduce.from.buffer->name);
    shape.erase(shape.begin() + reduce.axis);
    if (shape.empty()) shape.push_back(ir::index(1));
    require(is_same(shape, shape_of(reduce.to)), "a reduction keeps the other axes",
            fmt::format("{} -> {}", reduce.from.buffer->name, reduce.to.buffer->name));
    for (const ir::Region* side : {&reduce.from, &reduce.to}) is_fragment(*side->buffer);
  }
  void look(const ir::ReducerInit& init) {
    is_fragment(*init.reducer);
    require(!reducers_.contains(init.reducer->id), "a reducer is opened once", init.reducer->name);
    reducers_.emplace(init.reducer->id, init.op);
    reducers_of_body_.emplace(init.reducer->id, init.op);
  }
  void look(const ir::ReducerUpdate& update) const {
    is_open(*update.reducer, update.op);
    require(in_parallel_, "a reducer is updated in a parallel loop", update.reducer->name);
    element(update.reducer, update.indices);
    is_of_dtype(update.value, *update.reducer);
  }
  void look(const ir::ReducerFinalize& finalize) {
    is_open(*finalize.reducer, finalize.op);
    require(reducers_of_body_.erase(finalize.reducer->id) == 1,
            "a reducer is finalized in the body that opens it", finalize.reducer->name);
    reducers_.erase(finalize.reducer->id);
  }
  void look(const ir::Gemm& gemm) const {
    for (const ir::Region* side : {&gemm.a, &gemm.b, &gemm.c}) tile(*side);
    is_fragment(*gemm.c.buffer);
    const Shape a = shape_of(gemm.a), b = shape_of(gemm.b);
    require(a.size() == 2 && b.size() == 2 && ir::equal(a[1], b[0]),
            "operands of a matrix product are [m, k] and [k, n]",
            fmt::format("{}, {}", gemm.a.buffer->name, gemm.b.buffer->name));
    Shape c = {a[0], b[1]};
    const int64_t depths = gemm.plan.grid.depths;
    if (depths > 1) c.insert(c.begin(), ir::index(depths));
    require(is_same(c, shape_of(gemm.c)), "a matrix product is [m, n], or [depths, m, n]",
            gemm.c.buffer->name);
  }
  void look(const ir::Loop& loop) {
    require(!expected_.are_loops_serial || loop.kind != ir::LoopKind::pipelined,
            "no loop is pipelined", loop.vars[0]->name);
    require(!loop.across || loop.kind == ir::LoopKind::pipelined,
            "only a pipelined loop goes across another", loop.vars[0]->name);
    require(!loop.producer || (loop.kind == ir::LoopKind::pipelined && !expected_.are_roles_split),
            "only a pipelined loop has a producer, until roles are split", loop.vars[0]->name);
    require(loops_.insert(loop_id(loop)).second, "a loop has a number of its own",
            loop.vars[0]->name);
    const bool is_parallel = loop.kind == ir::LoopKind::parallel;
    require(loop.vars.size() == loop.extents.size() && (is_parallel || loop.vars.size() == 1),
            "a loop has one index per extent", loop.vars[0]->name);
    require(!is_parallel || is_constant(loop.extents), "a parallel loop has constant extents",
            loop.vars[0]->name);
    require(!ir::is_constant(loop.step) || loop.step->integer > 0, "the step of a loop is positive",
            loop.vars[0]->name);
    for (const ir::Expr& extent : loop.extents) is_index(extent);
    for (size_t i = 0; i < loop.body.size(); ++i) {
      require(!std::holds_alternative<ir::Break>(loop.body[i].node) ||
                  ((loop.kind == ir::LoopKind::serial || loop.kind == ir::LoopKind::pipelined) &&
                   i + 1 == loop.body.size()),
              "a break ends the body of a serial or pipelined loop", loop.vars[0]->name);
    }
    // The loop of an asynchronous copy is what a copy was; a ring has mbarriers instead of groups.
    if (!loop.plan || loop.plan->when == ir::CopyTime::at_once) return;
    const auto& store = std::get<ir::ElementStore>(loop.body.back().node);
    is_open_ = is_open_ || storage_of(*store.buffer).ring < 0;
  }
  void look(const ir::If& branch) const { is_condition(branch.condition); }
  void look(const ir::Sync&) const {}
  void look(const ir::Collective&) const {}
  void look(const ir::Assume& assume) const { is_condition(assume.condition); }
  void look(const ir::Present&) const {}
  void look(const ir::Pointer& pointer) { begun_.insert(pointer.buffer->id); }
  void look(const ir::Assert& check) const { is_condition(check.condition); }
  void look(const ir::Print& print) {
    if (!print.is_mark()) return;
    if (print.begins()) return open_marks_.push_back(print.event);
    const bool is_last = !open_marks_.empty() && open_marks_.back() + 1 == print.event;
    require(is_last, "a mark ends in the body where it begins, after those inside it", print.text);
    open_marks_.pop_back();
  }
  void look(const ir::Dependency&) const {}
  void look(const ir::ExternCall&) const {}
  void look(const ir::AsyncCommit& commit) { groups_.insert(commit.group); }
  void look(const ir::AsyncWait& wait) const {
    if (wait.group < 0) return;
    require(groups_.contains(wait.group), "a wait for a group comes after its commit", "a wait");
  }
  void look(const ir::StoreWait& wait) const {
    // A store by threads has become a loop, without a token.
    require(expected_.are_tiles_expanded || tokens_.contains(wait.token),
            "a wait for a store comes after it", "a wait");
  }
  void look(const ir::Roles& roles) const {
    int end = 0;
    for (const ir::Roles::Role& role : roles.roles) {
      require(role.first % 32 == 0 && role.count % 32 == 0 && role.count > 0 && role.first >= end &&
                  role.first + role.count <= kernel_.threads,
              "roles are whole warps of the block, one after the other", role.name);
      end = role.first + role.count;
    }
    require(!in_parallel_ && !by_thread_, "roles stand at the top level", "roles");
  }
  void look(const ir::RingTurn& turn) const {
    require(turn.ring >= 0 && turn.ring < std::ssize(kernel_.rings), "a ring is the kernel's",
            fmt::format("ring {}", turn.ring));
  }
  void look(const ir::Break& leave) const { is_condition(leave.condition); }
  void look(const ir::Return& leave) const {
    is_condition(leave.condition);
    require(!in_parallel_, "no iteration of a parallel loop leaves the kernel", "a return");
  }

  // ---- parts of rules
  void is_index(const ir::Expr& e) const {
    require(is_integer(e->type), "an index is an integer", [&] { return to_string(e); });
  }
  void is_condition(const ir::Expr& e) const {
    require(e->type == DType::boolean, "a condition is boolean", [&] { return to_string(e); });
  }
  void is_of_dtype(const ir::Expr& value, const ir::Buffer& buffer) const {
    require(value->type == buffer.dtype, "a store has the dtype of its buffer",
            [&] { return fmt::format("{} into {}", to_string(value), buffer.name); });
  }
  void is_fragment(const ir::Buffer& buffer) const {
    require(buffer.space == ir::Space::fragment, "reductions and products are fragments",
            buffer.name);
  }
  void element(const ir::BufferRef& buffer, const Shape& indices) const {
    require(indices.size() == buffer->shape.size(), "an access has one index per dimension",
            buffer->name);
    for (const ir::Expr& index : indices) is_index(index);
  }
  void tile(const ir::Region& region) const {
    const ir::Buffer& buffer = *region.buffer;
    element(region.buffer, region.offsets);
    require(region.extents.size() == buffer.shape.size(),
            "a region has an extent or an index per dimension", buffer.name);
    std::vector<int> dimensions;
    for (size_t d = 0; d < region.extents.size(); ++d) {
      if (region.extents[d]) dimensions.push_back(static_cast<int>(d));
    }
    std::vector<int> order = region.order;
    std::sort(order.begin(), order.end());
    require(order == dimensions, "a region names the dimensions of its shape once", buffer.name);
    require(is_constant(shape_of(region)), "a tile has constant extents", buffer.name);
  }
  void is_open(const ir::Buffer& reducer, ir::ReduceOp op) const {
    const auto found = reducers_.find(reducer.id);
    require(found != reducers_.end(), "a reducer is open", reducer.name);
    require(found->second == op, "a reducer has one operation", reducer.name);
  }

  const ir::Kernel& kernel_;
  const TileExpectations expected_;
  const std::string_view after_;
  std::set<const ir::Var*> vars_;             // in scope
  std::set<const ir::Var*> of_thread_;        // the thread's number, and what is made of it
  std::map<int, const ir::Var*> numbers_;     // all variables, by number
  std::map<int, const ir::Buffer*> buffers_;  // all buffers, by number
  std::set<int> begun_;                       // numbers of tensors and of views in scope
  std::set<int> loops_;                       // numbers
  std::set<int> groups_, tokens_;             // committed; of stores
  std::map<int, ir::ReduceOp> reducers_, reducers_of_body_;  // open, by number
  std::vector<int> open_marks_;                              // events of the body, outer first
  bool in_parallel_ = false;                                 // in a parallel loop
  bool by_thread_ = false;  // under a condition or bound that uses the thread
  bool is_open_ = false;    // asynchronous copies that no group has yet
  SourceLoc loc_;           // of the statement looked at
};

}  // namespace

void verify(const ir::Kernel& kernel, const TileExpectations& expected, std::string_view after) {
  TileVerifier(kernel, expected, after).run();
}

}  // namespace tessera::codegen
