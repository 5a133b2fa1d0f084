#include "codegen/passes/lower_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "codegen/layouts/vector_width.h"
#include "codegen/lowering/tile_lowering.h"
#include "codegen/products/atoms.h"
#include "codegen/tile_ir/copy_loop.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

/// True if all threads of the block do something together in the body.
bool any_of_block(const ir::Body& body) {
  return std::any_of(body.begin(), body.end(), [](const ir::Stmt& stmt) {
    return any_in(stmt, [](const ir::Stmt& inner) {
      const auto* sync = std::get_if<ir::Sync>(&inner.node);
      return is_of_block(inner) || (sync != nullptr && sync->kind != ir::SyncKind::warp);
    });
  });
}

}  // namespace

TileLowering::TileLowering(const ir::Kernel& kernel, const LayoutSolution& plan)
    : kernel_(kernel), layouts_(plan), group_{0, kernel.threads}, thread_(kernel.thread) {}

LoweredTiles TileLowering::lower() {
  Program& program = result_.program;
  program.name = kernel_.name;
  program.grid = kernel_.grid;
  program.thread = kernel_.thread;
  program.blocks = kernel_.blocks;
  program.threads = kernel_.threads;
  program.min_blocks_per_sm = kernel_.min_blocks_per_sm;
  program.cluster = kernel_.cluster;
  program.num_vars = kernel_.num_vars;
  for (const ir::BufferRef& tensor : kernel_.tensors) {
    program.params.push_back({tensor->name, array_of(tensor), {}});
  }
  for (const VarRef& dim : kernel_.dims) program.params.push_back({dim->name, {}, dim});
  for (const VarRef& scalar : kernel_.scalars) program.params.push_back({scalar->name, {}, scalar});
  plan_rings();
  program.body = nested([&] { lower_body(kernel_.body); });
  return std::move(result_);
}

void TileLowering::lower_body(const ir::Body& body) {
  for (const ir::Stmt& stmt : body) lower_stmt(stmt);
}

void TileLowering::lower_branch(const ir::If& branch, SourceLoc loc,
                                const std::function<void(const ir::Body&)>& lower) {
  If node;
  node.condition = resolve(branch.condition);
  node.then = nested([&] {
    math_.add_fact(node.condition);
    lower(branch.then);
  });
  node.otherwise = nested([&] {
    math_.add_fact(ir::unary(ir::Op::logical_not, node.condition));
    lower(branch.otherwise);
  });
  emit({std::move(node), loc});
}

void TileLowering::lower_stmt(const ir::Stmt& stmt) {
  const SourceLoc loc = stmt.loc;
  // Registers are exchanged through memory that the author cannot name.
  const bool exchanges = std::holds_alternative<ir::Reduce>(stmt.node) ||
                         std::holds_alternative<ir::ReducerFinalize>(stmt.node);
  manual_sync_ = stmt.manual_sync && !exchanges;
  std::visit([&](const auto& node) { lower(node, loc); }, stmt.node);
}

void TileLowering::lower(const ir::Let& let, SourceLoc loc) {
  const Expr value = resolve(let.value);
  if (is_integer(let.var->type)) math_.define(let.var, value);
  emit({Let{let.var, value, let.is_vouched}, loc});
}

void TileLowering::lower(const ir::Gemm& gemm, SourceLoc loc) {
  emit({Comment{fmt::format("gemm {} * {} -> {}", gemm.a.buffer->name, gemm.b.buffer->name,
                            gemm.c.buffer->name)},
        loc});
  atom_of(gemm).lower(*this, gemm, loc);
}

void TileLowering::lower(const ir::Copy& copy, SourceLoc loc) {
  emit({Comment{fmt::format("{} {} -> {}", copy.adds ? "copy_add" : "copy", copy.from.buffer->name,
                            copy.to.buffer->name)},
        loc});
  TESSERA_CHECK(is_by_engine(copy.plan), "a copy by threads reached lower_tiles");
  if (copy.plan.engine == ir::Engine::bulk) {
    lower_bulk(loop_of(copy, loc, result_.program.num_vars), loc);
  } else if (copy.to.buffer->space == ir::Space::global) {
    lower_tensor_store(copy, loc);
  } else {
    lower_tensor_copy(copy, loc);
  }
}

void TileLowering::lower(const ir::Loop& loop, SourceLoc loc) {
  if (loop.kind == ir::LoopKind::parallel) {
    lower_parallel(loop, loc);
  } else {
    lower_loop(loop, loc);
  }
}

void TileLowering::lower(const ir::Sync& sync, SourceLoc loc) {
  switch (sync.kind) {
    case ir::SyncKind::warp:
      return emit({Barrier{BarrierScope::warp}, loc});
    case ir::SyncKind::block:
      if (role_ < 0) return emit({Barrier{BarrierScope::block}, loc});
      if (group_.count <= kThreadsPerWarp) return emit({Barrier{BarrierScope::warp}, loc});
      if (role_ >= kMaxNamedBarriers) {
        fail("NAMED_BARRIERS", "a barrier of one more role", loc,
             fmt::format("at most {} of a block", kMaxNamedBarriers), fmt::format("{}", role_ + 1));
      }
      return emit({Barrier{BarrierScope::named, 0, role_ + 1, group_.count}, loc});
    case ir::SyncKind::cluster:
      return emit({Barrier{BarrierScope::cluster}, loc});
    case ir::SyncKind::grid:
      result_.program.cooperative = true;
      return emit({Barrier{BarrierScope::grid}, loc});
  }
}

void TileLowering::lower(const ir::Collective& collective, SourceLoc loc) {
  emit({Collective{collective.var, collective.kind, resolve(collective.args), collective.width},
        loc});
}

void TileLowering::lower(const ir::Assume& assume, SourceLoc loc) {
  // A fact for the rest of the body it stands in.
  const Expr condition = resolve(assume.condition);
  math_.add_fact(condition);
  emit({Assert{condition, "a false assumption", Otherwise::trap}, loc});
}

void TileLowering::lower(const ir::Present& present, SourceLoc loc) {
  emit({Present{present.var, array_of(present.buffer)}, loc});
}

void TileLowering::lower(const ir::Pointer& pointer, SourceLoc loc) {
  // Each place where it begins is an array of its own: the address or the block may be another.
  arrays_.erase(pointer.buffer->id);
  emit({Declare{array_of(pointer.buffer), false}, loc});
  if (pointer.buffer->map) write_map(pointer.buffer, loc);
}

void TileLowering::lower(const ir::Assert& check, SourceLoc loc) {
  const Otherwise otherwise = check.report < 0 ? Otherwise::stop : Otherwise::report;
  emit({Assert{resolve(check.condition), check.message, otherwise, check.report}, loc});
}

void TileLowering::lower(const ir::Print& print, SourceLoc loc) {
  when(sole_owner_, loc, [&] { emit({Print{print.text, resolve(print.args), print.event}, loc}); });
}

void TileLowering::lower(const ir::ExternCall& call, SourceLoc loc) {
  emit({ExternCall{call.var, call.function, resolve(call.args)}, loc});
}

void TileLowering::lower(const ir::Break& leave, SourceLoc loc) {
  emit({Break{resolve(leave.condition)}, loc});
}

void TileLowering::lower(const ir::Return& leave, SourceLoc loc) {
  const Expr condition = resolve(leave.condition);
  emit({Return{condition}, loc});
  math_.add_fact(ir::unary(ir::Op::logical_not, condition));
}

void TileLowering::lower(const ir::Fill&, SourceLoc) {
  internal_error("a fill reached lower_tiles");
}

void TileLowering::lower_loop(const ir::Loop& loop, SourceLoc loc) {
  const VarRef& var = loop.vars[0];
  if (loop.kind == ir::LoopKind::vectorized) {
    if (!is_straight_line(loop.body)) {
      fail("VEC_BODY", "a vectorized loop holds more than loads, values and stores", loc);
    }
    Iteration it;
    it.lane = var;
    it.vector = loop.extents[0]->integer;
    if (!ir::is_constant(loop.extents[0]) || !ir::is_constant(loop.begin, 0) ||
        (it.vector & (it.vector - 1)) != 0) {
      fail("VEC_EXTENT", "the extent of a vectorized loop must be a constant power of two", loc,
           "2, 4, 8, 16, ...", ir::to_string(loop.extents[0]));
    }
    lower_lanes(loop.body, it, loc, true);
    return;
  }
  For node;
  node.var = var;
  node.begin = resolve(loop.begin);
  node.end = resolve(loop.extents[0]);
  node.step = loop.step;
  node.unrolled = loop.kind == ir::LoopKind::unrolled;
  if (node.unrolled && !ir::is_constant(node.end)) {
    fail("UNROLL_EXTENT", "an unrolled loop needs a constant extent", loc, "a constant",
         ir::to_string(node.end));
  }
  if (node.unrolled) unrolled_vars_.insert(var.get());
  node.at_once = loop.rolled ? 1 : 0;
  node.may_wrap = may_wrap(loop, node.end);
  node.body = nested([&] { lower_body(loop.body); });
  if (!node.body.empty()) {
    auto* leave = std::get_if<Break>(&node.body.back().node);
    if (leave != nullptr) leave->together = any_of_block(loop.body);
  }
  emit({std::move(node), loc});
}

bool TileLowering::may_wrap(const ir::Loop& loop, const Expr& end) const {
  const Expr& step = loop.step;
  if (ir::is_constant(step, 1)) return false;
  // Memory holds no tensor of 2^31 tiles, and the prover knows no bound of a product of extents.
  if (loop.label == "persistent") return false;
  if (end->type == DType::i64) {  // the step is a constant
    const int64_t last = std::numeric_limits<int64_t>::max() - step->integer;
    return !math_.less(end, ir::constant(DType::i64, last + 2));
  }
  // One less than a step past the end. A sum that may leave its type stays one atom.
  const Expr rest = step - ir::constant(step->type, 1);
  const Form sum = math_.value(end + rest);
  const Form rest_of_sum =
      IndexMath::add(sum, IndexMath::add(math_.value(end), math_.value(rest)), -1);
  return !rest_of_sum.is_constant() || rest_of_sum.constant != 0;
}

ArrayRef TileLowering::array_of(const ir::BufferRef& view) {
  const bool is_reshaped = view->alias_of && !view->block;
  const ir::BufferRef& buffer = is_reshaped ? view->alias_of : view;
  ArrayRef& entry = arrays_[buffer->id];
  if (entry) return entry;
  auto array = std::make_shared<Array>();
  array->name = buffer->name;
  array->dtype = buffer->dtype;
  array->loc = buffer->loc;
  array->stands_for = buffer->stands_for;
  array->num_version_dims = buffer->num_version_dims;
  array->ring = buffer->ring;
  array->size = 1;
  switch (buffer->space) {
    case ir::Space::global:
      array->space = ArraySpace::global;
      array->size = 0;
      array->shape = buffer->shape;
      array->read_only = !buffer->is_output;
      array->may_alias = buffer->may_alias;
      if (buffer->address) array->address = resolve(buffer->address);
      array->align = buffer->align;
      break;
    case ir::Space::shared:
      array->space = ArraySpace::shared;
      array->shape = buffer->shape;
      for (const Expr& extent : buffer->shape) array->size *= extent->integer;
      result_.program.shared.push_back(array);
      break;
    case ir::Space::cluster:
      array->space = ArraySpace::cluster;
      array->block = resolve(buffer->block);
      array->mine = array_of(buffer->alias_of);
      array->shape = array->mine->shape;
      array->size = array->mine->size;
      break;
    case ir::Space::fragment:
      array->layout = std::make_shared<layout::Layout>(layouts_.fragments.at(buffer->id));
      array->size = array->layout->num_slots();
      break;
    case ir::Space::local:
      array->shape = buffer->shape;
      for (const Expr& extent : buffer->shape) array->size *= extent->integer;
      if (buffer->dynamic) {
        result_.notes.push_back(fmt::format("{}: {}: {} x {} in local memory, indexed at run time",
                                            to_string(buffer->loc), buffer->name, array->size,
                                            name(buffer->dtype)));
      }
      break;
    case ir::Space::scalar:
      break;
  }
  entry = array;
  return entry;
}

VarRef TileLowering::new_var(std::string name, DType type, ir::VarKind kind, Expr lower,
                             Expr upper) {
  auto var = std::make_shared<ir::Var>();
  var->name = std::move(name);
  var->type = type;
  var->kind = kind;
  var->id = result_.program.num_vars++;
  var->lower = std::move(lower);
  var->upper = std::move(upper);
  return var;
}

ArrayRef TileLowering::new_registers(std::string name, DType dtype, int64_t size, SourceLoc loc) {
  auto array = std::make_shared<Array>();
  array->name = std::move(name);
  array->dtype = dtype;
  array->size = size;
  array->loc = loc;
  return array;
}

Body TileLowering::nested(const std::function<void()>& fn) {
  Body body;
  Body* outer = out_;
  const bool manual_sync = manual_sync_;
  out_ = &body;
  math_.enter_scope();
  fn();
  math_.leave_scope();
  out_ = outer;
  manual_sync_ = manual_sync;
  return body;
}

void TileLowering::unrolled(const std::string& name, int64_t count, SourceLoc loc,
                            const std::function<void(const Expr&)>& fn) {
  if (count == 1) {
    fn(ir::index(0));
    return;
  }
  For loop;
  loop.var = new_var(name, DType::i32, ir::VarKind::loop, ir::index(0), ir::index(count));
  loop.begin = ir::index(0);
  loop.end = ir::index(count);
  loop.step = ir::index(1);
  loop.unrolled = true;
  loop.over_slots = true;
  unrolled_vars_.insert(loop.var.get());
  const Expr index = ir::var(loop.var);
  loop.body = nested([&] { fn(index); });
  emit({std::move(loop), loc});
}

void TileLowering::when(const Expr& predicate, SourceLoc loc, const std::function<void()>& fn) {
  if (!predicate) {
    fn();
    return;
  }
  If node;
  node.condition = predicate;
  node.then = nested([&] {
    math_.add_fact(predicate);
    fn();
  });
  emit({std::move(node), loc});
}

void TileLowering::fail(const char* code, std::string what, SourceLoc loc, std::string expected,
                        std::string got, std::string hint) const {
  throw Error({.kind = ErrorKind::program,
               .op = kernel_.name,
               .what = std::move(what),
               .expected = std::move(expected),
               .got = std::move(got),
               .hint = std::move(hint),
               .code = code,
               .loc = loc});
}

LoweredTiles lower_tiles(const ir::Kernel& kernel, const LayoutSolution& plan) {
  return TileLowering(kernel, plan).lower();
}

}  // namespace tessera::codegen
