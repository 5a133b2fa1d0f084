#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "codegen/thread_ir/walk.h"
#include "codegen/waits/product_waits.h"

namespace tessera::codegen {
namespace {

using StmtPlace = Body::iterator;

bool is_mark(const Stmt& stmt) {
  const auto* print = std::get_if<Print>(&stmt.node);
  return print != nullptr && print->is_mark();
}

/// The end of a product: the wait for its sums and, of the last one of a take, the arrival that frees the stage. Marks may
/// stand between.
struct End {
  const Await* wait = nullptr;  // null: there is none here
  StmtPlace arrival = {};       // the wait itself if there is none
  const Array* ring = nullptr;
  std::vector<const Array*> registers = {};  // sums and left operands
  std::vector<Slice> left = {};              // left operands of this product
  int64_t clocks = 0;                        // that the instructions take
  bool reads_rings = true;                   // operands in shared memory are tiles of rings
};

/// The last product of a take is awaited above branches and exchanges of values between lanes unless it takes as long as these.
/// One H200, attention_fwd causal with heads of 64, where p v takes 256 clocks: 703 us, with a late wait 739.
constexpr int64_t kClocksOfExchange = 512;

End end_at(StmtPlace begin, StmtPlace at, StmtPlace end) {
  const auto* wait = std::get_if<Await>(&at->node);
  if (wait == nullptr || !wait->sum.array || wait->work != Work::products) return {};
  End result;
  result.wait = wait, result.arrival = at, result.registers = {wait->sum.array.get()};
  const StmtPlace next = std::find_if_not(at + 1, end, is_mark);
  const auto* arrive = next == end ? nullptr : std::get_if<MbarrierArrive>(&next->node);
  if (arrive != nullptr && arrive->at.array->ring_part == Array::RingPart::empty) {
    result.arrival = next, result.ring = arrive->at.array.get();
  }
  for (StmtPlace i = at; i-- != begin;) {
    const auto* mma = std::get_if<Mma>(&i->node);
    if (mma == nullptr) continue;
    if (mma->a.array) result.registers.push_back(mma->a.array.get());
    if (mma->c.array != wait->sum.array) continue;
    result.clocks += mma->columns() / 2;
    for (const SharedMatrix* operand : {&mma->left, &mma->right}) {
      const ArrayRef& array = operand->first.array;
      result.reads_rings = result.reads_rings && (!array || array->ring >= 0);
    }
    if (mma->a.array) result.left.push_back(mma->a);
  }
  return result;
}

/// The statements that an end passes.
struct Passed {
  int commits = 0;    // of products
  int64_t turns = 0;  // waits for a stage of the same ring
  bool is_worth_it = false;
  bool exchanges = false;  // values of lanes
  ArrayRef written = {};   // the registers that were written last
};

/// The registers of 4 bytes that a statement writes last, or null: no counter of a ring, and none of an inner body's own.
ArrayRef last_written(const Stmt& stmt) {
  ArrayRef found;
  std::set<const Array*> inner;
  any_in(stmt, [&](const Stmt& part) {
    if (const auto* declare = std::get_if<Declare>(&part.node)) inner.insert(declare->array.get());
    const auto* store = std::get_if<Store>(&part.node);
    if (store == nullptr) return false;
    const ArrayRef& to = store->to.array;
    const bool counts = to->space == ArraySpace::registers && to->ring < 0 && bytes(to->dtype) == 4;
    if (counts && !inner.contains(to.get())) found = to;
    return false;
  });
  return found;
}

/// True for a loop of which every store is of a constant.
bool only_stores_constants(const Stmt& stmt) {
  bool stores = false;
  const bool others = any_in(stmt, [&](const Stmt& inner) {
    const auto* store = std::get_if<Store>(&inner.node);
    stores |= store != nullptr;
    return store != nullptr && !(store->value && ir::is_constant(store->value));
  });
  return std::holds_alternative<For>(stmt.node) && stores && !others;
}

class WaitSinker {
 public:
  explicit WaitSinker(std::vector<std::string>& notes) : notes_(notes) {}

  void visit(Body& body) {
    for (Stmt& stmt : body) {
      for_each_body(stmt, [&](Body& inner) { visit(inner); });
    }
    // The last one first: it makes way for those before it.
    for (auto i = static_cast<std::ptrdiff_t>(body.size()); i-- > 0;) {
      const StmtPlace at = body.begin() + i;
      const End end = end_at(body.begin(), at, body.end());
      if (end.wait != nullptr) sink(at, body.end(), end);
    }
  }

 private:
  void sink(StmtPlace at, StmtPlace body_end, const End& end) {
    Passed passed;
    StmtPlace to = end.arrival + 1;
    while (to != body_end && passes(*to, end, passed)) ++to;
    if (passed.commits == 0 && !passed.is_worth_it) return;
    auto& await = std::get<Await>(at->node);
    await.pending += passed.commits;
    if (passed.exchanges && passed.written) {
      // The other half fills the gaps of what follows. One H200, attention_fwd with heads of 128: 938 us where the assembler
      // moves the wait up, 900 below all, 896 below half.
      await.above = {passed.written, ir::index(0)};
      await.above_width = (passed.written->size + 1) / 2;
    }
    // Without a product it passed a loop: see is_worth_it.
    const std::string later = passed.commits == 0 ? "a loop over other registers"
                              : passed.commits == 1
                                  ? "the next product"
                                  : fmt::format("{} later products", passed.commits);
    notes_.push_back(fmt::format("{}: awaited below {}", to_string(at->loc), later));
    if (end.ring == nullptr) {
      std::rotate(at, at + 1, to);
      return;
    }
    const StmtPlace wait = std::rotate(at, at + 1, end.arrival);  // the marks stay
    std::rotate(wait, wait + 2, to);
  }

  bool passes(const Stmt& stmt, const End& end, Passed& passed) const {
    const bool may = !any_in(stmt, [&](const Stmt& inner) { return !may_pass(inner, end); });
    const bool repeats =
        std::holds_alternative<For>(stmt.node) && any_in(stmt, is_of_ring_or_product);
    // Below zeros for the sums of the next product the assembler would wait once more (C7517).
    const bool is_fill = end.ring == nullptr && only_stores_constants(stmt);
    if (!may || repeats || is_fill) return false;
    if (std::holds_alternative<Commit>(stmt.node)) {
      ++passed.commits;
      passed.written = nullptr;  // computed above that product
    } else if (std::holds_alternative<MbarrierWait>(stmt.node)) {
      if (end.ring == nullptr || passed.turns + 1 >= end.ring->size) return false;
      ++passed.turns;
    } else if (std::holds_alternative<For>(stmt.node)) {
      passed.is_worth_it = true;  // work on other sums
    }
    passed.exchanges |= any_in(
        stmt, [](const Stmt& inner) { return std::holds_alternative<Collective>(inner.node); });
    if (ArrayRef written = last_written(stmt)) passed.written = std::move(written);
    return true;
  }

  /// Products and turns are counted where they stand alone.
  static bool is_of_ring_or_product(const Stmt& stmt) {
    return is_of_product(stmt) || std::holds_alternative<MbarrierWait>(stmt.node);
  }
  /// True if nothing that the role writes meets the operands: they are tiles of rings, written again after an arrival, which
  /// stays below. A product that ends its take is not held up: its stage would be free later.
  static bool is_inside_take(const End& end) { return end.reads_rings && end.ring == nullptr; }
  /// True for what lets threads of a role write shared memory, by themselves or by the copy engine: their barrier, the fence
  /// and the wait before it.
  static bool orders_threads(const Stmt& stmt) {
    const auto* barrier = std::get_if<Barrier>(&stmt.node);
    const auto* wait = std::get_if<Await>(&stmt.node);
    const auto* fence = std::get_if<Fence>(&stmt.node);
    return (barrier != nullptr && barrier->is_named()) ||
           (wait != nullptr && wait->work == Work::stores) ||
           (fence != nullptr && fence->of == Fence::Of::shared);
  }
  /// True for a product that reads registers which the one to wait for reads, so that nothing is written between them.
  static bool shares_left_operand(const Mma& mma, const End& end) {
    return mma.a.array && std::any_of(end.left.begin(), end.left.end(), [&](const Slice& left) {
             return left.array == mma.a.array && ir::equal(left.base, mma.a.base);
           });
  }
  static bool may_pass(const Stmt& stmt, const End& end) {
    const auto* const mma = std::get_if<Mma>(&stmt.node);
    bool uses_registers = false;
    for_each_array(stmt, [&](const ArrayRef& array) {
      if (mma != nullptr && array != mma->c.array && shares_left_operand(*mma, end)) return;
      const auto& of_product = end.registers;
      uses_registers = uses_registers || std::find(of_product.begin(), of_product.end(),
                                                   array.get()) != of_product.end();
    });
    if (uses_registers) return false;
    if (is_of_product(stmt)) return !is_product_wait(stmt);
    if (const auto* store = std::get_if<Store>(&stmt.node)) {
      const Array& to = *store->to.array;
      if (to.space == ArraySpace::shared) return is_inside_take(end) && to.ring < 0;
      return to.space == ArraySpace::registers;
    }
    if (is_inside_take(end) && orders_threads(stmt)) return true;
    if (const auto* load = std::get_if<Load>(&stmt.node)) {
      return load->from.array->space != ArraySpace::global;
    }
    if (const auto* wait = std::get_if<MbarrierWait>(&stmt.node)) {
      return end.ring != nullptr && wait->at.array->ring == end.ring->ring &&
             wait->at.array->ring_part == Array::RingPart::full;
    }
    return std::holds_alternative<Let>(stmt.node) || std::holds_alternative<Comment>(stmt.node) ||
           std::holds_alternative<Declare>(stmt.node) ||
           std::holds_alternative<Convert>(stmt.node) || std::holds_alternative<For>(stmt.node) ||
           ((std::holds_alternative<If>(stmt.node) ||
             std::holds_alternative<Collective>(stmt.node)) &&
            (end.ring == nullptr || end.clocks >= kClocksOfExchange));
  }

  std::vector<std::string>& notes_;
};

}  // namespace

void sink_products(Program& program, std::vector<std::string>& notes) {
  WaitSinker(notes).visit(program.body);
}

}  // namespace tessera::codegen
