#include "codegen/cuda/usage.h"

#include <algorithm>

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen::cuda {
namespace {

bool may_write(const Array& written, const Array& read) {
  if (read.space == ArraySpace::registers) return &written == &read;
  // Arrays of the arena may share bytes, the block of a cluster may be this one, and two global tensors
  // of a call may be the same memory.
  return (written.space == ArraySpace::global) == (read.space == ArraySpace::global) &&
         written.space != ArraySpace::registers && !read.is_constant();
}

/// True if memory accesses stay on their side of a statement with this order.
bool keeps_accesses_apart(const Order& order) {
  switch (order.kind) {
    case Order::Kind::converge:
    case Order::Kind::commit:  // of what has been started
      return false;
    case Order::Kind::exchange:
    case Order::Kind::barrier:
    case Order::Kind::arrive:
    case Order::Kind::wait:
    case Order::Kind::fence:
    case Order::Kind::await:
    case Order::Kind::previous_kernel:
    case Order::Kind::next_kernel:
    case Order::Kind::leave:
      return true;
  }
  return true;
}

/// True if the statement itself may change what a load of `array` sees.
class Disturbance : public EffectReceiver {
 public:
  explicit Disturbance(const Array& array) : array_(array) {}

  void memory(const MemoryEffect& effect) override {
    const bool starts = effect.in_flight && is_memory();
    found = found || starts || (effect.writes && may_write(*effect.access.array, array_));
  }
  void registers(const RegisterEffect& effect) override {
    found = found || (effect.writes && may_write(*effect.slice.array, array_));
  }
  void orders(const Order& order) override {
    found = found || (is_memory() && keeps_accesses_apart(order));
  }
  void calls(const ir::ExternFunction& function) override {
    found = found || (is_memory() && !function.pure);
  }

  bool found = false;

 private:
  bool is_memory() const { return array_.space != ArraySpace::registers; }

  const Array& array_;
};

/// True if `stmt`, or one inside it, may change what a load of `array` sees.
bool disturbs(const Stmt& stmt, const Array& array) {
  Disturbance disturbance(array);
  walk_stmt(stmt, [&](const Stmt& inner) { effects(inner, disturbance); });
  return disturbance.found;
}

}  // namespace

Role argument_role(const ir::Node& node, size_t arg, Role role) {
  const bool is_float = tessera::is_float(node.args[arg]->type);
  switch (node.op) {
    case ir::Op::bitcast:
      return is_float ? Role::value : role;
    case ir::Op::select:
      return arg > 0 ? role : std::min(role, Role::operand);
    case ir::Op::neg:
    case ir::Op::abs:
      return role;
    case ir::Op::copysign:
      return arg == 0 ? role : Role::value;  // the sign of a NaN counts
    default:
      return is_float ? Role::operand : role;
  }
}

Usage::Usage(const Program& program)
    : ranges_([this](const ir::Var& var) { return definition(var); }, program.threads) {
  for (const Param& param : program.params) {
    if (!param.var || param.var->kind != ir::VarKind::scalar) continue;
    data_.insert(param.var.get());
    scalar_data_.insert(param.var.get());
  }
  walk(program.body, [this](const Stmt& stmt) {
    waits_for_previous_ = waits_for_previous_ || has_order(stmt, Order::Kind::previous_kernel);
  });
  mark_data(program.body);
  mark_reads(program.body);
  visit(program.body);
}

const Access* Usage::inlined_load(const ir::Var& var) const {
  const auto found = inlined_.find(&var);
  return found == inlined_.end() ? nullptr : found->second;
}

Expr Usage::definition(const ir::Var& var) const {
  const auto found = definitions_.find(&var);
  return found == definitions_.end() ? Expr() : found->second;
}

Role Usage::role(const ir::Var& var) const {
  const auto found = uses_.find(&var);
  return found == uses_.end() ? Role::index : found->second.role;
}

Role Usage::store_role(const Array& to) const {
  const bool to_arithmetic = to.space == ArraySpace::registers && !read_.contains(&to);
  return to_arithmetic ? Role::operand : Role::value;
}

bool Usage::is_kept_for_loop(const Array& array) const {
  const auto filled = fill_loops_.find(&array), read = product_loops_.find(&array);
  return filled != fill_loops_.end() && read != product_loops_.end() &&
         filled->second < read->second;
}

bool Usage::may_wrap(const Expr& e, Role role) const {
  if (role == Role::index) {
    if (e->type != DType::i32 || !ranges_.may_wrap(e) || depends_on(e, scalar_data_)) return false;
    return guarded_.contains(e.get()) || !depends_on_data(e);
  }
  return depends_on_data(e) || ranges_.may_wrap(e);
}

void Usage::mark_guarded(const Expr& root) {
  std::vector<Expr> open = {root};
  while (!open.empty()) {
    const Expr e = std::move(open.back());
    open.pop_back();
    if (!e || !guarded_.insert(e.get()).second) continue;
    if (e->op == ir::Op::var) open.push_back(definition(*e->var));
    open.insert(open.end(), e->args.begin(), e->args.end());
  }
}

bool Usage::depends_on(const Expr& e, const std::set<const ir::Var*>& vars) {
  if (e->op == ir::Op::var) return vars.contains(e->var.get());
  return std::any_of(e->args.begin(), e->args.end(),
                     [&](const Expr& arg) { return depends_on(arg, vars); });
}

void Usage::mark_data(const Body& body) {
  for (const Stmt& stmt : body) {
    for_each_binding(stmt, [&](const VarRef& var, const Expr* value) {
      if (value != nullptr) {
        if (depends_on_data(*value)) data_.insert(var.get());
        if (depends_on(*value, scalar_data_)) scalar_data_.insert(var.get());
      } else if (const auto* loop = std::get_if<For>(&stmt.node)) {
        const bool has_scalars =
            depends_on(loop->begin, scalar_data_) || depends_on(loop->end, scalar_data_);
        if (has_scalars) scalar_data_.insert(var.get());
      } else if (!std::holds_alternative<Present>(stmt.node)) {
        data_.insert(var.get());
      }
    });
    for_each_body(stmt, [&](const Body& inner) { mark_data(inner); });
  }
}

void Usage::mark_reads(const Body& body, int loops) {
  const auto deepest = [&](std::map<const Array*, int>& depths, const ArrayRef& array) {
    int& depth = depths[array.get()];
    depth = std::max(depth, loops);
  };
  for (const Stmt& stmt : body) {
    for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
      const ArrayRef& array = effect.access.array;
      if (!effect.writes || effect.atomic) {
        read_.insert(array.get());
        computed_on_.insert(array.get());
      }
      if (effect.writes) deepest(fill_loops_, array);
    });
    for_each_register_effect(stmt, [&](const RegisterEffect& effect) {
      if (effect.reads) mark_read(stmt, effect);
      if (effect.reads && effect.use == RegisterUse::multiplied) {
        deepest(product_loops_, effect.slice.array);
      }
    });
    const auto* loop = std::get_if<For>(&stmt.node);
    const bool is_loop = repeats(stmt) && (loop == nullptr || !loop->unrolled);
    for_each_body(stmt, [&](const Body& inner) { mark_reads(inner, is_loop ? loops + 1 : loops); });
  }
}

void Usage::mark_read(const Stmt& stmt, const RegisterEffect& effect) {
  const Array* const array = effect.slice.array.get();
  switch (effect.use) {
    case RegisterUse::multiplied:
      return;
    case RegisterUse::moved:
      read_.insert(array);
      return;
    case RegisterUse::converted: {
      computed_on_.insert(array);
      // To another dtype: every NaN becomes canonical.
      bool as_it_is = true;
      for_each_register_effect(stmt, [&](const RegisterEffect& other) {
        if (other.writes && other.slice.array->dtype != array->dtype) as_it_is = false;
      });
      if (as_it_is) read_.insert(array);
      return;
    }
    case RegisterUse::computed:
      read_.insert(array);
      computed_on_.insert(array);
      return;
  }
}

// Backwards: every use of a variable or array stands behind its definition, so it has been seen by
// then.
void Usage::visit(const Body& body) {
  for (size_t i = body.size(); i-- > 0;) visit(body[i], {&body, i});
}

void Usage::visit(const Stmt& stmt, Place place) {
  const bool is_live = std::visit([&](const auto& node) { return look(node, place); }, stmt.node);
  if (!is_live) dead_.insert(&stmt);
}

bool Usage::look(const Let& let, Place place) {
  if (!is_used(*let.var)) return false;
  definitions_[let.var.get()] = let.value;
  use(let.value, role(*let.var), place);
  if (picks_register(*let.var)) mark_picks(let.value);
  return true;
}

bool Usage::look(const Load& load, Place place) {
  if (load.into.array) {
    use(load.into, load.from.width, place);
    use(load.from, place);
    return true;
  }
  const auto found = uses_.find(load.var.get());
  if (found == uses_.end()) return false;
  const Use& only = found->second;
  if (only.count == 1 && can_move(load, place, only.place)) {
    inlined_[load.var.get()] = &load.from;
    use(load.from, only.place);
  } else {
    use(load.from, place);
  }
  return true;
}

bool Usage::look(const Store& store, Place place) {
  use(store.to, place);
  if (store.from.array) {
    use(store.from, store.to.width, place);
  } else {
    use(store.value, store_role(*store.to.array), place);
  }
  return true;
}

bool Usage::look(const Atomic& atomic, Place place) {
  use(atomic.to, place);
  use(atomic.value, Role::value, place);
  use(atomic.compare, Role::value, place);
  return true;
}

bool Usage::look(const Convert& convert, Place place) {
  use(convert.into, 1, place);
  use(convert.from, 1, place);
  return true;
}

bool Usage::look(const Packed& packed, Place place) {
  use(packed.into, packed.width, place);
  for (const Slice& arg : packed.args) use(arg, packed.width, place);
  return true;
}

bool Usage::look(const LoadMatrix& matrices, Place place) {
  use(matrices.into, matrices.width(), place);
  use(matrices.from, place);
  return true;
}

bool Usage::look(const Mma& mma, Place place) {
  for (const Slice* slice : {&mma.c, &mma.a, &mma.b}) use(*slice, 4, place);
  return true;
}

bool Usage::look(const For& loop, Place) {
  visit(loop.body);
  if (is_empty(loop.body)) return false;
  for (const Expr& bound : {loop.begin, loop.end, loop.step}) use(bound, Role::index, {});
  return true;
}

bool Usage::look(const If& branch, Place place) {
  visit(branch.then);
  visit(branch.otherwise);
  if (is_empty(branch.then) && is_empty(branch.otherwise)) return false;
  use(branch.condition, Role::value, place);
  return true;
}

bool Usage::look(const Collective& collective, Place place) {
  for (const Expr& arg : collective.args) use(arg, Role::value, place);
  return true;
}

bool Usage::look(const Declare& declare, Place place) {
  const Array& array = *declare.array;
  if (!is_accessed(array)) return false;
  use(array.address, Role::index, place);
  use(array.block, Role::index, place);
  if (array.mine) accessed_.insert(array.mine.get());
  return true;
}

bool Usage::look(const Present& present, Place) {
  return is_used(*present.var);
}

bool Usage::look(const Assert& check, Place place) {
  if (check.otherwise == Otherwise::trap) return false;
  use(check.condition, Role::value, place);
  return true;
}

bool Usage::look(const Print& print, Place place) {
  for (const Expr& arg : print.args) use(arg, Role::value, place);
  return true;
}

bool Usage::look(const ExternCall& call, Place place) {
  const bool needed = !call.function->pure || call.function->synchronises;
  if (!needed && !is_used(*call.var)) return false;
  for (const Expr& arg : call.args) use(arg, Role::value, place);
  return true;
}

bool Usage::look(const AsyncCopy& copy, Place place) {
  use(copy.to, place);
  use(copy.from, place);
  return true;
}

bool Usage::look(const Return& leave, Place place) {
  use(leave.condition, Role::value, place);
  return true;
}

bool Usage::can_move(const Load& load, Place from, Place to) const {
  if (to.body != from.body) return false;
  const auto begin = from.body->begin();
  const auto at = [&](size_t position) { return begin + static_cast<std::ptrdiff_t>(position); };
  return std::none_of(at(from.position + 1), at(to.position), [&](const Stmt& between) {
    return !is_dead(between) && disturbs(between, *load.from.array);
  });
}

void Usage::use(const Expr& e, Role role, Place place) {
  if (!e) return;
  if (e->op == ir::Op::var) {
    Use& use = uses_[e->var.get()];
    ++use.count;
    use.place = place;
    use.role = std::max(use.role, role);
    return;
  }
  for (size_t i = 0; i < e->args.size(); ++i) {
    use(e->args[i], argument_role(*e, i, role), place);
  }
}

void Usage::use(const Access& access, Place place) {
  accessed_.insert(access.array.get());
  if (access.width > 1) vectors_.insert(access.array.get());
  if (access.array->space == ArraySpace::registers) mark_picks(access.offset);
  use(access.offset, Role::index, place);
  use(access.guard, Role::index, place);
  if (access.guard) {
    mark_guarded(access.guard);
    mark_guarded(access.offset);
  }
}

void Usage::use(const Slice& slice, int width, Place place) {
  accessed_.insert(slice.array.get());
  if (width > 1) vectors_.insert(slice.array.get());
  mark_picks(slice.base);
  use(slice.base, Role::index, place);
}

void Usage::mark_picks(const Expr& e) {
  std::vector<VarRef> vars;
  ir::collect_vars(e, vars);
  for (const VarRef& var : vars) register_picks_.insert(var.get());
}

bool Usage::is_empty(const Body& body) const {
  return std::all_of(body.begin(), body.end(), [&](const Stmt& stmt) {
    return is_dead(stmt) || std::holds_alternative<Comment>(stmt.node);
  });
}

}  // namespace tessera::codegen::cuda
