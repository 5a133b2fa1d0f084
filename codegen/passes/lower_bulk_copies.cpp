#include "codegen/passes/lower_bulk_copies.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/analysis/groups_in_flight.h"
#include "codegen/analysis/overwritten_stores.h"
#include "codegen/thread_ir/walk.h"
#include "dsl/base/error.h"
#include "dsl/base/target_facts.h"

namespace tessera::codegen {
namespace {

constexpr int kMostGroups = 14;  // more are waited for earlier
constexpr int kWarpSize = 32;
constexpr int kPieceBits = 128;

/// True for a bulk or tensor copy that belongs to a group.
bool is_in_group(const Stmt& stmt) {
  const auto* bulk = std::get_if<BulkCopy>(&stmt.node);
  const auto* tensor = std::get_if<TensorCopy>(&stmt.node);
  return (bulk != nullptr && !bulk->mbarrier.array) ||
         (tensor != nullptr && !tensor->mbarrier.array);
}

/// The first one; null if there is none.
const Stmt* find_bulk_copy(const Program& program) {
  const Stmt* found = nullptr;
  walk(program.body, [&](const Stmt& stmt) {
    if (found == nullptr && is_in_group(stmt)) found = &stmt;
  });
  return found;
}

Expr number(int64_t value) {
  return ir::constant(DType::u32, value);
}

class BulkCopyLowering {
 public:
  /// `mbarriers`: of groups; null if all bulk copies fill rings.
  BulkCopyLowering(Program& program, ArrayRef mbarriers)
      : program_(program), mbarriers_(std::move(mbarriers)) {
    TESSERA_CHECK(program.thread, "bulk copies in a program without a thread index");
    if (!mbarriers_) return;
    walk(program.body, [&](const Stmt& stmt) {
      for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
        const bool is_piece = effect.in_flight && effect.proxy == Proxy::generic;
        has_pieces_ = has_pieces_ || is_piece;
      });
      // Before sm_90 pieces stand for bulk copies.
      has_pieces_ = has_pieces_ || (std::holds_alternative<BulkCopy>(stmt.node) &&
                                    !facts_of(program.target).has_bulk_copies);
    });
    fences_ = overwrites_stores(program.body);
    committed_ = counter("committed");
    awaited_ = counter("awaited");
  }

  void run() {
    program_.maps.clear();  // those of whole tiles
    lower(program_.body, {});
    if (!mbarriers_) return;
    Body begin;
    into_ = &begin;
    emit(branch(ir::binary(ir::Op::eq, thread(), ir::index(0)), [&] {
      Access all = mbarrier(ir::index(0));
      all.width = static_cast<int>(mbarriers_->size);
      emit(MbarrierInit{all});
      emit(Fence{});
    }));
    emit(Barrier{});
    emit(Declare{committed_, true});
    emit(Declare{awaited_, true});
    program_.body.insert(program_.body.begin(), std::make_move_iterator(begin.begin()),
                         std::make_move_iterator(begin.end()));
  }

 private:
  // ---- statements
  void lower(Body& body, GroupsInFlight groups) {
    Body result;
    for (Stmt& stmt : body) {
      const GroupsInFlight after = groups_after(stmt, groups, most_groups());
      const GroupsInFlight inside = groups_inside(stmt, groups, most_groups());
      for_each_body(stmt, [&](Body& inner) { lower(inner, inside); });
      into_ = &result;
      loc_ = stmt.loc;
      if (const auto* copy = std::get_if<BulkCopy>(&stmt.node)) {
        start(*copy);
      } else if (const auto* tile = std::get_if<TensorCopy>(&stmt.node)) {
        start(*tile);
      } else if (const auto* store = std::get_if<TensorStore>(&stmt.node)) {
        const auto emit_part = [&](TensorStore part, const Access& from, const layout::Swizzle&) {
          part.from = from;
          part.to.indices = part.coordinates;
          emit(std::move(part));
        };
        for_each_panel(*store, store->from, false, emit_part);
      } else if (!mbarriers_) {
        result.push_back(std::move(stmt));
      } else if (has_order(stmt, Order::Kind::commit, Work::copies)) {
        commit(groups);
        if (has_pieces_) emit(Commit{});
      } else if (has_order(stmt, Order::Kind::await, Work::copies)) {
        const int pending = most_in_flight(stmt);
        wait_until(pending, groups);
        if (has_pieces_) emit(Await{Work::copies, pending});
      } else if (const auto* leave = std::get_if<Return>(&stmt.node)) {
        // A block must not end before its bulk copies.
        emit(branch(leave->condition, [&] {
          wait_until(0, groups);
          emit(Return{ir::constant(DType::boolean, 1)});
        }));
      } else {
        const bool is_barrier = has_order(stmt, Order::Kind::barrier) ||
                                has_order(stmt, Order{Order::Kind::arrive, Group::cluster}) ||
                                has_order(stmt, Order{Order::Kind::wait, Group::cluster});
        if (fences_ && is_barrier) emit(Fence{});
        result.push_back(std::move(stmt));
      }
      groups = after;
    }
    body = std::move(result);
  }

  void start(const BulkCopy& copy) {
    const auto issue = [&] {
      BulkCopy signalled = copy;
      signalled.from.guard = {};
      if (!copy.mbarrier.array) signalled.mbarrier = mbarrier_of(load("group", committed_));
      signalled.expects = true;
      emit(std::move(signalled));
    };
    if (!copy.from.guard) return issue();
    emit(If{copy.from.guard, inside(issue), inside([&] { clear(copy.to); }), true});
  }

  /// One copy per panel of the tile, or of this block's part of the tile.
  void start(const TensorCopy& copy) {
    const Access mbarrier =
        copy.mbarrier.array ? copy.mbarrier : mbarrier_of(load("group", committed_));
    const auto emit_part = [&](TensorCopy part, const Access& to, const layout::Swizzle& swizzle) {
      part.to = to;
      if (copy.multicast) go_to_part(part, swizzle);
      part.mbarrier = mbarrier;
      part.expects = true;
      emit(std::move(part));
    };
    for_each_panel(copy, copy.to, copy.multicast, emit_part);
  }

  /// Calls fn(part, at, swizzle) for each panel of the tile that lies at `tile`: `part` is `whole` with the map, of the
  /// panel or of a block's part of it, and the coordinates of the panel, which lies at `at`.
  template <class Move, class Fn>
  void for_each_panel(const Move& whole, const Access& tile, bool is_part, const Fn& fn) {
    const int64_t columns = whole.map->box.back();
    const layout::Swizzle swizzle = tile.array->swizzle.value_or(
        layout::Swizzle{.columns = columns, .panel = columns, .pitch = columns});
    for (int64_t column = 0; column < columns; column += swizzle.panel) {
      Move part = whole;
      part.map = map_of_panel(*whole.map, swizzle, is_part);
      part.coordinates.back() = whole.coordinates.back() + ir::index(column);
      Access at = tile;
      at.offset = tile.offset + ir::index(column / swizzle.panel * swizzle.rows * swizzle.pitch);
      if (!at.indices.empty()) at.indices.back() = tile.indices.back() + ir::index(column);
      fn(std::move(part), at, swizzle);
    }
  }

  /// From the first element of a panel to that of this block's part, whose map the copy has.
  void go_to_part(TensorCopy& copy, const layout::Swizzle& swizzle) const {
    const TensorMap& map = *copy.map;
    const size_t outer = map.outermost();
    const Expr rank = ir::var(program_.blocks[0]) % ir::index(program_.cluster);
    const Expr first = rank * ir::index(map.box[outer]);
    copy.coordinates[outer] = copy.coordinates[outer] + first;
    const int64_t rows = map.elements() / map.box.back();
    copy.to.offset = copy.to.offset + rank * ir::index(rows * swizzle.pitch);
    if (copy.to.indices.empty()) return;
    const auto from_end = static_cast<std::ptrdiff_t>(map.box.size() - outer);
    Expr& row = *(copy.to.indices.end() - from_end);
    row = row + first;
  }

  /// The map of a panel of the tile of `whole`, or of a block's part of it; the same one for the same panels.
  TensorMapRef map_of_panel(const TensorMap& whole, const layout::Swizzle& swizzle, bool is_part) {
    auto map = std::make_shared<TensorMap>(whole);
    if (is_part) map->box[map->outermost()] /= program_.cluster;
    map->box.back() = std::min(whole.box.back(), swizzle.panel);
    map->swizzle = swizzle.mask > 0 ? swizzle.panel * bits(whole.tensor->dtype) / 8 : 0;
    int same_tensor = 0;
    for (const TensorMapRef& known : program_.maps) {
      if (known->tensor != whole.tensor) continue;
      if (known->box == map->box && known->swizzle == map->swizzle) return known;
      ++same_tensor;
    }
    map->name = whole.tensor->name + "_map";
    if (same_tensor > 0) map->name += fmt::format("_{}", same_tensor + 1);
    program_.maps.push_back(map);
    return map;
  }

  /// The lanes of the warp store zeros.
  void clear(const Access& row) {
    const int piece = kPieceBits / bits(row.array->dtype);
    const auto zeros = std::make_shared<Array>();
    zeros->name = "zeros";
    zeros->dtype = row.array->dtype;
    zeros->size = piece;
    emit(Declare{zeros, true});
    const Expr first = thread() % ir::index(kWarpSize) * ir::index(piece);
    const int step = kWarpSize * piece;
    const Expr rounds = ir::index((row.width + step - 1) / step);
    loop("round", ir::index(0), rounds, ir::index(1), [&](const Expr& round) {
      const Expr column = first + round * ir::index(step);
      Store store;
      store.to = row;
      store.to.offset = row.offset + column;
      if (!row.indices.empty()) store.to.indices.back() = row.indices.back() + column;
      store.to.width = piece;
      if (row.width % step != 0) store.to.guard = column < ir::index(row.width);
      store.from = {zeros, ir::index(0)};
      emit(std::move(store));
    });
    emit(Fence{});
  }

  void commit(GroupsInFlight groups) {
    const Expr group = load("group", committed_);
    emit(branch(is_first_lane(), [&] { emit(MbarrierArrive{mbarrier_of(group)}); }));
    emit(assign(committed_, group + number(1)));
    wait_until(most_groups(), {groups.least + 1, groups.most + 1});
  }

  /// Waits until at most `pending` of the groups that are in flight are left.
  void wait_until(int pending, GroupsInFlight groups) {
    if (groups.most <= pending) return;
    const Expr first = load("first", awaited_);
    if (groups.least == groups.most && groups.most == pending + 1) {
      emit(MbarrierWait{mbarrier_of(first), first / number(mbarriers_->size)});
      emit(assign(awaited_, first + number(1)));
      return;
    }
    const Expr all = load("all", committed_);
    const Expr end =
        pending == 0 ? all : ir::binary(ir::Op::max, all, number(pending)) - number(pending);
    loop("group", first, end, number(1), [&](const Expr& group) {
      emit(MbarrierWait{mbarrier_of(group), group / number(mbarriers_->size)});
    });
    emit(assign(awaited_, ir::binary(ir::Op::max, first, end)));
  }

  /// That no commit exceeds: the next one finds its mbarrier free.
  int most_groups() const { return mbarriers_ ? static_cast<int>(mbarriers_->size) - 1 : 0; }

  // ---- building
  template <class Node>
  void emit(Node node) {
    into_->push_back({std::move(node), loc_});
  }
  void emit(Stmt stmt) { into_->push_back(std::move(stmt)); }

  template <class Fn>
  Body inside(const Fn& fn) {
    Body body;
    Body* const outer = into_;
    into_ = &body;
    fn();
    into_ = outer;
    return body;
  }
  template <class Then>
  Stmt branch(const Expr& condition, const Then& then) {
    return {If{condition, inside(then), {}, false}, loc_};
  }
  template <class Fn>
  void loop(const char* name, const Expr& begin, const Expr& end, const Expr& step, const Fn& fn) {
    const VarRef i = new_var(name, begin->type, ir::VarKind::loop, begin, end);
    For node{i, begin, end, step, false, {}};
    node.body = inside([&] { fn(ir::var(i)); });
    emit(std::move(node));
  }

  VarRef new_var(const char* name, DType type, ir::VarKind kind, Expr lower = {}, Expr upper = {}) {
    auto var = std::make_shared<ir::Var>();
    var->name = name;
    var->type = type;
    var->kind = kind;
    var->id = program_.num_vars++;
    var->lower = std::move(lower);
    var->upper = std::move(upper);
    return var;
  }
  static ArrayRef counter(const char* name) {
    const auto array = std::make_shared<Array>();
    array->name = name;
    array->dtype = DType::u32;
    array->size = 1;
    return array;
  }
  static Access element(const ArrayRef& array, Expr offset) {
    Access access;
    access.array = array;
    access.offset = std::move(offset);
    return access;
  }
  Expr load(const char* name, const ArrayRef& array) {
    Load load;
    load.from = element(array, ir::index(0));
    load.var = new_var(name, array->dtype, ir::VarKind::value);
    emit(load);
    return ir::var(load.var);
  }
  static Store assign(const ArrayRef& array, Expr value) {
    Store store;
    store.to = element(array, ir::index(0));
    store.value = std::move(value);
    return store;
  }

  Expr thread() const { return ir::var(program_.thread); }
  Expr is_first_lane() const {
    return ir::binary(ir::Op::eq, thread() % ir::index(kWarpSize), ir::index(0));
  }
  Access mbarrier(Expr offset) const {
    Access access = element(mbarriers_, std::move(offset));
    access.indices = {access.offset};
    return access;
  }
  Access mbarrier_of(const Expr& group) const {
    return mbarrier(ir::cast(DType::i32, group % number(mbarriers_->size)));
  }

  Program& program_;
  const ArrayRef mbarriers_;
  ArrayRef committed_, awaited_;
  bool has_pieces_ = false;  // some copies keep their groups
  bool fences_ = false;
  Body* into_ = nullptr;
  SourceLoc loc_;
};

}  // namespace

void add_mbarriers(Program& program) {
  const Stmt* const first = find_bulk_copy(program);
  if (first == nullptr) return;
  int most = 0;
  walk(program.body, [&](const Stmt& stmt) { most = std::max(most, most_in_flight(stmt)); });
  const auto array = std::make_shared<Array>();
  array->name = "mbarriers";
  array->dtype = DType::u64;
  array->space = ArraySpace::shared;
  array->size = std::min(most, kMostGroups) + 2;
  array->shape = {ir::index(array->size)};
  array->arrivals = program.threads / kWarpSize;
  array->loc = first->loc;
  program.shared.push_back(array);
}

void lower_bulk_copies(Program& program) {
  const auto mbarriers =
      std::find_if(program.shared.begin(), program.shared.end(),
                   [](const ArrayRef& array) { return array->is_mbarriers() && array->ring < 0; });
  const bool is_grouped = mbarriers != program.shared.end();
  const bool any = std::any_of(program.body.begin(), program.body.end(), [](const Stmt& stmt) {
    return any_in(stmt, [](const Stmt& inner) {
      return std::holds_alternative<BulkCopy>(inner.node) ||
             std::holds_alternative<TensorCopy>(inner.node) ||
             std::holds_alternative<TensorStore>(inner.node);
    });
  });
  if (any || is_grouped) BulkCopyLowering(program, is_grouped ? *mbarriers : nullptr).run();
}

}  // namespace tessera::codegen
