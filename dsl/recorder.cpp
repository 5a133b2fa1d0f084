#include "dsl/recorder.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::dsl {

Recorder::Recorder(std::string kernel_name) {
  kernel.name = std::move(kernel_name);
  open_.emplace_back();
  scopes_.push_back(0);
}

void Recorder::fail(const char* code, std::string what, SourceLoc loc, std::string expected,
                    std::string got, std::string hint, SourceLoc related) const {
  throw Error({.kind = ErrorKind::program,
               .op = kernel.name,
               .what = std::move(what),
               .expected = std::move(expected),
               .got = std::move(got),
               .hint = std::move(hint),
               .code = code,
               .loc = loc,
               .related = related});
}

ir::VarRef Recorder::new_var(std::string name, DType type, ir::VarKind kind, SourceLoc loc,
                             ir::Expr lower, ir::Expr upper, int64_t multiple_of, int per_sm) {
  auto var = std::make_shared<ir::Var>();
  var->name = std::move(name);
  var->type = type;
  var->kind = kind;
  var->id = kernel.num_vars++;
  var->multiple_of = multiple_of;
  var->per_sm = per_sm;
  var->lower = std::move(lower);
  var->upper = std::move(upper);
  var->scope = scopes_.back();
  var->loc = loc;
  own_.insert(var.get());
  if (kind == ir::VarKind::dim || kind == ir::VarKind::scalar) parameters_[var.get()] = var;
  return var;
}

void Recorder::bound_dims(const ir::Expr& e, int64_t most) {
  if (e->type == DType::i32) most = std::min(most, ir::kLargestExtent);
  if (e->op == ir::Op::var) {
    const auto dim = parameters_.find(e->var.get());
    const bool is_bounded = dim != parameters_.end() && e->var->upper && e->type == DType::i32;
    if (is_bounded && most + 1 < e->var->upper->integer) dim->second->upper = ir::index(most + 1);
    return;
  }
  if (e->op == ir::Op::cast && is_integer(e->args[0]->type)) return bound_dims(e->args[0], most);
  if (e->args.size() == 2) {
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const ir::Expr& other = e->args[1 - i];
      if (!ir::is_constant(other)) continue;
      const int64_t by = other->integer;
      if (e->op == ir::Op::mul && by > 0) return bound_dims(e->args[i], most / by);
      if (e->op == ir::Op::add && by >= 0) return bound_dims(e->args[i], most - by);
    }
  }
  for (const ir::Expr& arg : e->args) bound_dims(arg);
}

void Recorder::bound_grid(const ir::Expr& extent, int axis) {
  bound_dims(extent);
  if (extent->op != ir::Op::var || extent->var->kind != ir::VarKind::scalar) return;
  if (extent->type != DType::i32) return;
  ir::Var& scalar = *parameters_.at(extent->var.get());
  scalar.lower = ir::index(1);
  const int64_t most = axis == 0 ? ir::kLargestExtent : ir::kMostBlocksYZ;
  if (!scalar.upper || most + 1 < scalar.upper->integer) scalar.upper = ir::index(most + 1);
}

ir::VarRef Recorder::updated(ir::Var var) {
  auto result = std::make_shared<const ir::Var>(std::move(var));
  own_.insert(result.get());
  return result;
}

Ref Recorder::new_buffer(ir::Buffer buffer) {
  buffer.id = kernel.num_buffers++;
  if (iteration_writes.is_open()) iteration_writes.declares(buffer);
  auto result = std::make_shared<const ir::Buffer>(std::move(buffer));
  own_.insert(result.get());
  return Ref(this, whole(result));
}

Ref Recorder::fragment_like(const ir::Region& region, SourceLoc loc) {
  ir::Buffer buffer;
  buffer.name = region.buffer->name + "_part";
  buffer.dtype = region.buffer->dtype;
  buffer.space = ir::Space::fragment;
  buffer.shape = region_shape(region);
  buffer.loc = loc;
  return new_buffer(std::move(buffer));
}

bool Recorder::in_scope(int scope) const {
  return std::find(scopes_.begin(), scopes_.end(), scope) != scopes_.end();
}

void Recorder::check_in_scope(const ir::Expr& e, SourceLoc loc, bool is_chosen) const {
  if (!e) return;
  if (e->op == ir::Op::var) {
    if (!own_.contains(e->var.get())) {
      fail("OTHER_KERNEL", fmt::format("value '{}' belongs to another kernel", e->var->name), loc,
           {}, {}, {}, e->var->loc);
    }
    if (!in_scope(e->var->scope)) {
      fail("VALUE_ESCAPED",
           fmt::format("value '{}' is used outside the loop or branch it belongs to", e->var->name),
           loc, {}, {}, "carry it in a variable: k.var(dtype, initial value)", e->var->loc);
    }
    if (!unread_.empty()) unread_.erase(e->var.get());
    if (outside_.empty() || is_chosen) return;
    const auto outside = outside_.find(e->var->id);
    if (outside != outside_.end()) throw Error(outside->second);
    return;
  }
  for (size_t i = 0; i < e->args.size(); ++i) {
    check_in_scope(e->args[i], loc, is_chosen || (e->op == ir::Op::select && i > 0));
  }
}

void Recorder::check_size(const ir::Expr& e) {
  const Size size = size_of(e);
  if (size.depth > kMaxExpressionDepth) {
    fail("EXPRESSION_DEPTH", "an expression is nested too deeply", e->loc,
         fmt::format("at most {} operations in a row", kMaxExpressionDepth),
         fmt::format("{}", size.depth), "name a part of it: v = k.let(\"v\", v)");
  }
  if (size.operations > kMaxExpressionSize) {
    fail("EXPRESSION_SIZE", "an expression is too large", e->loc,
         fmt::format("at most {} operations", kMaxExpressionSize),
         fmt::format("{}", size.operations), "name a part of it: v = k.let(\"v\", v)");
  }
}

/// Operations are measured as they are created, so that only a few nodes of `e` are new.
Recorder::Size Recorder::size_of(const ir::Expr& e) {
  if (e->args.empty()) return {e};
  const auto known = sizes_.find(e.get());
  if (known != sizes_.end()) return known->second;
  Size size{e, 0, 1};
  for (const ir::Expr& arg : e->args) {
    const Size part = size_of(arg);
    size.depth = std::max(size.depth, part.depth);
    size.operations += part.operations;
  }
  ++size.depth;
  sizes_.emplace(e.get(), size);
  return size;
}

void Recorder::check_nesting(SourceLoc loc) const {
  if (depth() <= kMaxNesting) return;
  fail("NESTING", "loops and branches are nested too deeply", loc,
       fmt::format("at most {} inside each other", kMaxNesting), fmt::format("{}", depth()));
}

void Recorder::splice(ir::Body body) {
  for (ir::Stmt& stmt : body) open_.back().push_back(std::move(stmt));
}

void Recorder::leave_loop(const ir::Expr& left, SourceLoc loc) {
  check_nesting(loc);
  ++loops_.back().breaks;
  const bool by_thread = uses_thread(left);
  rests_.push_back({ir::unary(ir::Op::logical_not, left), loc, by_thread});
  iteration_writes.conditions.push_back(rests_.back().stays);
  thread_depth += by_thread;
  open_.emplace_back();
  scopes_.push_back(++last_scope_);
  iterations_.clear();
}

/// Closes the rests of bodies until `left` are open.
void Recorder::close_rests(size_t left) {
  while (rests_.size() > left) {
    const Rest rest = rests_.back();
    rests_.pop_back();
    thread_depth -= rest.by_thread;
    iteration_writes.conditions.pop_back();
    scopes_.pop_back();
    ir::If branch{rest.stays, std::move(open_.back()), {}};
    open_.pop_back();
    if (!branch.then.empty()) open_.back().push_back({std::move(branch), rest.loc, manual_sync});
  }
}

void Recorder::check_available(const ir::Buffer& buffer, SourceLoc loc) const {
  if (!own_.contains(&buffer)) {
    fail("OTHER_KERNEL", fmt::format("'{}' belongs to another kernel", buffer.name), loc, {}, {},
         {}, buffer.loc);
  }
  check_in_scope(buffer.address, loc);
  check_in_scope(buffer.map_row, loc);
  check_in_scope(buffer.block, loc);
  const auto view = view_scopes_.find(buffer.id);
  if (view != view_scopes_.end() && !in_scope(view->second)) {
    fail("VALUE_ESCAPED",
         fmt::format("'{}' is used outside the loop or branch it begins in", buffer.name), loc, {},
         {}, "begin it before the loop or branch", buffer.loc);
  }
  if (!buffer.optional) return;
  if (std::find(present.begin(), present.end(), buffer.id) != present.end()) return;
  fail("OPTIONAL", fmt::format("the optional tensor '{}' may be absent here", buffer.name), loc,
       fmt::format("k.if_present({}, [&] {{ ... }}) around it", buffer.name), "no such condition",
       "declare the tensor without .optional where it is known to be given", buffer.loc);
}

bool Recorder::uses_thread(const ir::Expr& e) const {
  if (e->op == ir::Op::var) {
    return e->var->kind == ir::VarKind::thread || thread_lets_.contains(e->var->id);
  }
  return std::any_of(e->args.begin(), e->args.end(),
                     [&](const ir::Expr& arg) { return uses_thread(arg); });
}

/// Throws if a role cannot run the statement, or if it comes after the roles.
void Recorder::check_role(const ir::Stmt& stmt) const {
  if (role == nullptr) {
    const bool follows =
        !open_.front().empty() && std::holds_alternative<ir::Roles>(open_.front().back().node);
    if (!follows) return;
    fail("ROLES_PLACE", "a statement after the roles", stmt.loc,
         "the roles as the last statement of the kernel", {},
         "put it before k.roles, or into a role", open_.front().back().loc);
  }
  const std::string_view what = ir::refused_in_role(stmt);
  if (what.empty()) return;
  fail("SYNC_ROLE", fmt::format("{} in role '{}'", what, role->name), stmt.loc,
       "a statement of the role's own threads", "one of all threads of the block",
       "put it before k.roles", role->loc);
}

void Recorder::require_all_threads(SourceLoc loc) const {
  if (thread_depth == 0) return;
  fail("SYNC_DIVERGENT", "a tile operation under a condition that uses the thread index", loc,
       "all threads of the block", {},
       "make the condition the same for the whole block, or move the elements one by one");
}

void Recorder::add(ir::Stmt stmt, int name) {
  if (finished) fail("SPENT_BUILDER", "a statement after finish()", stmt.loc);
  if (!launched) {
    fail("NO_LAUNCH", "a statement before launch()", stmt.loc, {}, {},
         "declare dims and tensors, then call k.launch({grid}, {.threads = ...})");
  }
  check_role(stmt);
  if (is_of_block(stmt)) require_all_threads(stmt.loc);
  const auto* let = std::get_if<ir::Let>(&stmt.node);
  if (let != nullptr && !let->is_vouched && uses_thread(let->value))
    thread_lets_.insert(let->var->id);
  if (let != nullptr) {
    iteration_writes.defines(let->var, {let->value});
    if (const ErrorFields* part = find_part(let->value)) values_of_parts_[let->var->id] = *part;
    if (is_exchanged(let->value)) exchanged_.insert(let->var->id);
  }
  if (const auto* collective = std::get_if<ir::Collective>(&stmt.node)) {
    iteration_writes.defines(collective->var, collective->args);
    exchanged_.insert(collective->var->id);
  }
  if (const auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) {
    check_available(*load->buffer, stmt.loc);
  } else if (const auto* store = std::get_if<ir::ElementStore>(&stmt.node)) {
    check_available(*store->buffer, stmt.loc);
  } else if (const auto* atomic = std::get_if<ir::Atomic>(&stmt.node)) {
    check_available(*atomic->buffer, stmt.loc);
  } else if (const auto* copy = std::get_if<ir::Copy>(&stmt.node)) {
    check_available(*copy->from.buffer, stmt.loc);
    check_available(*copy->to.buffer, stmt.loc);
  } else if (const auto* fill = std::get_if<ir::Fill>(&stmt.node)) {
    check_available(*fill->to.buffer, stmt.loc);
  } else if (const auto* reduce = std::get_if<ir::Reduce>(&stmt.node)) {
    check_available(*reduce->from.buffer, stmt.loc);
    check_available(*reduce->to.buffer, stmt.loc);
  } else if (const auto* gemm = std::get_if<ir::Gemm>(&stmt.node)) {
    for (const ir::Region* side : {&gemm->a, &gemm->b, &gemm->c}) {
      check_available(*side->buffer, stmt.loc);
    }
  } else if (const auto* view = std::get_if<ir::Pointer>(&stmt.node)) {
    view_scopes_[view->buffer->id] = scope();
  }
  note_writes(stmt, name);
  stmt.manual_sync = manual_sync;
  open_.back().push_back(std::move(stmt));
}

Value Recorder::load(const ir::Region& element, SourceLoc loc) {
  for (const ir::Expr& index : element.offsets) check_in_scope(index, loc);
  const ir::BufferRef& buffer = element.buffer;
  auto var = new_var(buffer->name + "_value", buffer->dtype, ir::VarKind::value, loc);
  if (auto outside = find_outside(element, loc)) outside_.emplace(var->id, std::move(*outside));
  if (const auto part = parts_.find(buffer->id); part != parts_.end()) {
    values_of_parts_.emplace(var->id, part->second);
  }
  ir::ElementLoad load{var, buffer, element.offsets, element.terms};
  iteration_writes.loads(load, scopes_);
  add({std::move(load), loc});
  return Value(this, ir::var(var));
}

void Recorder::store(const ir::Region& element, const Value& value, SourceLoc loc, int name) {
  for (const ir::Expr& index : element.offsets) check_in_scope(index, loc);
  check_in_scope(value.expr(), loc);
  ir::ElementStore store{element.buffer, element.offsets, value.expr(), element.terms};
  check_one_writer(store, loc);
  note_part(store);
  add({std::move(store), loc}, name);
}

void Recorder::drop_if_unread(const ir::BufferRef& buffer, const ir::VarRef& value) {
  unread_.emplace(value.get(), buffer->id);
}

bool Recorder::is_unread(const ir::Stmt& stmt) const {
  const auto of_buffer = [&](const ir::BufferRef& buffer) {
    return std::any_of(unread_.begin(), unread_.end(),
                       [&](const auto& entry) { return entry.second == buffer->id; });
  };
  if (const auto* let = std::get_if<ir::Let>(&stmt.node)) return unread_.contains(let->var.get());
  if (const auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) return of_buffer(load->buffer);
  const auto* store = std::get_if<ir::ElementStore>(&stmt.node);
  return store != nullptr && of_buffer(store->buffer);
}

void Recorder::drop_unread(ir::Body& body) const {
  if (unread_.empty()) return;
  std::erase_if(body, [&](const ir::Stmt& stmt) { return is_unread(stmt); });
  for (ir::Stmt& stmt : body) {
    if (auto* loop = std::get_if<ir::Loop>(&stmt.node)) {
      drop_unread(loop->body);
    } else if (auto* branch = std::get_if<ir::If>(&stmt.node)) {
      drop_unread(branch->then);
      drop_unread(branch->otherwise);
    } else if (auto* turn = std::get_if<ir::RingTurn>(&stmt.node)) {
      drop_unread(turn->body);
    } else if (auto* roles = std::get_if<ir::Roles>(&stmt.node)) {
      for (ir::Roles::Role& part : roles->roles) drop_unread(part.body);
    }
  }
}

ir::Body Recorder::take_body() {
  return std::move(open_.front());
}

const ir::Buffer& storage_of(const ir::Buffer& buffer) {
  return buffer.alias_of ? *buffer.alias_of : buffer;
}

ir::Region whole(const ir::BufferRef& buffer) {
  ir::Region region;
  region.buffer = buffer;
  for (size_t d = 0; d < buffer->shape.size(); ++d) {
    region.offsets.push_back(ir::constant(DType::i32, 0));
    region.extents.push_back(buffer->shape[d]);
    region.order.push_back(static_cast<int>(d));
  }
  return region;
}

bool is_whole(const ir::Region& region) {
  const std::vector<ir::Expr>& shape = region.buffer->shape;
  if (region.order.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool same = region.order[d] == static_cast<int>(d) &&
                      ir::is_constant(region.offsets[d], 0) &&
                      ir::equal(region.extents[d], shape[d]);
    if (!same) return false;
  }
  return true;
}

std::vector<ir::Expr> region_shape(const ir::Region& region) {
  std::vector<ir::Expr> shape;
  for (const int d : region.order) shape.push_back(region.extents[static_cast<size_t>(d)]);
  return shape;
}

std::string shape_text(const std::vector<ir::Expr>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace tessera::dsl
