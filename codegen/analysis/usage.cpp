#include "codegen/analysis/usage.h"

#include <algorithm>

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {

ValueRole argument_role(const ir::Node& node, size_t arg, ValueRole role) {
  const bool is_float = tessera::is_float(node.args[arg]->type);
  switch (node.op) {
    case ir::Op::bitcast:
      return is_float ? ValueRole::value : role;
    case ir::Op::select:
      return arg > 0 ? role : std::min(role, ValueRole::operand);
    case ir::Op::neg:
    case ir::Op::abs:
      return role;
    case ir::Op::copysign:
      return arg == 0 ? role : ValueRole::value;  // the sign of a NaN counts
    default:
      return is_float ? ValueRole::operand : role;
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

const Load* Usage::inlined_load(const ir::Var& var) const {
  const auto found = inlined_.find(&var);
  return found == inlined_.end() ? nullptr : found->second;
}

Expr Usage::definition(const ir::Var& var) const {
  const auto found = definitions_.find(&var);
  return found == definitions_.end() ? Expr() : found->second;
}

ValueRole Usage::role(const ir::Var& var) const {
  const auto found = uses_.find(&var);
  return found == uses_.end() ? ValueRole::index : found->second;
}

ValueRole Usage::store_role(const Array& to) const {
  const bool to_arithmetic = to.space == ArraySpace::registers && !read_.contains(&to);
  return to_arithmetic ? ValueRole::operand : ValueRole::value;
}

bool Usage::may_wrap(const Expr& e, ValueRole role) const {
  if (role == ValueRole::index) {
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
      } else if (var->kind != ir::VarKind::thread && !std::holds_alternative<Present>(stmt.node)) {
        data_.insert(var.get());
      }
    });
    for_each_body(stmt, [&](const Body& inner) { mark_data(inner); });
  }
}

void Usage::mark_reads(const Body& body) {
  walk(body, [this](const Stmt& stmt) {
    for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
      if (!effect.writes || effect.atomic) read_.insert(effect.access.array.get());
    });
    for_each_register_effect(stmt, [&](const RegisterEffect& effect) {
      if (effect.reads) mark_read(stmt, effect);
    });
  });
}

void Usage::mark_read(const Stmt& stmt, const RegisterEffect& effect) {
  const Array* const array = effect.slice.array.get();
  switch (effect.use) {
    case RegisterUse::multiplied:
      return;
    case RegisterUse::moved:
    case RegisterUse::computed:
      read_.insert(array);
      return;
    case RegisterUse::converted: {
      // A conversion to another dtype makes every NaN canonical.
      bool as_it_is = true;
      for_each_register_effect(stmt, [&](const RegisterEffect& other) {
        if (other.writes && other.slice.array->dtype != array->dtype) as_it_is = false;
      });
      if (as_it_is) read_.insert(array);
      return;
    }
  }
}

// In reverse order: all uses of a variable are seen before its definition.
void Usage::visit(const Body& body) {
  for (size_t i = body.size(); i-- > 0;) {
    std::visit([&](const auto& node) { look(node); }, body[i].node);
  }
}

void Usage::look(const Let& let) {
  definitions_[let.var.get()] = let.value;
  use(let.value, role(*let.var));
}

void Usage::look(const Load& load) {
  if (load.into.array) use(load.into, load.from.width);
  if (load.at_use) inlined_[load.var.get()] = &load;
  use(load.from);
}

void Usage::look(const Store& store) {
  use(store.to);
  if (store.from.array) {
    use(store.from, store.to.width);
  } else {
    use(store.value, store_role(*store.to.array));
  }
}

void Usage::look(const Atomic& atomic) {
  use(atomic.to);
  if (atomic.from.array) use(atomic.from, atomic.to.width);
  use(atomic.value, ValueRole::value);
  use(atomic.compare, ValueRole::value);
  use(atomic.until, ValueRole::value);
}

void Usage::look(const Convert& convert) {
  use(convert.into, 1);
  use(convert.from, 1);
}

void Usage::look(const Packed& packed) {
  use(packed.into, packed.width);
  for (const Slice& arg : packed.args) use(arg, packed.width);
}

void Usage::look(const LoadMatrix& matrices) {
  use(matrices.into, matrices.width());
  use(matrices.from);
}

void Usage::look(const Mma& mma) {
  for (const Slice* slice : {&mma.c, &mma.a, &mma.b}) {
    if (slice->array) use(*slice, 4);
  }
  for (const SharedMatrix* matrix : {&mma.left, &mma.right}) {
    if (matrix->first.array) use(matrix->first);
  }
}

void Usage::look(const For& loop) {
  visit(loop.body);
  for (const Expr& bound : {loop.begin, loop.end, loop.step}) use(bound, ValueRole::index);
}

void Usage::look(const If& branch) {
  visit(branch.then);
  visit(branch.otherwise);
  use(branch.condition, branch.is_guard ? ValueRole::index : ValueRole::value);
  if (branch.is_guard) mark_guarded(branch.condition);
}

void Usage::look(const RoleBodies& bodies) {
  for (const RoleBodies::Role& role : bodies.roles) visit(role.body);
}

void Usage::look(const Collective& collective) {
  for (const Expr& arg : collective.args) use(arg, ValueRole::value);
}

void Usage::look(const Declare& declare) {
  const Array& array = *declare.array;
  use(array.address, ValueRole::index);
  use(array.block, ValueRole::index);
  if (array.mine) accessed_.insert(array.mine.get());
}

void Usage::look(const Assert& check) {
  if (check.otherwise == Otherwise::trap) return;  // executor only
  use(check.condition, ValueRole::value);
}

void Usage::look(const Print& print) {
  for (const Expr& arg : print.args) use(arg, ValueRole::value);
}

void Usage::look(const ExternCall& call) {
  for (const Expr& arg : call.args) use(arg, ValueRole::value);
}

void Usage::look(const AsyncCopy& copy) {
  use(copy.to);
  use(copy.from);
}

void Usage::look(const Break& leave) {
  use(leave.condition, ValueRole::value);
}

void Usage::look(const Return& leave) {
  use(leave.condition, ValueRole::value);
}

void Usage::look(const MbarrierArrive& arrive) {
  use_mbarrier(arrive.at);
  use(arrive.rank, ValueRole::index);
}

void Usage::look(const MbarrierWait& wait) {
  use_mbarrier(wait.at);
  use(wait.phase, ValueRole::index);
}

void Usage::look(const BulkCopy& copy) {
  use_mbarrier(copy.mbarrier);
  use(copy.to);
  use(copy.from);
}

void Usage::look(const TensorCopy& copy) {
  use_mbarrier(copy.mbarrier);
  use(copy.to);
  if (copy.map_at.array) use(copy.map_at);
  for (const Expr& coordinate : copy.coordinates) use(coordinate, ValueRole::index);
}

void Usage::look(const WriteMap& write) {
  use(write.to);
  use(write.tensor->address, ValueRole::index);
  for (const Expr& extent : write.extents) use(extent, ValueRole::index);
  for (const Expr& stride : write.strides) use(stride, ValueRole::index);
}

void Usage::look(const TensorStore& store) {
  use(store.from);
  accessed_.insert(store.to.array.get());
  for (const Expr& coordinate : store.coordinates) use(coordinate, ValueRole::index);
}

void Usage::use(const Expr& e, ValueRole role) {
  if (!e) return;
  if (e->op == ir::Op::var) {
    ValueRole& known = uses_.try_emplace(e->var.get(), role).first->second;
    known = std::max(known, role);
    return;
  }
  for (size_t i = 0; i < e->args.size(); ++i) {
    use(e->args[i], argument_role(*e, i, role));
  }
}

void Usage::use(const Access& access) {
  accessed_.insert(access.array.get());
  if (access.width > 1) vectors_.insert(access.array.get());
  use(access.offset, ValueRole::index);
  use(access.guard, ValueRole::index);
  if (access.guard) {
    mark_guarded(access.guard);
    mark_guarded(access.offset);
  }
}

void Usage::use_mbarrier(const Access& at) {
  accessed_.insert(at.array.get());
  use(at.offset, ValueRole::index);
}

void Usage::use(const Slice& slice, int width) {
  accessed_.insert(slice.array.get());
  if (width > 1) vectors_.insert(slice.array.get());
  use(slice.base, ValueRole::index);
}

}  // namespace tessera::codegen
