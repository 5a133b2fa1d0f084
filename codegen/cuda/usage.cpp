#include "codegen/cuda/usage.h"

#include <algorithm>

#include "codegen/passes/walk.h"

namespace tessera::codegen::cuda {
namespace {

bool may_write(const Array& written, const Array& read) {
  if (read.space == ArraySpace::registers) return &written == &read;
  // Arrays of the arena may share bytes, the block of a cluster may be this one, and two global tensors
  // of a call may be the same memory.
  return (written.space == ArraySpace::global) == (read.space == ArraySpace::global) &&
         written.space != ArraySpace::registers && !read.is_constant();
}

/// True if `stmt` may change what a load of `array` sees.
bool disturbs(const Stmt& stmt, const Array& array);

bool disturbs(const Body& body, const Array& array) {
  return std::any_of(body.begin(), body.end(),
                     [&](const Stmt& stmt) { return disturbs(stmt, array); });
}

bool disturbs(const Stmt& stmt, const Array& array) {
  const bool memory = array.space != ArraySpace::registers;
  if (std::holds_alternative<Barrier>(stmt.node) ||
      std::holds_alternative<WarpBarrier>(stmt.node) ||
      std::holds_alternative<Collective>(stmt.node) ||
      std::holds_alternative<AsyncCopy>(stmt.node) ||
      std::holds_alternative<AsyncWait>(stmt.node) || std::holds_alternative<Return>(stmt.node)) {
    return memory;
  }
  if (std::holds_alternative<Dependency>(stmt.node)) return memory;
  if (const auto* call = std::get_if<ExternCall>(&stmt.node)) {
    return memory && (!call->function->pure || call->function->synchronises);
  }
  if (const auto* store = std::get_if<Store>(&stmt.node)) return may_write(*store->to.array, array);
  if (const auto* atomic = std::get_if<Atomic>(&stmt.node)) {
    const bool ordered = atomic->order == ir::MemoryOrder::acq_rel;
    return (ordered && memory) || may_write(*atomic->to.array, array);
  }
  if (const auto* load = std::get_if<Load>(&stmt.node)) {
    return load->into.array && may_write(*load->into.array, array);
  }
  if (const auto* convert = std::get_if<Convert>(&stmt.node)) {
    return may_write(*convert->into.array, array);
  }
  if (const auto* packed = std::get_if<Packed>(&stmt.node)) {
    return may_write(*packed->into.array, array);
  }
  if (const auto* matrices = std::get_if<LoadMatrix>(&stmt.node)) {
    return may_write(*matrices->into.array, array);
  }
  if (const auto* mma = std::get_if<Mma>(&stmt.node)) return may_write(*mma->c.array, array);
  if (const auto* loop = std::get_if<For>(&stmt.node)) return disturbs(loop->body, array);
  if (const auto* branch = std::get_if<If>(&stmt.node)) {
    return disturbs(branch->then, array) || disturbs(branch->otherwise, array);
  }
  return false;
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
    const auto* dependency = std::get_if<Dependency>(&stmt.node);
    if (dependency != nullptr && dependency->kind == ir::DependencyKind::wait) {
      waits_for_previous_ = true;
    }
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
    if (const auto* let = std::get_if<Let>(&stmt.node)) {
      if (depends_on_data(let->value)) data_.insert(let->var.get());
      if (depends_on(let->value, scalar_data_)) scalar_data_.insert(let->var.get());
    } else if (const auto* load = std::get_if<Load>(&stmt.node)) {
      if (load->var) data_.insert(load->var.get());
    } else if (const auto* atomic = std::get_if<Atomic>(&stmt.node)) {
      if (atomic->old) data_.insert(atomic->old.get());
    } else if (const auto* collective = std::get_if<Collective>(&stmt.node)) {
      data_.insert(collective->var.get());
    } else if (const auto* call = std::get_if<ExternCall>(&stmt.node)) {
      data_.insert(call->var.get());
    } else if (const auto* loop = std::get_if<For>(&stmt.node)) {
      if (depends_on(loop->begin, scalar_data_) || depends_on(loop->end, scalar_data_)) {
        scalar_data_.insert(loop->var.get());
      }
      mark_data(loop->body);
    } else if (const auto* branch = std::get_if<If>(&stmt.node)) {
      mark_data(branch->then);
      mark_data(branch->otherwise);
    }
  }
}

void Usage::mark_reads(const Body& body, int loops) {
  const auto mark = [&](const auto& place) {
    read_.insert(place.array.get());
    computed_on_.insert(place.array.get());
  };
  const auto deepest = [&](std::map<const Array*, int>& depths, const auto& place) {
    int& depth = depths[place.array.get()];
    depth = std::max(depth, loops);
  };
  for (const Stmt& stmt : body) {
    if (const auto* load = std::get_if<Load>(&stmt.node)) {
      mark(load->from);
    } else if (const auto* store = std::get_if<Store>(&stmt.node)) {
      read_.insert(store->from.array.get());
      deepest(fill_loops_, store->to);
    } else if (const auto* convert = std::get_if<Convert>(&stmt.node)) {
      computed_on_.insert(convert->from.array.get());
      // To another dtype: every NaN becomes canonical.
      const bool as_it_is = convert->from.array->dtype == convert->into.array->dtype;
      if (as_it_is) read_.insert(convert->from.array.get());
    } else if (const auto* packed = std::get_if<Packed>(&stmt.node)) {
      for (const Slice& arg : packed->args) mark(arg);
    } else if (const auto* mma = std::get_if<Mma>(&stmt.node)) {
      mark(mma->c);
      deepest(product_loops_, mma->a);
      deepest(product_loops_, mma->b);
    } else if (const auto* loop = std::get_if<For>(&stmt.node)) {
      mark_reads(loop->body, loop->unrolled ? loops : loops + 1);
    } else if (const auto* branch = std::get_if<If>(&stmt.node)) {
      mark_reads(branch->then, loops);
      mark_reads(branch->otherwise, loops);
    }
  }
}

// Backwards: every use of a variable or array stands behind its definition, so it has been seen by
// then.
void Usage::visit(const Body& body) {
  for (size_t i = body.size(); i-- > 0;) visit(body[i], {&body, i});
}

void Usage::visit(const Stmt& stmt, Place place) {
  if (const auto* let = std::get_if<Let>(&stmt.node)) {
    if (!is_used(*let->var)) {
      dead_.insert(&stmt);
      return;
    }
    definitions_[let->var.get()] = let->value;
    use(let->value, role(*let->var), place);
    if (picks_register(*let->var)) mark_picks(let->value);
  } else if (std::holds_alternative<Load>(stmt.node)) {
    visit_load(stmt, place);
  } else if (const auto* store = std::get_if<Store>(&stmt.node)) {
    use(store->to, place);
    if (store->from.array) {
      use(store->from, store->to.width, place);
    } else {
      use(store->value, store_role(*store->to.array), place);
    }
  } else if (const auto* atomic = std::get_if<Atomic>(&stmt.node)) {
    use(atomic->to, place);
    use(atomic->value, Role::value, place);
    use(atomic->compare, Role::value, place);
  } else if (const auto* convert = std::get_if<Convert>(&stmt.node)) {
    use(convert->into, 1, place);
    use(convert->from, 1, place);
  } else if (const auto* packed = std::get_if<Packed>(&stmt.node)) {
    use(packed->into, packed->width, place);
    for (const Slice& arg : packed->args) use(arg, packed->width, place);
  } else if (const auto* copy = std::get_if<AsyncCopy>(&stmt.node)) {
    use(copy->to, place);
    use(copy->from, place);
  } else if (const auto* leave = std::get_if<Return>(&stmt.node)) {
    use(leave->condition, Role::value, place);
  } else if (const auto* matrices = std::get_if<LoadMatrix>(&stmt.node)) {
    use(matrices->into, 4, place);
    use(matrices->from, place);
  } else if (const auto* mma = std::get_if<Mma>(&stmt.node)) {
    for (const Slice* slice : {&mma->c, &mma->a, &mma->b}) use(*slice, 4, place);
  } else if (const auto* collective = std::get_if<Collective>(&stmt.node)) {
    for (const Expr& arg : collective->args) use(arg, Role::value, place);
  } else if (const auto* loop = std::get_if<For>(&stmt.node)) {
    visit(loop->body);
    if (is_empty(loop->body)) {
      dead_.insert(&stmt);
      return;
    }
    for (const Expr& bound : {loop->begin, loop->end, loop->step}) use(bound, Role::index, {});
  } else if (const auto* branch = std::get_if<If>(&stmt.node)) {
    visit(branch->then);
    visit(branch->otherwise);
    if (is_empty(branch->then) && is_empty(branch->otherwise)) {
      dead_.insert(&stmt);
      return;
    }
    use(branch->condition, Role::value, place);
  } else if (const auto* declare = std::get_if<Declare>(&stmt.node)) {
    if (!is_accessed(*declare->array)) {
      dead_.insert(&stmt);
      return;
    }
    use(declare->array->address, Role::index, place);
    use(declare->array->block, Role::index, place);
    if (declare->array->mine) accessed_.insert(declare->array->mine.get());
  } else if (const auto* present = std::get_if<Present>(&stmt.node)) {
    if (!is_used(*present->var)) dead_.insert(&stmt);
  } else if (const auto* check = std::get_if<Assert>(&stmt.node)) {
    if (check->otherwise == Otherwise::trap) {
      dead_.insert(&stmt);
      return;
    }
    use(check->condition, Role::value, place);
  } else if (std::holds_alternative<CheckIndices>(stmt.node)) {
    dead_.insert(&stmt);
  } else if (const auto* print = std::get_if<Print>(&stmt.node)) {
    for (const Expr& arg : print->args) use(arg, Role::value, place);
  } else if (const auto* call = std::get_if<ExternCall>(&stmt.node)) {
    const bool needed = !call->function->pure || call->function->synchronises;
    if (!needed && !is_used(*call->var)) {
      dead_.insert(&stmt);
      return;
    }
    for (const Expr& arg : call->args) use(arg, Role::value, place);
  }
}

void Usage::visit_load(const Stmt& stmt, Place place) {
  const auto& load = std::get<Load>(stmt.node);
  if (load.into.array) {
    use(load.into, load.from.width, place);
    use(load.from, place);
    return;
  }
  const auto found = uses_.find(load.var.get());
  if (found == uses_.end()) {
    dead_.insert(&stmt);
    return;
  }
  const Use& only = found->second;
  if (only.count == 1 && can_move(load, place, only.place)) {
    inlined_[load.var.get()] = &load.from;
    use(load.from, only.place);
  } else {
    use(load.from, place);
  }
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
