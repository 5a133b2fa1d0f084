#include "codegen/thread_ir.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera::codegen {
namespace {

std::string list(const std::vector<Expr>& expressions) {
  std::vector<std::string> texts;
  for (const Expr& e : expressions) texts.push_back(to_string(e));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

/// "[8 * i]" or "[8 * i .. +8]"
std::string range(const Expr& first, int width) {
  if (width == 1) return fmt::format("[{}]", to_string(first));
  return fmt::format("[{} .. +{}]", to_string(first), width);
}

std::string text(const Slice& slice, int width) {
  return slice.array->name + range(slice.base, width);
}

std::string text(const Access& access) {
  return access.array->name + range(access.offset, access.width);
}

/// What follows an access: its logical place and how it was shown to be in bounds.
std::string facts(const Access& access) {
  std::string out;
  if (!access.indices.empty()) out += fmt::format(" at {}", list(access.indices));
  if (access.array->space != ArraySpace::registers)
    out += fmt::format(", {}", codegen::name(access.bounds));
  if (access.guard) out += fmt::format(", if {}", to_string(access.guard));
  if (access.cache != ir::CacheHint::none) out += fmt::format(", {}", ir::name(access.cache));
  return out;
}

class Printer {
 public:
  std::string program(const Program& program);

 private:
  void line(const std::string& text) {
    out_.append(static_cast<size_t>(2 * depth_), ' ');
    out_ += text;
    out_ += '\n';
  }
  void body(const Body& body) {
    ++depth_;
    for (const Stmt& stmt : body) {
      loc_ = stmt.loc;
      std::visit([&](const auto& node) { print(node); }, stmt.node);
    }
    --depth_;
  }

  void print(const Let& let) { line(fmt::format("{} = {}", let.var->name, to_string(let.value))); }
  void print(const Load& load) {
    const std::string into = load.var ? load.var->name : text(load.into, load.from.width);
    line(fmt::format("{} = load {}{}", into, text(load.from), facts(load.from)));
  }
  void print(const Store& store) {
    const std::string from =
        store.from.array ? text(store.from, store.to.width) : to_string(store.value);
    line(fmt::format("store {} = {}{}", text(store.to), from, facts(store.to)));
  }
  void print(const Atomic& atomic) {
    line(fmt::format("{}atomic {} {} with {}{}{}{}",
                     atomic.old ? fmt::format("{} = ", atomic.old->name) : std::string(),
                     ir::name(atomic.op), text(atomic.to), to_string(atomic.value),
                     atomic.compare ? fmt::format(" where {}", to_string(atomic.compare)) : "",
                     atomic.order == ir::MemoryOrder::acq_rel ? ", acq_rel" : "",
                     facts(atomic.to)));
  }
  void print(const Convert& convert) {
    line(fmt::format("{} = convert<{}> {}", text(convert.into, convert.width),
                     tessera::name(convert.into.array->dtype), text(convert.from, convert.width)));
  }
  void print(const Packed& packed) {
    std::vector<std::string> args;
    for (const Slice& arg : packed.args) args.push_back(text(arg, packed.width));
    line(fmt::format("{} = packed {}{}({})", text(packed.into, packed.width), ir::name(packed.op),
                     packed.of_magnitude ? " of magnitude" : "", fmt::join(args, ", ")));
  }
  void print(const LoadMatrix& load) {
    line(fmt::format("{} = load {} matrices{} {}{}", text(load.into, load.width()), load.count,
                     load.transposed ? " transposed" : "", text(load.from), facts(load.from)));
  }
  void print(const Mma& mma) {
    const int e = mma.depth();
    line(fmt::format("{} += mma {} * {}", text(mma.c, 4), text(mma.a, 4 * e), text(mma.b, 2 * e)));
  }
  void print(const For& loop) {
    line(fmt::format("{} {} = {}; < {}; += {}", loop.unrolled ? "unrolled" : "for", loop.var->name,
                     to_string(loop.begin), to_string(loop.end), to_string(loop.step)));
    body(loop.body);
  }
  void print(const If& branch) {
    line(fmt::format("if {}", to_string(branch.condition)));
    body(branch.then);
    if (branch.otherwise.empty()) return;
    line("else");
    body(branch.otherwise);
  }
  void print(const AsyncCopy& copy) {
    line(fmt::format("async copy{} {} = {}{}", copy.is_row ? " row" : "", text(copy.to),
                     text(copy.from), facts(copy.from)));
  }
  void print(const AsyncCommit&) { line("commit"); }
  void print(const AsyncWait& wait) {
    line(fmt::format("wait until {} groups pending", wait.pending));
  }
  void print(const Return& leave) { line(fmt::format("return if {}", to_string(leave.condition))); }
  void print(const Barrier& barrier) { line(std::string(name(barrier.scope))); }
  void print(const WarpBarrier&) { line("warp barrier"); }
  void print(const Collective& collective) {
    std::vector<std::string> args;
    for (const Expr& arg : collective.args) args.push_back(to_string(arg));
    std::string width;
    if (collective.width != 32) width = fmt::format(" width {}", collective.width);
    line(fmt::format("{} = {}({}){}", collective.var->name, ir::name(collective.kind),
                     fmt::join(args, ", "), width));
  }
  void print(const Comment& comment) {
    line(loc_.known() ? fmt::format("# {}  ({})", comment.text, to_string(loc_))
                      : fmt::format("# {}", comment.text));
  }
  void print(const Present& present) {
    line(fmt::format("{} = {} is given", present.var->name, present.array->name));
  }
  void print(const Assert& check) {
    const char* word = check.otherwise == Otherwise::trap     ? "assume"
                       : check.otherwise == Otherwise::report ? "report unless"
                                                              : "assert";
    line(fmt::format("{} {}", word, to_string(check.condition)));
  }
  void print(const CheckIndices& check) {
    std::vector<std::string> ranges;
    for (const CheckIndices::Range& range : check.ranges) {
      ranges.push_back(fmt::format("{} in {} +: {}", to_string(range.index), to_string(range.begin),
                                   to_string(range.extent)));
    }
    line(fmt::format("check {}{}: {}", check.array->name, list(check.indices),
                     fmt::join(ranges, ", ")));
  }
  void print(const Print& node) {
    std::vector<std::string> args;
    for (const Expr& arg : node.args) args.push_back(to_string(arg));
    line(fmt::format("print \"{}\" ({})", node.text, fmt::join(args, ", ")));
  }
  void print(const Dependency& node) {
    line(node.kind == ir::DependencyKind::wait ? "wait for the previous kernel"
                                               : "let the next kernel start");
  }
  void print(const ExternCall& call) {
    std::vector<std::string> args;
    for (const Expr& arg : call.args) args.push_back(to_string(arg));
    line(fmt::format("{} = {}({})", call.var->name, call.function->name, fmt::join(args, ", ")));
  }
  void print(const Declare& declare) {
    const Array& array = *declare.array;
    if (array.space == ArraySpace::global) {
      line(fmt::format("pointer {}: {}{} at {}, aligned to {}", array.name,
                       tessera::name(array.dtype), list(array.shape), to_string(array.address),
                       array.align));
      return;
    }
    if (array.space == ArraySpace::cluster) {
      line(fmt::format("pointer {}: {} of block {} of the cluster", array.name, array.mine->name,
                       to_string(array.block)));
      return;
    }
    line(fmt::format("registers {}: {}[{}]{}", array.name, tessera::name(array.dtype), array.size,
                     declare.zero ? " = 0" : ""));
  }

  std::string out_;
  int depth_ = 0;
  SourceLoc loc_;  // of the statement being printed
};

std::string Printer::program(const Program& program) {
  std::string bounds;
  if (program.min_blocks_per_sm > 0) {
    bounds = fmt::format(", at least {} blocks per SM", program.min_blocks_per_sm);
  }
  if (program.cluster > 1) bounds += fmt::format(", clusters of {}", program.cluster);
  line(fmt::format("program {}: grid {}, {} threads{}", program.name, list(program.grid),
                   program.threads, bounds));
  ++depth_;
  for (const Param& param : program.params) {
    if (param.array) {
      line(fmt::format("param {}: {}{}{}", param.name, tessera::name(param.array->dtype),
                       list(param.array->shape), param.array->read_only ? ", read only" : "",
                       param.array->may_alias ? ", may alias" : ""));
    } else {
      line(fmt::format("param {}: {}", param.name, tessera::name(param.var->type)));
    }
  }
  for (const VarRef& block : program.blocks) {
    line(fmt::format("{}: block index {}", block->name, "xyz"[block->axis]));
  }
  if (program.thread) line(fmt::format("{}: thread index", program.thread->name));
  if (program.shared_bytes > 0) line(fmt::format("shared memory: {} bytes", program.shared_bytes));
  for (const ArrayRef& array : program.shared) {
    line(fmt::format("shared {}: {}{} at byte {}", array->name, tessera::name(array->dtype),
                     list(array->shape), array->shared_offset));
  }
  --depth_;
  body(program.body);
  return std::move(out_);
}

}  // namespace

std::string_view name(Bounds bounds) {
  switch (bounds) {
    case Bounds::proved:
      return "proved";
    case Bounds::guarded:
      return "guarded";
    case Bounds::unchecked:
      return "unchecked";
  }
  return "?";
}

std::string_view name(BarrierScope scope) {
  switch (scope) {
    case BarrierScope::block:
      return "barrier";
    case BarrierScope::cluster:
      return "cluster barrier";
    case BarrierScope::cluster_arrive:
      return "arrive at the cluster barrier";
    case BarrierScope::cluster_wait:
      return "wait at the cluster barrier";
    case BarrierScope::grid:
      return "grid barrier";
  }
  return "?";
}

std::string to_string(const Program& program) {
  return Printer().program(program);
}

}  // namespace tessera::codegen
