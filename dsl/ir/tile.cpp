// Names and text of the tile IR.

#include "dsl/ir/tile.h"

#include <fmt/format.h>

namespace tessera::ir {
namespace {

std::string list(const std::vector<Expr>& items) {
  std::string text;
  for (const Expr& item : items) {
    if (!text.empty()) text += ", ";
    text += to_string(item);
  }
  return text;
}

/// The promises of indices that tiles rely on: two kernels that differ in it differ in text.
std::string tiles_text(const AccessTerms& terms) {
  std::string text;
  for (const TileIndex& tile : terms.tile_indices) {
    text += fmt::format(" ({} in {} +: {})", to_string(tile.index), to_string(tile.begin),
                        to_string(tile.extent));
  }
  return text;
}

std::string region_text(const Region& region) {
  std::string text;
  for (size_t d = 0; d < region.offsets.size(); ++d) {
    if (d > 0) text += ", ";
    text += to_string(region.offsets[d]);
    if (region.extents[d]) text += fmt::format(" +: {}", to_string(region.extents[d]));
  }
  text = fmt::format("{}[{}]{}", region.buffer->name, text, tiles_text(region.terms));
  const CacheHint cache = region.terms.cache;
  const std::string hint = cache == CacheHint::none ? "" : fmt::format(".{}", name(cache));
  for (size_t i = 1; i < region.order.size(); ++i) {
    if (region.order[i] < region.order[i - 1]) return text + ".transposed" + hint;
  }
  return text + hint;
}

std::string plan_text(const CopyPlan& plan) {
  return fmt::format(
      "{}{}", plan.engine != Engine::automatic ? fmt::format(", by {}", name(plan.engine)) : "",
      plan.multicast != Multicast::automatic ? fmt::format(", multicast {}", name(plan.multicast))
                                             : "");
}

struct Printer {
  std::string out;
  int depth = 1;

  void line(const std::string& text, SourceLoc loc) {
    std::string row = std::string(static_cast<size_t>(depth) * 2, ' ') + text;
    if (loc.known()) {
      if (row.size() < 78) row.resize(78, ' ');
      row += "  # " + tessera::to_string(loc);
    }
    out += row + "\n";
  }
  void nested(const Body& body) {
    ++depth;
    for (const Stmt& stmt : body) print(stmt);
    --depth;
  }
  void print(const Stmt& stmt) {
    std::visit([&](const auto& node) { (*this)(node, stmt.loc); }, stmt.node);
  }
  void operator()(const Let& s, SourceLoc loc) {
    line(fmt::format("let {}: {} = {}", s.var->name, name(s.var->type), to_string(s.value)), loc);
  }
  void operator()(const ElementLoad& s, SourceLoc loc) {
    line(fmt::format("{} = {}[{}]{}", s.var->name, s.buffer->name, list(s.indices),
                     tiles_text(s.terms)),
         loc);
  }
  void operator()(const ElementStore& s, SourceLoc loc) {
    line(fmt::format("{}[{}]{} = {}", s.buffer->name, list(s.indices), tiles_text(s.terms),
                     to_string(s.value)),
         loc);
  }
  void operator()(const Atomic& s, SourceLoc loc) {
    std::string args = s.value ? " with " + to_string(s.value) : std::string();
    if (s.until) args = " until " + to_string(s.until);
    if (s.compare)
      args = fmt::format(" with if {} then {}", to_string(s.compare), to_string(s.value));
    line(fmt::format("{}atomic_{} {}[{}]{}{}{}",
                     s.old ? fmt::format("{} = ", s.old->name) : std::string(), name(s.op),
                     s.buffer->name, list(s.indices), tiles_text(s.terms), args,
                     s.order == MemoryOrder::acq_rel ? " acq_rel" : ""),
         loc);
  }
  void operator()(const ReducerInit& s, SourceLoc loc) {
    line(fmt::format("reducer {} of {} opens", s.reducer->name, name(s.op)), loc);
  }
  void operator()(const ReducerUpdate& s, SourceLoc loc) {
    line(fmt::format("reducer {}[{}] takes {}", s.reducer->name, list(s.indices),
                     to_string(s.value)),
         loc);
  }
  void operator()(const ReducerFinalize& s, SourceLoc loc) {
    line(fmt::format("reducer {} closes into {}{}", s.reducer->name,
                     s.to ? s.to->name : s.value->name,
                     s.start ? fmt::format(", started from {}", to_string(s.start)) : ""),
         loc);
  }
  void operator()(const Copy& s, SourceLoc loc) {
    const bool is_plain = s.plan.when == CopyTime::at_once && s.token < 0;
    line(fmt::format("{} {} -> {}{}{}{}",
                     s.adds     ? "copy_add"
                     : is_plain ? "copy"
                                : "copy_async",
                     region_text(s.from), region_text(s.to),
                     s.outside ? fmt::format(", outside {}", to_string(s.outside)) : "",
                     plan_text(s.plan), s.token >= 0 ? fmt::format(", token {}", s.token) : ""),
         loc);
  }
  void operator()(const Fill& s, SourceLoc loc) {
    line(fmt::format("fill {} with {}", region_text(s.to), to_string(s.value)), loc);
  }
  void operator()(const Reduce& s, SourceLoc loc) {
    line(fmt::format("reduce_{} {} -> {} over axis {}", name(s.op), s.from.buffer->name,
                     s.to.buffer->name, s.axis),
         loc);
  }
  void operator()(const Gemm& s, SourceLoc loc) {
    const layout::WarpGrid& grid = s.plan.grid;
    line(fmt::format(
             "gemm {} * {} -> {}{}{}{}{}", region_text(s.a), region_text(s.b), region_text(s.c),
             grid == layout::WarpGrid{0, 0, 1}
                 ? std::string()
                 : fmt::format(" over {} x {}{}", grid.rows, grid.columns,
                               grid.depths > 1 ? fmt::format(" x {}", grid.depths) : ""),
             !s.plan.atom.empty()                      ? fmt::format(" by {}", s.plan.atom)
             : s.instruction != Instruction::automatic ? fmt::format(" by {}", name(s.instruction))
                                                       : "",
             s.tf32 == Tf32::truncate ? ", tf32 truncated" : "",
             s.promote != 0 ? fmt::format(", promoted every {}", s.promote) : ""),
         loc);
  }
  void operator()(const Loop& s, SourceLoc loc) {
    if (s.kind == LoopKind::parallel) {
      std::string vars;
      for (const VarRef& var : s.vars) vars += (vars.empty() ? "" : ", ") + var->name;
      line(fmt::format("parallel ({}) in [{}]{}", vars, list(s.extents),
                       s.plan ? plan_text(*s.plan) : std::string()),
           loc);
    } else {
      line(fmt::format("{} {} in {} .. {} step {}{}", name(s.kind), s.vars[0]->name,
                       to_string(s.begin), to_string(s.extents[0]), to_string(s.step),
                       s.kind == LoopKind::pipelined
                           ? fmt::format(" stages {}{}{}", s.stages, s.in_place ? " in place" : "",
                                         s.across     ? " across"
                                         : s.producer ? " producer"
                                                      : "")
                           : ""),
           loc);
    }
    nested(s.body);
  }
  void operator()(const If& s, SourceLoc loc) {
    line(fmt::format("if {}", to_string(s.condition)), loc);
    nested(s.then);
    if (!s.otherwise.empty()) {
      line("else", {});
      nested(s.otherwise);
    }
  }
  void operator()(const Sync& s, SourceLoc loc) { line(std::string(name(s.kind)), loc); }
  void operator()(const Collective& s, SourceLoc loc) {
    line(fmt::format("{} = {}({}) width {}", s.var->name, name(s.kind), list(s.args), s.width),
         loc);
  }
  void operator()(const Present& s, SourceLoc loc) {
    line(fmt::format("{} = {} is given", s.var->name, s.buffer->name), loc);
  }
  void operator()(const Pointer& s, SourceLoc loc) {
    if (s.buffer->block) {
      line(fmt::format("{} of block {} of the cluster", s.buffer->name, to_string(s.buffer->block)),
           loc);
      return;
    }
    line(fmt::format("{} at {}: {} [{}] strides [{}] align {}{}", s.buffer->name,
                     to_string(s.buffer->address), name(s.buffer->dtype), list(s.buffer->shape),
                     list(s.buffer->strides), s.buffer->align,
                     s.buffer->map ? fmt::format(" map in row {} of {}",
                                                 to_string(s.buffer->map_row), s.buffer->map->name)
                                   : std::string()),
         loc);
  }
  void operator()(const Assert& s, SourceLoc loc) {
    line(fmt::format("{} {}: {}", s.report < 0 ? "assert" : "report unless", to_string(s.condition),
                     s.message),
         loc);
  }
  void operator()(const Print& s, SourceLoc loc) {
    if (s.is_mark())
      return line(fmt::format("{} \"{}\"", s.begins() ? "begin" : "end", s.text), loc);
    line(fmt::format("print \"{}\" ({})", s.text, list(s.args)), loc);
  }
  void operator()(const Dependency& s, SourceLoc loc) {
    line(s.kind == DependencyKind::wait ? "wait for the previous kernel"
                                        : "let the next kernel start",
         loc);
  }
  void operator()(const ExternCall& s, SourceLoc loc) {
    line(fmt::format("{} = {}({})", s.var->name, s.function->name, list(s.args)), loc);
  }
  void operator()(const Assume& s, SourceLoc loc) {
    line(fmt::format("assume {}", to_string(s.condition)), loc);
  }
  void operator()(const AsyncCommit& s, SourceLoc loc) {
    line(s.group < 0 ? "commit" : fmt::format("commit group {}", s.group), loc);
  }
  void operator()(const StoreWait& s, SourceLoc loc) {
    line(fmt::format("wait for store {}{}", s.token, s.of_reads ? ", its reads" : ""), loc);
  }
  void operator()(const AsyncWait& s, SourceLoc loc) {
    line(s.group < 0 ? fmt::format("wait until {} groups pending", s.pending)
                     : fmt::format("wait for group {}", s.group),
         loc);
  }
  void operator()(const Break& s, SourceLoc loc) {
    line(fmt::format("break if {}", to_string(s.condition)), loc);
  }
  void operator()(const Return& s, SourceLoc loc) {
    line(fmt::format("return if {}", to_string(s.condition)), loc);
  }
  void operator()(const Roles& s, SourceLoc loc) {
    line("roles", loc);
    ++depth;
    for (const Roles::Role& role : s.roles) {
      line(fmt::format("{}: threads {} .. +{} as {}{}", role.name, role.first, role.count,
                       role.thread->name,
                       role.registers > 0 ? fmt::format(", {} registers", role.registers) : ""),
           role.loc);
      nested(role.body);
    }
    --depth;
  }
  void operator()(const RingTurn& s, SourceLoc loc) {
    line(fmt::format("{} {} of ring {}", s.fills ? "fill" : "take", s.stage->name, s.ring), loc);
    nested(s.body);
  }
};

}  // namespace

std::string_view name(Space space) {
  switch (space) {
    case Space::global:
      return "global";
    case Space::shared:
      return "shared";
    case Space::cluster:
      return "shared memory of a block of the cluster";
    case Space::fragment:
      return "fragment";
    case Space::local:
      return "local";
    case Space::scalar:
      return "scalar";
  }
  return "?";
}

std::string_view name(CacheHint hint) {
  switch (hint) {
    case CacheHint::none:
      return "none";
    case CacheHint::evict_first:
      return "evict_first";
    case CacheHint::evict_last:
      return "evict_last";
    case CacheHint::no_allocate:
      return "no_allocate";
  }
  return "?";
}

std::string_view name(LoopKind kind) {
  switch (kind) {
    case LoopKind::serial:
      return "serial";
    case LoopKind::unrolled:
      return "unrolled";
    case LoopKind::vectorized:
      return "vectorized";
    case LoopKind::parallel:
      return "parallel";
    case LoopKind::pipelined:
      return "pipelined";
  }
  return "?";
}

std::string_view name(SyncKind kind) {
  switch (kind) {
    case SyncKind::block:
      return "sync";
    case SyncKind::warp:
      return "sync_warp";
    case SyncKind::cluster:
      return "sync_cluster";
    case SyncKind::grid:
      return "sync_grid";
  }
  return "?";
}

std::string_view name(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::max:
      return "max";
    case ReduceOp::absmax:
      return "absmax";
    case ReduceOp::min:
      return "min";
  }
  return "?";
}

std::string_view name(Instruction instruction) {
  switch (instruction) {
    case Instruction::automatic:
      return "automatic";
    case Instruction::mma:
      return "mma";
    case Instruction::wgmma:
      return "wgmma";
  }
  return "?";
}

std::string_view name(Engine engine) {
  switch (engine) {
    case Engine::automatic:
      return "automatic";
    case Engine::tensor:
      return "tensor";
    case Engine::pieces:
      return "pieces";
    case Engine::bulk:
      return "bulk";
    case Engine::threads:
      return "threads";
  }
  return "?";
}

std::string_view name(Multicast multicast) {
  switch (multicast) {
    case Multicast::automatic:
      return "automatic";
    case Multicast::never:
      return "never";
    case Multicast::required:
      return "required";
  }
  return "?";
}

std::string_view name(AtomicOp op) {
  switch (op) {
    case AtomicOp::add:
      return "add";
    case AtomicOp::max:
      return "max";
    case AtomicOp::min:
      return "min";
    case AtomicOp::exchange:
      return "exchange";
    case AtomicOp::compare_exchange:
      return "compare_exchange";
    case AtomicOp::load:
      return "load";
  }
  return "?";
}

std::string_view name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::shuffle:
      return "shuffle";
    case CollectiveKind::shuffle_xor:
      return "shuffle_xor";
    case CollectiveKind::shuffle_up:
      return "shuffle_up";
    case CollectiveKind::shuffle_down:
      return "shuffle_down";
    case CollectiveKind::reduce_add:
      return "warp_sum";
    case CollectiveKind::reduce_min:
      return "warp_min";
    case CollectiveKind::reduce_max:
      return "warp_max";
    case CollectiveKind::reduce_and:
      return "warp_and";
    case CollectiveKind::reduce_or:
      return "warp_or";
    case CollectiveKind::vote_any:
      return "warp_any";
    case CollectiveKind::vote_all:
      return "warp_all";
    case CollectiveKind::ballot:
      return "ballot";
    case CollectiveKind::match_any:
      return "match_any";
  }
  return "?";
}

void drop_marks(Body& body) {
  std::erase_if(body, is_mark);
  for (Stmt& stmt : body) {
    if (auto* loop = std::get_if<Loop>(&stmt.node)) {
      drop_marks(loop->body);
    } else if (auto* branch = std::get_if<If>(&stmt.node)) {
      drop_marks(branch->then);
      drop_marks(branch->otherwise);
    } else if (auto* turn = std::get_if<RingTurn>(&stmt.node)) {
      drop_marks(turn->body);
    } else if (auto* roles = std::get_if<Roles>(&stmt.node)) {
      for (Roles::Role& role : roles->roles) drop_marks(role.body);
    }
  }
}

bool is_of_block(const Stmt& stmt) {
  const auto* loop = std::get_if<Loop>(&stmt.node);
  return (loop != nullptr && loop->kind == LoopKind::parallel) ||
         std::holds_alternative<Copy>(stmt.node) || std::holds_alternative<Fill>(stmt.node) ||
         std::holds_alternative<Reduce>(stmt.node) ||
         std::holds_alternative<ReducerFinalize>(stmt.node) ||
         std::holds_alternative<RingTurn>(stmt.node) || std::holds_alternative<Gemm>(stmt.node);
}

std::string_view refused_in_role(const Stmt& stmt) {
  const auto* sync = std::get_if<Sync>(&stmt.node);
  const auto* call = std::get_if<ExternCall>(&stmt.node);
  if (sync != nullptr && sync->kind == SyncKind::grid) return "k.sync_grid";
  if (sync != nullptr && sync->kind == SyncKind::cluster) return "k.sync_cluster";
  if (call != nullptr && call->function->synchronises) return "a function that synchronises";
  return std::holds_alternative<Return>(stmt.node) ? "k.return_if" : "";
}

std::string to_string(const Kernel& kernel) {
  Printer p;
  p.out = fmt::format("kernel {}\n", kernel.name);
  for (const BufferRef& t : kernel.tensors) {
    std::string flags = t->is_output ? "output" : "input";
    if (t->may_alias) flags += " may_alias";
    if (t->optional) flags += " optional";
    p.line(fmt::format("{} {}: {} [{}] strides [{}] align {}", flags, t->name, name(t->dtype),
                       list(t->shape), list(t->strides), t->align),
           t->loc);
  }
  for (const VarRef& dim : kernel.dims) {
    p.line(
        fmt::format("dim {}: {}{}", dim->name, name(dim->type),
                    dim->multiple_of > 1 ? fmt::format(" multiple of {}", dim->multiple_of) : ""),
        dim->loc);
  }
  for (const VarRef& s : kernel.scalars) {
    p.line(
        fmt::format("scalar {}: {}{}", s->name, name(s->type),
                    s->per_sm > 0 ? fmt::format(", {} for each SM of the device", s->per_sm) : ""),
        s->loc);
  }
  const std::string cluster =
      kernel.cluster > 1 ? fmt::format(" clusters of {}", kernel.cluster) : "";
  p.line(fmt::format("launch grid [{}] threads {}{}", list(kernel.grid), kernel.threads, cluster),
         {});
  if (kernel.marked_block) p.line(fmt::format("marks of block {}", *kernel.marked_block), {});
  for (size_t i = 0; i < kernel.rings.size(); ++i) {
    std::string tiles;
    for (const BufferRef& tile : kernel.rings[i].tiles) {
      tiles += fmt::format("{}{}", tiles.empty() ? "" : ", ", tile->name);
    }
    p.line(fmt::format("ring {} of {} stages: {}", i, kernel.rings[i].stages, tiles),
           kernel.rings[i].loc);
  }
  for (const Stmt& stmt : kernel.body) p.print(stmt);
  return p.out;
}

}  // namespace tessera::ir
