#include "codegen/thread_ir.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "codegen/thread_ir/text.h"

namespace tessera::codegen {
namespace {

class Printer {
 public:
  std::string program(const Program& program);

 private:
  // ---- names: objects in scope that share one are told apart by a number
  template <class Object>
  std::string begin(const Object& object) {
    std::string name = object.name;
    for (int n = 2; !taken_.try_emplace(name, &object).second && taken_.at(name) != &object; ++n) {
      name = fmt::format("{}.{}", object.name, n);
    }
    names_[&object] = name;
    return name;
  }
  template <class Object>
  std::string name_of(const Object& object) const {
    const auto found = names_.find(&object);
    return found == names_.end() ? object.name : found->second;
  }
  std::string text(const Expr& e) const {
    return ir::to_string(ir::substitute(e, [&](const VarRef& var) {
      const std::string name = name_of(*var);
      if (name == var->name) return Expr();
      auto renamed = std::make_shared<ir::Var>(*var);
      renamed->name = name;
      return ir::var(renamed);
    }));
  }
  std::string list(const std::vector<Expr>& expressions) const {
    std::vector<std::string> texts;
    for (const Expr& e : expressions) texts.push_back(text(e));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  }

  /// "[8 * i]" or "[8 * i .. +8]"; "open" before arrange_shared has decided.
  std::string range(const Expr& first, int width) const {
    const std::string place = first ? text(first) : "open";
    if (width == 1) return fmt::format("[{}]", place);
    return fmt::format("[{} .. +{}]", place, width);
  }
  std::string text(const Slice& slice, int width) const {
    return name_of(*slice.array) + range(slice.base, width);
  }
  std::string text(const Access& access) const {
    return name_of(*access.array) + range(access.offset, access.width);
  }
  /// The text behind an access: its logical place and how it was shown to be in bounds.
  std::string facts(const Access& access) const {
    std::string out;
    if (!access.indices.empty()) out += fmt::format(" at {}", list(access.indices));
    if (access.array->space != ArraySpace::registers)
      out += fmt::format(", {}", codegen::name(access.bounds));
    if (access.guard) out += fmt::format(", if {}", text(access.guard));
    if (access.cache != ir::CacheHint::none) out += fmt::format(", {}", ir::name(access.cache));
    return out;
  }

  void line(const std::string& text) {
    out_.append(static_cast<size_t>(2 * depth_), ' ');
    out_ += text;
    if (is_manual_) out_ += "; manual";
    is_manual_ = false;  // on the first line of the statement
    out_ += '\n';
  }
  void body(const Body& body) {
    ++depth_;
    const auto taken = taken_;
    for (const Stmt& stmt : body) {
      loc_ = stmt.loc;
      is_manual_ = stmt.manual_sync && !std::holds_alternative<Comment>(stmt.node);
      std::visit([&](const auto& node) { print(node); }, stmt.node);
    }
    taken_ = taken;
    --depth_;
  }

  void print(const Let& let) {
    line(fmt::format("{}{} = {}{}", begin(*let.var), dtype_suffix(let.value),
                     let.is_vouched ? "uniform " : "", text(let.value)));
  }
  void print(const Load& load) {
    const std::string into = load.var ? begin(*load.var) : text(load.into, load.from.width);
    line(fmt::format("{} = load {}{}{}{}{}", into, load.at_use ? "at use " : "",
                     load.in_pair ? "in pair " : "", text(load.from), facts(load.from),
                     load.by_branch ? ", by branch" : ""));
  }
  void print(const Store& store) {
    const std::string from =
        store.from.array ? text(store.from, store.to.width) : text(store.value);
    line(fmt::format("store {} = {}{}{}", text(store.to), from, facts(store.to),
                     store.kept_for_loops ? ", kept for loops" : ""));
  }
  void print(const Atomic& atomic) {
    const std::string old = atomic.old ? fmt::format("{} = ", begin(*atomic.old)) : std::string();
    std::string args = atomic.value ? " with " + text(atomic.value) : "";
    if (atomic.from.array) args += " with " + text(atomic.from, atomic.to.width);
    if (atomic.until) args += " until " + text(atomic.until);
    if (atomic.compare) args += " where " + text(atomic.compare);
    if (atomic.order == ir::MemoryOrder::acq_rel) args += ", acq_rel";
    line(fmt::format("{}atomic {} {}{}{}", old, ir::name(atomic.op), text(atomic.to), args,
                     facts(atomic.to)));
  }
  void print(const Convert& convert) {
    line(fmt::format(
        "{} = convert<{}> {}{}", text(convert.into, convert.width),
        tessera::name(convert.into.array->dtype), text(convert.from, convert.width),
        convert.at_once > 1 ? fmt::format("; {} at once", convert.at_once) : std::string()));
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
  std::string text(const SharedMatrix& matrix) const {
    return fmt::format("matrix of {} rows {}{}{}", matrix.rows,
                       matrix.transposed ? "transposed " : "", text(matrix.first),
                       facts(matrix.first));
  }
  void print(const Mma& mma) {
    const int e = mma.per_register();
    line(fmt::format("{} {} {} {} * {}", text(mma.c, static_cast<int>(mma.sums())),
                     mma.clears ? "=" : "+=", mma.is_of_group() ? "wgmma" : "mma",
                     mma.a.array ? text(mma.a, 4 * e) : text(mma.left),
                     mma.b.array ? text(mma.b, 2 * e) : text(mma.right)));
  }
  std::string sum_of(const auto& stmt, const char* before) {
    return stmt.sum.array ? before + text(stmt.sum, static_cast<int>(stmt.width)) : std::string();
  }
  void print(const Commit& commit) {
    line(fmt::format("commit{}{}",
                     commit.work == Work::copies ? "" : fmt::format(" {}", name(commit.work)),
                     commit.token < 0 ? "" : fmt::format(" of token {}", commit.token)));
  }
  void print(const Await& wait) {
    const std::string groups = wait.token < 0 ? fmt::format("{} groups pending", wait.pending)
                                              : fmt::format("token {}", wait.token);
    const std::string work =
        wait.work == Work::copies
            ? std::string()
            : fmt::format(" of {}{}", wait.of_reads ? "reads of " : "", name(wait.work));
    const std::string above =
        wait.above.array ? ", below " + text(wait.above, static_cast<int>(wait.above_width)) : "";
    line(fmt::format("wait until {}{}{}{}", groups, work, sum_of(wait, ", "), above));
  }
  void print(const Fence& fence) {
    switch (fence.of) {
      case Fence::Of::shared:
        return line("proxy fence");
      case Fence::Of::global:
        return line("proxy fence of global");
      case Fence::Of::registers:
        return line("fence of registers" + sum_of(fence, " "));
    }
  }
  void print(const For& loop) {
    const auto taken = taken_;
    std::string bounds =
        fmt::format("{}; < {}; += {}", text(loop.begin), text(loop.end), text(loop.step));
    if (loop.may_wrap) bounds += " or the end";
    if (loop.at_once > 0) bounds += fmt::format("; {} at once", loop.at_once);
    line(fmt::format("{} {}{} = {}", loop.unrolled ? "unrolled" : "for", begin(*loop.var),
                     dtype_suffix(loop.end), bounds));
    body(loop.body);
    taken_ = taken;
  }
  void print(const If& branch) {
    line(fmt::format("{} {}", branch.is_guard ? "guard" : "if", text(branch.condition)));
    body(branch.then);
    if (branch.otherwise.empty()) return;
    line("else");
    body(branch.otherwise);
  }
  void print(const AsyncCopy& copy) {
    line(fmt::format("async copy {} = {}{}", target(copy.to), text(copy.from), facts(copy.from)));
  }
  void print(const MbarrierInit& init) { line(fmt::format("mbarrier init {}", text(init.at))); }
  void print(const MbarrierArrive& arrive) {
    std::string more = arrive.after_copies ? ", after copies" : "";
    if (arrive.rank) more = fmt::format(", of block {}", text(arrive.rank));
    if (arrive.of_warp_at > 0) more = fmt::format(", of the warp at {} blocks", arrive.of_warp_at);
    line(fmt::format("mbarrier arrive {}{}", text(arrive.at), more));
  }
  void print(const MbarrierWait& wait) {
    line(fmt::format("mbarrier wait {}, phase {}{}", text(wait.at), text(wait.phase),
                     wait.of_cluster ? ", of the cluster" : ""));
  }
  std::string signal(const auto& copy) {
    if (!copy.mbarrier.array) return {};
    return fmt::format(", mbarrier {}{}", text(copy.mbarrier), copy.expects ? ", expected" : "");
  }
  std::string target(const Access& to) {
    return text(to) + (to.offset ? std::string() : fmt::format(" at {}", list(to.indices)));
  }
  void print(const BulkCopy& copy) {
    line(fmt::format("bulk copy {} = {}{}{}", target(copy.to), text(copy.from), facts(copy.from),
                     signal(copy)));
  }
  void print(const TensorCopy& copy) {
    const std::string at = copy.map_at.array ? " in " + text(copy.map_at) : std::string();
    line(fmt::format("tensor copy {} = {}{}{}{}{}", target(copy.to), copy.map->name, at,
                     list(copy.coordinates), signal(copy), copy.multicast ? ", multicast" : ""));
  }
  void print(const WriteMap& write) {
    line(fmt::format("write map {} = {} of {}: extents {}, strides {}", text(write.to),
                     write.map ? write.map->name : "the one", write.tensor->name,
                     list(write.extents), list(write.strides)));
  }
  void print(const TensorStore& store) {
    line(fmt::format("tensor {} {} {}{} = {}", store.adds ? "add" : "store",
                     name_of(*store.to.array), store.map->name, list(store.coordinates),
                     target(store.from)));
  }
  void print(const Break& leave) {
    line(fmt::format("break {}if {}", leave.together ? "together " : "", text(leave.condition)));
  }
  void print(const Return& leave) { line(fmt::format("return if {}", text(leave.condition))); }
  void print(const Barrier& barrier) {
    const std::string meeting =
        barrier.is_named() ? fmt::format(" {} of {} threads", barrier.id, barrier.threads) : "";
    line(std::string(name(barrier.scope)) + meeting);
  }
  void print(const RoleBodies& bodies) {
    line("roles");
    ++depth_;
    for (const RoleBodies::Role& role : bodies.roles) {
      const auto taken = taken_;
      std::string head =
          fmt::format("{}: threads {} .. +{}", role.name, role.threads.first, role.threads.count);
      if (role.thread) head += fmt::format(" as {}", begin(*role.thread));
      if (role.registers > 0) head += fmt::format(", {} registers", role.registers);
      line(head);
      body(role.body);
      taken_ = taken;
    }
    --depth_;
  }
  void print(const Collective& collective) {
    std::vector<std::string> args;
    for (const Expr& arg : collective.args) args.push_back(text(arg));
    std::string width;
    if (collective.width != 32) width = fmt::format(" width {}", collective.width);
    line(fmt::format("{} = {}({}){}", begin(*collective.var), ir::name(collective.kind),
                     fmt::join(args, ", "), width));
  }
  void print(const Comment& comment) {
    line(loc_.known() ? fmt::format("# {}  ({})", comment.text, to_string(loc_))
                      : fmt::format("# {}", comment.text));
  }
  void print(const Present& present) {
    line(fmt::format("{} = {} is given", begin(*present.var), name_of(*present.array)));
  }
  void print(const Assert& check) {
    const char* word = check.otherwise == Otherwise::trap     ? "assume"
                       : check.otherwise == Otherwise::report ? "report unless"
                                                              : "assert";
    line(fmt::format("{} {}", word, text(check.condition)));
  }
  void print(const CheckIndices& check) {
    std::vector<std::string> ranges;
    for (const CheckIndices::Range& range : check.ranges) {
      ranges.push_back(
          fmt::format("{} in {} .. +{}", text(range.index), text(range.begin), text(range.extent)));
    }
    line(fmt::format("check {}{}: {}", name_of(*check.array), list(check.indices),
                     fmt::join(ranges, ", ")));
  }
  void print(const Print& node) {
    std::vector<std::string> args;
    for (const Expr& arg : node.args) args.push_back(text(arg));
    if (node.is_mark()) {
      return line(fmt::format("mark {} \"{}\"", node.begins() ? "begin" : "end", node.text));
    }
    line(fmt::format("print \"{}\" ({})", node.text, fmt::join(args, ", ")));
  }
  void print(const Dependency& node) {
    line(node.kind == ir::DependencyKind::wait ? "wait for the previous kernel"
                                               : "let the next kernel start");
  }
  void print(const ExternCall& call) {
    std::vector<std::string> args;
    for (const Expr& arg : call.args) args.push_back(text(arg));
    line(fmt::format("{} = {}({})", begin(*call.var), call.function->name, fmt::join(args, ", ")));
  }
  void print(const Declare& declare) {
    const Array& array = *declare.array;
    if (array.space == ArraySpace::global) {
      line(fmt::format("pointer {}: {}{} at {}, aligned to {}", begin(array),
                       tessera::name(array.dtype), list(array.shape), text(array.address),
                       array.align));
      return;
    }
    if (array.space == ArraySpace::cluster) {
      line(fmt::format("pointer {}: {} of block {} of the cluster", begin(array),
                       name_of(*array.mine), text(array.block)));
      return;
    }
    line(fmt::format("registers {}: {}[{}]{}", begin(array), tessera::name(array.dtype), array.size,
                     declare.zero ? " = 0" : ""));
  }

  std::string out_;
  int depth_ = 0;
  std::map<const void*, std::string> names_;
  std::map<std::string, const void*> taken_;  // in scope
  SourceLoc loc_;                             // of the statement being printed
  bool is_manual_ = false;
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
      line(fmt::format("param {}: {}{}{}", begin(*param.array), tessera::name(param.array->dtype),
                       list(param.array->shape), param.array->read_only ? ", read only" : "",
                       param.array->may_alias ? ", may alias" : ""));
    } else {
      const bool is_dim = param.var->kind == ir::VarKind::dim;
      line(fmt::format("{} {}: {}", is_dim ? "dim" : "scalar", begin(*param.var),
                       tessera::name(param.var->type)));
    }
  }
  for (const TensorMapRef& map : program.maps) {
    const std::string swizzle =
        map->swizzle > 0 ? fmt::format(", swizzle {}", map->swizzle) : std::string();
    line(fmt::format("map {}: {} strides {} box [{}]{}", map->name, name_of(*map->tensor),
                     list(map->strides), fmt::join(map->box, ", "), swizzle));
  }
  for (const VarRef& block : program.blocks) {
    line(fmt::format("{}: block index {}", begin(*block), "xyz"[block->axis]));
  }
  if (program.thread) line(fmt::format("{}: thread index", begin(*program.thread)));
  if (program.shared_bytes > 0) line(fmt::format("shared memory: {} bytes", program.shared_bytes));
  for (const ArrayRef& array : program.shared) {
    const std::string arrivals =
        array->is_mbarriers() ? fmt::format(", mbarriers of {} arrivals", array->arrivals) : "";
    using Part = Array::RingPart;
    const char* part = array->ring_part == Part::full    ? " full"
                       : array->ring_part == Part::empty ? " empty"
                                                         : "";
    const std::string ring = array->ring >= 0 ? fmt::format(", ring {}{}", array->ring, part) : "";
    line(fmt::format("shared {}: {}{} at byte {}{}{}", begin(*array), tessera::name(array->dtype),
                     list(array->shape), array->shared_offset, arrivals, ring));
  }
  for (const ArrayRef& array : undeclared_registers(program.body)) {
    line(fmt::format("undeclared registers {}: {}[{}]", begin(*array), tessera::name(array->dtype),
                     array->size));
  }
  --depth_;
  body(program.body);
  return std::move(out_);
}

}  // namespace

std::string to_string(const Program& program) {
  return Printer().program(program);
}

}  // namespace tessera::codegen
