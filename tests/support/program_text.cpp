#include "tests/support/program_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/thread_ir/walk.h"
#include "tests/support/expression_text.h"

namespace tessera::test {
namespace {

using namespace codegen;
using ir::VarKind;

struct TextLine {
  std::string text;
  int depth = 0, number = 0;
};

/// Without empty lines; two blanks are a level, the first line is at level 0.
std::vector<TextLine> lines_of(std::string_view text) {
  std::vector<TextLine> result;
  int number = 0, first = -1;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    const size_t blanks = line.find_first_not_of(' ');
    if (blanks == std::string_view::npos) continue;
    if (first < 0) first = static_cast<int>(blanks);
    result.push_back(
        {std::string(line.substr(blanks)), (static_cast<int>(blanks) - first) / 2, number});
  }
  return result;
}

template <class Kind>
std::optional<Kind> kind_of(std::string_view word, Kind last) {
  for (int kind = 0; kind <= static_cast<int>(last); ++kind) {
    if (ir::name(static_cast<Kind>(kind)) == word) return static_cast<Kind>(kind);
  }
  return std::nullopt;
}

class ProgramReader {
 public:
  explicit ProgramReader(std::string_view text) : lines_(lines_of(text)) {}

  Program read() {
    head();
    while (next_ < lines_.size() && declaration(Line(lines_[next_].text))) ++next_;
    program_.body = body(1);
    if (next_ != lines_.size()) Line(lines_[next_].text).fail("a wrong indentation");
    return std::move(program_);
  }

 private:
  // ---- names
  VarRef new_var(const std::string& name, DType type, VarKind kind, int axis = 0) {
    auto var = std::make_shared<ir::Var>();
    var->name = name;
    var->type = type;
    var->kind = kind;
    var->axis = axis;
    var->id = program_.num_vars++;
    if (kind == VarKind::dim) var->lower = ir::index(0);
    vars_[name] = var;
    return var;
  }
  Expr expression(Line& line, std::optional<DType> expected = std::nullopt) const {
    return read_expression(
        line,
        [&](const std::string& name) {
          const auto found = vars_.find(name);
          return found == vars_.end() ? VarRef() : found->second;
        },
        expected);
  }
  ArrayRef array(Line& line) const {
    const std::string name = line.take();
    const auto found = arrays_.find(name);
    if (found == arrays_.end()) line.fail("no array '" + name + "'");
    return found->second;
  }
  DType dtype(Line& line) const {
    const auto type = dtype_from_name(line.take());
    if (!type) line.fail("no such dtype");
    return *type;
  }
  std::vector<Expr> list(Line& line) const {
    std::vector<Expr> result;
    line.expect("[");
    while (!line.accept("]")) {
      result.push_back(expression(line));
      line.accept(",");
    }
    return result;
  }

  // ---- the head
  void head() {
    Line line(lines_[next_++].text);
    line.expect("program");
    program_.name = line.take();
    line.expect(": grid");
    const size_t grid = next_ - 1;  // its dims come later
    while (line.peek() != "]") line.take();
    line.expect("] ,");
    program_.threads = static_cast<int>(line.integer());
    line.expect("threads");
    if (line.accept(", at least")) {
      program_.min_blocks_per_sm = static_cast<int>(line.integer());
      line.expect("blocks per SM");
    }
    if (line.accept(", clusters of")) program_.cluster = static_cast<int>(line.integer());
    for (size_t i = next_; i < lines_.size(); ++i) variable_declaration(Line(lines_[i].text));
    Line again(lines_[grid].text);
    again.expect("program");
    again.take();
    again.expect(": grid");
    program_.grid = list(again);
  }
  /// Dims and block indices, which extents name before their own line.
  void variable_declaration(Line line) {
    for (const auto kind : {VarKind::dim, VarKind::scalar}) {
      if (!line.accept(kind == VarKind::dim ? "dim" : "scalar")) continue;
      const std::string name = line.take();
      line.expect(":");
      new_var(name, dtype(line), kind);
    }
  }

  /// One line of the head; false for the first statement.
  bool declaration(Line line) {
    if (line.accept("dim") || line.accept("scalar")) {
      const std::string name = line.take();
      program_.params.push_back({name, {}, vars_.at(name)});
    } else if (line.accept("param")) {
      const auto tensor = new_array(line, ArraySpace::global);
      tensor->shape = list(line);
      tensor->read_only = line.accept(", read only");
      tensor->may_alias = line.accept(", may alias");
      program_.params.push_back({tensor->name, tensor, {}});
    } else if (line.accept("map")) {
      map(line);
    } else if (line.accept("shared memory :")) {
      program_.shared_bytes = line.integer();
    } else if (line.accept("shared")) {
      const auto tile = new_array(line, ArraySpace::shared);
      tile->shape = list(line);
      tile->size = 1;
      for (const Expr& extent : tile->shape) tile->size *= extent->integer;
      if (line.accept("at byte")) tile->shared_offset = line.integer();
      if (line.accept(", mbarriers of")) {
        tile->arrivals = static_cast<int>(line.integer());
        line.expect("arrivals");
      }
      if (line.accept(", ring")) {
        tile->ring = static_cast<int>(line.integer());
        using Part = Array::RingPart;
        tile->ring_part = line.accept("full")    ? Part::full
                          : line.accept("empty") ? Part::empty
                                                 : Part::tile;
      }
      program_.shared.push_back(tile);
    } else if (line.accept("undeclared registers")) {
      registers(line);
    } else if (line.peek(1) == ":" && line.peek(2) == "thread") {
      program_.thread = new_var(line.take(), DType::i32, VarKind::thread);
    } else if (line.peek(1) == ":" && line.peek(2) == "block") {
      const std::string name = line.take();
      line.expect(": block index");
      const auto axis = std::string("xyz").find(line.take());
      program_.blocks.push_back(new_var(name, DType::i32, VarKind::block, static_cast<int>(axis)));
    } else {
      return false;
    }
    return true;
  }
  void map(Line& line) {
    auto made = std::make_shared<TensorMap>();
    made->name = line.take();
    line.expect(":");
    made->tensor = array(line);
    line.expect("strides");
    made->strides = list(line);
    line.expect("box");
    for (const Expr& extent : list(line)) made->box.push_back(extent->integer);
    if (line.accept(", swizzle")) made->swizzle = line.integer();
    program_.maps.push_back(std::move(made));
  }
  std::shared_ptr<Array> new_array(Line& line, ArraySpace space) {
    auto array = std::make_shared<Array>();
    array->name = line.take();
    array->space = space;
    line.expect(":");
    array->dtype = dtype(line);
    arrays_[array->name] = array;
    return array;
  }
  std::shared_ptr<Array> registers(Line& line) {
    auto array = new_array(line, ArraySpace::registers);
    line.expect("[");
    array->size = line.integer();
    line.expect("]");
    return array;
  }

  // ---- statements
  Body body(int depth) {
    Body result;
    while (next_ < lines_.size() && lines_[next_].depth == depth) {
      const TextLine& text = lines_[next_++];
      std::string words = text.text;
      constexpr std::string_view kManual = "; manual";
      const bool is_manual = words.ends_with(kManual);
      if (is_manual) words.resize(words.size() - kManual.size());
      const bool is_comment = words.starts_with("# ");
      Line line(is_comment ? std::string() : words);
      Stmt stmt;
      if (is_comment) {
        stmt.node = Comment{words.substr(2)};
      } else {
        stmt = statement(line, depth);
        if (!line.is_at_end()) line.fail("'" + line.peek() + "' does not belong here");
        stmt.loc = {"program", text.number};
      }
      stmt.manual_sync = is_manual;
      result.push_back(std::move(stmt));
    }
    return result;
  }

  static Stmt made(auto node) { return {std::move(node), {}}; }

  Stmt statement(Line& line, int depth) {
    if (line.accept("registers")) {
      const auto array = registers(line);
      return made(Declare{array, line.accept("= 0")});
    }
    if (line.accept("pointer")) return pointer(line);
    if (line.accept("unrolled")) return loop(line, depth, true);
    if (line.accept("for")) return loop(line, depth, false);
    if (line.accept("if")) return branch(line, depth, false);
    if (line.accept("guard")) return branch(line, depth, true);
    if (line.accept("store")) return store(line);
    if (line.accept("atomic")) return atomic(line, {});
    if (line.accept("proxy fence of global")) return made(Fence{Fence::Of::global});
    if (line.accept("proxy fence")) return made(Fence{});
    if (line.accept("fence of registers")) {
      Fence node{Fence::Of::registers};
      if (!line.is_at_end()) sum(line, node);
      return made(std::move(node));
    }
    if (line.accept("async copy")) return async_copy(line);
    if (line.accept("check")) return check(line);
    if (line.accept("bulk copy")) return bulk_copy(line);
    if (line.accept("tensor copy")) return tensor_copy(line);
    if (line.accept("tensor store")) return tensor_store(line, false);
    if (line.accept("tensor add")) return tensor_store(line, true);
    if (line.accept("mbarrier")) return mbarrier(line);
    if (line.accept("commit")) {
      Commit node{work(line)};
      if (line.accept("of token")) node.token = static_cast<int>(line.integer());
      return made(node);
    }
    if (line.accept("wait until")) return wait(line);
    if (line.accept("break if")) return made(Break{expression(line)});
    if (line.accept("break together if")) return made(Break{expression(line), true});
    if (line.accept("return if")) return made(Return{expression(line)});
    for (const auto scope : {BarrierScope::named, BarrierScope::named_arrive}) {
      if (line.accept(codegen::name(scope))) return named_barrier(line, scope);
    }
    if (line.accept("roles")) return roles(depth + 1);
    for (const auto scope :
         {BarrierScope::warp, BarrierScope::block, BarrierScope::cluster,
          BarrierScope::cluster_arrive, BarrierScope::cluster_wait, BarrierScope::grid}) {
      if (line.accept(codegen::name(scope))) return made(Barrier{scope});
    }
    if (line.accept("wait for the previous kernel")) {
      return made(Dependency{ir::DependencyKind::wait});
    }
    if (line.accept("let the next kernel start")) {
      return made(Dependency{ir::DependencyKind::trigger});
    }
    for (const auto& [word, otherwise] :
         {std::pair("assume", Otherwise::trap), std::pair("assert", Otherwise::stop),
          std::pair("report unless", Otherwise::report)}) {
      if (line.accept(word)) return made(Assert{expression(line), "", otherwise});
    }
    return assignment(line);
  }

  /// The registers of the sum of a fence or a wait.
  void sum(Line& line, auto& node) {
    const Access registers = access(line);
    node.sum = {registers.array, registers.offset};
    node.width = registers.width;
  }
  static Work work(Line& line) {
    for (const Work work : {Work::stores, Work::products}) {
      if (line.accept(codegen::name(work))) return work;
    }
    return Work::copies;
  }
  Stmt wait(Line& line) {
    Await node;
    if (line.accept("token")) {
      node.token = static_cast<int>(line.integer());
    } else {
      node.pending = static_cast<int>(line.integer());
      line.expect("groups pending");
    }
    if (line.accept("of")) {
      node.of_reads = line.accept("reads of");
      node.work = work(line);
    }
    if (line.accept(",")) sum(line, node);
    if (line.accept(", below")) {
      const Access registers = access(line);
      node.above = {registers.array, registers.offset};
      node.above_width = registers.width;
    }
    return made(std::move(node));
  }

  SharedMatrix shared_matrix(Line& line) const {
    SharedMatrix matrix;
    matrix.rows = line.integer();
    line.expect("rows");
    matrix.transposed = line.accept("transposed");
    matrix.first = access(line);
    facts(line, matrix.first);
    return matrix;
  }
  Stmt wgmma(Line& line, const Slice& to, bool clears = false) const {
    Mma node;
    node.c = to;
    node.clears = clears;
    if (line.accept("matrix of")) {
      node.left = shared_matrix(line);
    } else {
      node.a = slice(line);
    }
    line.expect("* matrix of");
    node.right = shared_matrix(line);
    return made(std::move(node));
  }

  Stmt named_barrier(Line& line, BarrierScope scope) {
    Barrier node{scope};
    node.id = static_cast<int>(line.integer());
    line.expect("of");
    node.threads = static_cast<int>(line.integer());
    line.expect("threads");
    return made(node);
  }

  Stmt roles(int depth) {
    RoleBodies node;
    while (next_ < lines_.size() && lines_[next_].depth == depth) {
      Line line(lines_[next_++].text);
      RoleBodies::Role role;
      role.name = line.take();
      line.expect(": threads");
      role.threads.first = static_cast<int>(line.integer());
      line.expect(".. +");
      role.threads.count = static_cast<int>(line.integer());
      const auto outer = vars_;
      if (line.accept("as")) role.thread = new_var(line.take(), DType::i32, VarKind::thread);
      if (line.accept(",")) {
        role.registers = static_cast<int>(line.integer());
        line.expect("registers");
      }
      if (!line.is_at_end()) line.fail("'" + line.peek() + "' does not belong here");
      role.body = body(depth + 1);
      vars_ = outer;
      node.roles.push_back(std::move(role));
    }
    return made(std::move(node));
  }

  Stmt check(Line& line) {
    CheckIndices node;
    node.array = array(line);
    node.indices = list(line);
    line.expect(":");
    do {
      CheckIndices::Range range;
      range.index = expression(line);
      line.expect("in");
      range.begin = expression(line);
      line.expect(".. +");
      range.extent = expression(line);
      node.ranges.push_back(range);
    } while (line.accept(","));
    return made(std::move(node));
  }

  Stmt pointer(Line& line) {
    const std::string name = line.take();
    line.expect(":");
    auto view = std::make_shared<Array>();
    view->name = name;
    if (const auto found = arrays_.find(line.peek()); found != arrays_.end()) {
      view->mine = array(line);
      view->space = ArraySpace::cluster;
      view->dtype = view->mine->dtype;
      view->shape = view->mine->shape;
      view->size = view->mine->size;
      line.expect("of block");
      view->block = expression(line);
      line.expect("of the cluster");
    } else {
      view->space = ArraySpace::global;
      view->dtype = dtype(line);
      view->shape = list(line);
      line.expect("at");
      view->address = expression(line);
      line.expect(", aligned to");
      view->align = line.integer();
    }
    arrays_[name] = view;
    return made(Declare{view, false});
  }

  Stmt loop(Line& line, int depth, bool unrolled) {
    For node;
    node.unrolled = unrolled;
    const std::string name = line.take();
    std::optional<DType> type;
    if (line.accept(":")) type = dtype(line);
    line.expect("=");
    node.begin = expression(line, type);
    line.expect("; <");
    node.end = expression(line, type);
    line.expect("; +=");
    node.step = expression(line, type);
    if (line.accept(";")) {
      node.at_once = line.integer();
      line.expect("at once");
    }
    const auto outer = vars_;
    auto var = std::make_shared<ir::Var>(*new_var(name, node.end->type, VarKind::loop));
    var->lower = node.begin;
    var->upper = node.end;
    vars_[name] = var;
    node.var = var;
    node.body = body(depth + 1);
    vars_ = outer;
    return made(std::move(node));
  }

  Stmt branch(Line& line, int depth, bool is_guard) {
    If node;
    node.is_guard = is_guard;
    node.condition = expression(line);
    const auto outer = vars_;
    node.then = body(depth + 1);
    vars_ = outer;
    const bool has_else =
        next_ < lines_.size() && lines_[next_].depth == depth && lines_[next_].text == "else";
    if (has_else) {
      ++next_;
      node.otherwise = body(depth + 1);
      vars_ = outer;
    }
    return made(std::move(node));
  }

  /// "tile[8 * i .. +8]"
  Access access(Line& line) const {
    Access result;
    result.array = array(line);
    line.expect("[");
    const bool is_global = result.array->space == ArraySpace::global;
    if (!line.accept("open")) {
      result.offset = expression(line, is_global ? DType::i64 : DType::i32);
    }
    if (line.accept(".. +")) result.width = static_cast<int>(line.integer());
    line.expect("]");
    return result;
  }
  Slice slice(Line& line) const {
    const Access access = this->access(line);
    return {access.array, access.offset};
  }
  /// True if the last fact names the form that choose_access_forms gave the statement.
  bool facts(Line& line, Access& access) const {
    bool has_form = false;
    if (line.accept("at")) access.indices = list(line);
    while (line.peek(1) != "mbarrier" && line.accept(",")) {
      const std::string word = line.take();
      if (word == "if") {
        access.guard = expression(line);
      } else if (word == "proved") {
        access.bounds = Bounds::proved;
      } else if (word == "guarded") {
        access.bounds = Bounds::guarded;
      } else if (word == "unchecked") {
        access.bounds = Bounds::unchecked;
      } else if (const auto hint = kind_of(word, ir::CacheHint::no_allocate)) {
        access.cache = *hint;
      } else if (word == "by" || word == "kept") {
        line.expect(word == "by" ? "branch" : "for loops");
        has_form = true;
      } else {
        line.fail("'" + word + "' says nothing about an access");
      }
    }
    return has_form;
  }

  Stmt store(Line& line) {
    Store node;
    node.to = access(line);
    line.expect("=");
    if (node.to.width > 1) {
      node.from = slice(line);
    } else if (arrays_.contains(line.peek()) && line.peek(1) == "[") {
      node.from = slice(line);
    } else {
      node.value = expression(line, node.to.array->dtype);
    }
    node.kept_for_loops = facts(line, node.to);
    return made(std::move(node));
  }

  Stmt async_copy(Line& line) {
    AsyncCopy node;
    copied(line, node.from, node.to);
    return made(std::move(node));
  }
  void copied(Line& line, Access& from, Access& to) const {
    to = access(line);
    if (line.accept("at")) to.indices = list(line);
    line.expect("=");
    from = access(line);
    facts(line, from);
  }
  Stmt bulk_copy(Line& line) {
    BulkCopy node;
    copied(line, node.from, node.to);
    if (line.accept(", mbarrier")) node.mbarrier = access(line);
    node.expects = line.accept(", expected");
    return made(std::move(node));
  }
  Stmt tensor_copy(Line& line) {
    TensorCopy node;
    node.to = access(line);
    if (line.accept("at")) node.to.indices = list(line);
    line.expect("=");
    node.map = map_of(line);
    node.coordinates = list(line);
    if (line.accept(", mbarrier")) node.mbarrier = access(line);
    node.expects = line.accept(", expected");
    node.multicast = line.accept(", multicast");
    return made(std::move(node));
  }
  TensorMapRef map_of(Line& line) const {
    const std::string name = line.take();
    for (const TensorMapRef& map : program_.maps) {
      if (map->name == name) return map;
    }
    line.fail("no map '" + name + "'");
    return nullptr;
  }
  Stmt tensor_store(Line& line, bool adds) {
    TensorStore node;
    node.adds = adds;
    node.to.array = array(line);
    node.to.offset = ir::constant(DType::i64, 0);
    node.map = map_of(line);
    node.coordinates = list(line);
    node.to.indices = node.coordinates;
    line.expect("=");
    node.from = access(line);
    if (line.accept("at")) node.from.indices = list(line);
    return made(std::move(node));
  }
  Stmt mbarrier(Line& line) {
    if (line.accept("init")) return made(MbarrierInit{access(line)});
    if (line.accept("arrive")) {
      MbarrierArrive node{access(line)};
      node.after_copies = line.accept(", after copies");
      if (line.accept(", of block")) node.rank = expression(line);
      if (line.accept(", of the warp at")) {
        node.of_warp_at = static_cast<int>(line.integer());
        line.expect("blocks");
      }
      return made(std::move(node));
    }
    line.expect("wait");
    MbarrierWait node{access(line), {}};
    line.expect(", phase");
    node.phase = expression(line);
    node.of_cluster = line.accept(", of the cluster");
    return made(std::move(node));
  }

  Stmt atomic(Line& line, const std::string& old) {
    Atomic node{};
    const auto op = kind_of(line.take(), ir::AtomicOp::load);
    if (!op) line.fail("no such atomic operation");
    node.op = *op;
    node.to = access(line);
    const DType type = node.to.array->dtype;
    if (!old.empty()) node.old = new_var(old, type, VarKind::value);
    if (node.op != ir::AtomicOp::load) {
      line.expect("with");
      if (node.to.width > 1) {
        node.from = slice(line);
      } else {
        node.value = expression(line, type);
      }
    }
    if (line.accept("until")) node.until = expression(line, DType::boolean);
    if (line.accept("where")) node.compare = expression(line, type);
    if (line.accept(", acq_rel")) node.order = ir::MemoryOrder::acq_rel;
    facts(line, node.to);
    return made(std::move(node));
  }

  /// A statement that begins with a name: registers or a variable that get something.
  Stmt assignment(Line& line) {
    if (line.peek(1) == "[") return into_registers(line);
    const std::string name = line.take();
    std::optional<DType> type;
    if (line.accept(":")) type = dtype(line);
    line.expect("=");
    if (line.accept("load")) {
      Load node;
      node.at_use = line.accept("at use");
      node.in_pair = line.accept("in pair");
      node.from = access(line);
      node.by_branch = facts(line, node.from);
      node.var = new_var(name, node.from.array->dtype, VarKind::value);
      return made(std::move(node));
    }
    if (line.accept("atomic")) return atomic(line, name);
    if (line.peek(1) == "is" && line.peek(2) == "given") {
      const ArrayRef given = array(line);
      line.expect("is given");
      return made(Present{new_var(name, DType::boolean, VarKind::value), given});
    }
    const auto kind = kind_of(line.peek(), ir::CollectiveKind::match_any);
    if (kind && line.peek(1) == "(") return collective(line, name, *kind);
    const bool is_vouched = line.accept("uniform");
    const Expr value = expression(line, type);
    return made(Let{new_var(name, value->type, VarKind::value), value, is_vouched});
  }

  Stmt collective(Line& line, const std::string& name, ir::CollectiveKind kind) {
    Collective node{};
    node.kind = kind;
    line.take();
    line.expect("(");
    do {
      node.args.push_back(expression(line));
    } while (line.accept(","));
    line.expect(")");
    if (line.accept("width")) node.width = static_cast<int>(line.integer());
    using Kind = ir::CollectiveKind;
    const bool is_vote = kind == Kind::vote_any || kind == Kind::vote_all;
    const bool is_mask = kind == Kind::ballot || kind == Kind::match_any;
    const DType type = is_vote ? DType::boolean : is_mask ? DType::u32 : node.args[0]->type;
    node.var = new_var(name, type, VarKind::value);
    return made(std::move(node));
  }

  Stmt into_registers(Line& line) {
    const Access into = access(line);
    const Slice to{into.array, into.offset};
    if (line.accept("+ = mma") || line.accept("+= mma")) {
      const Slice a = slice(line);
      line.expect("*");
      return made(Mma{.c = to, .a = a, .b = slice(line)});
    }
    if (line.accept("+ = wgmma") || line.accept("+= wgmma")) return wgmma(line, to);
    line.expect("=");
    if (line.accept("wgmma")) return wgmma(line, to, true);
    if (line.accept("convert <")) {
      dtype(line);
      line.expect(">");
      Convert node{to, slice(line), into.width};
      if (line.accept(";")) {
        node.at_once = static_cast<int>(line.integer());
        line.expect("at once");
      }
      return made(std::move(node));
    }
    if (line.accept("packed")) return packed(line, to, into.width);
    line.expect("load");
    if (line.peek(1) == "matrices") {
      LoadMatrix node;
      node.into = to;
      node.count = static_cast<int>(line.integer());
      line.expect("matrices");
      node.transposed = line.accept("transposed");
      node.from = access(line);
      facts(line, node.from);
      return made(std::move(node));
    }
    Load node;
    node.into = to;
    node.from = access(line);
    node.by_branch = facts(line, node.from);
    return made(std::move(node));
  }

  Stmt packed(Line& line, const Slice& to, int width) {
    Packed node{};
    node.into = to;
    node.width = width;
    const std::string word = line.take();
    for (int op = 0; op <= static_cast<int>(ir::Op::abs); ++op) {
      if (ir::name(static_cast<ir::Op>(op)) == word) node.op = static_cast<ir::Op>(op);
    }
    node.of_magnitude = line.accept("of magnitude");
    line.expect("(");
    do {
      node.args.push_back(slice(line));
    } while (line.accept(","));
    line.expect(")");
    return made(std::move(node));
  }

  std::vector<TextLine> lines_;
  size_t next_ = 0;
  Program program_;
  std::map<std::string, VarRef> vars_;
  std::map<std::string, ArrayRef> arrays_;
};

}  // namespace

Program read_program(std::string_view text) {
  return ProgramReader(text).read();
}

Program read_body(int threads, std::string_view memory, std::string_view body) {
  std::string text = fmt::format(
      "program p: grid [1], {} threads\n  dim n: i32\n  block_x: block index x\n"
      "  thread: thread index\n",
      threads);
  for (const std::string_view part : {memory, body}) {
    for (const TextLine& line : lines_of(part)) {
      text += std::string(static_cast<size_t>(2 * line.depth + 2), ' ') + line.text + "\n";
    }
  }
  Program program = read_program(text);
  for (const ArrayRef& array : program.shared) {
    const int64_t end = array->shared_offset + (array->size * bits(array->dtype) + 7) / 8;
    program.shared_bytes = std::max(program.shared_bytes, end);
  }
  return program;
}

std::string body_text(const Program& program) {
  Program only = program;
  only.params.clear();
  only.blocks.clear();
  only.shared.clear();
  only.thread = nullptr;
  only.shared_bytes = 0;
  std::string result;
  const std::string whole = to_string(only);
  for (size_t at = whole.find('\n') + 1; at < whole.size(); at = whole.find('\n', at) + 1) {
    result += whole.substr(at + 2, whole.find('\n', at) - at - 1);
  }
  return result;
}

ir::VarRef variable_of(const Program& program, std::string_view name) {
  ir::VarRef found;
  walk(program.body, [&](const Stmt& stmt) {
    for_each_binding(stmt, [&](const VarRef& var, const Expr*) {
      if (!found && var->name == name) found = var;
    });
  });
  if (!found) throw std::invalid_argument(fmt::format("no variable '{}'", name));
  return found;
}

}  // namespace tessera::test
