// The answers of codegen/thread_ir/effects.h about statements, where passes rely on it.

#include "codegen/thread_ir/effects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/thread_ir/walk.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::codegen;

namespace {

ArrayRef array(std::string name, ArraySpace space, DType dtype = DType::f32) {
  auto result = std::make_shared<Array>();
  result->name = std::move(name);
  result->space = space;
  result->dtype = dtype;
  result->size = 64;
  return result;
}

ir::VarRef variable(std::string name) {
  auto var = std::make_shared<ir::Var>();
  var->name = std::move(name);
  return var;
}

/// Writes down all effects, one word each.
struct Receiver : EffectReceiver {
  void memory(const MemoryEffect& effect) override {
    say("{}{}{}{}{}:{}",
        effect.atomic   ? "updates"
        : effect.writes ? "writes"
                        : "reads",
        effect.in_flight ? effect.is_grouped ? "-in-flight-grouped" : "-in-flight" : "",
        effect.proxy == Proxy::async ? "-async" : "", effect.by == Group::warp ? "-by-warp" : "",
        effect.of_cluster ? "-of-cluster" : "", effect.access.array->name);
  }
  void registers(const RegisterEffect& effect) override {
    say("{}{}*{}:{}", effect.reads ? "reads" : "", effect.writes ? "writes" : "", effect.width,
        effect.slice.array->name);
  }
  void evaluates(const Expr& e) override { say("evaluates:{}", ir::to_string(e)); }
  void checks(const Expr& e) override { say("checks:{}", ir::to_string(e)); }
  void binds(const VarRef& var, const Expr*) override { say("binds:{}", var->name); }
  void declares(const ArrayRef& begun, bool) override { say("declares:{}", begun->name); }
  void orders(const Order& order) override {
    say("orders:{}/{}/{}/{}", static_cast<int>(order.kind), static_cast<int>(order.group),
        order.pending, name(order.work));
  }
  void observed() override { say("observed"); }
  void calls(const ir::ExternFunction& function) override { say("calls:{}", function.name); }
  void body(const Body& inner, bool repeats) override {
    say("body{}:{}", repeats ? "-repeats" : "", inner.size());
  }
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    words.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  std::vector<std::string> words;
};

Stmt stmt(auto node) {
  return {std::move(node), {}};
}

/// All effects of a statement, one word each.
std::string text_of(auto node) {
  Receiver receiver;
  effects(stmt(std::move(node)), receiver);
  return fmt::format("{}", fmt::join(receiver.words, " "));
}

const ArrayRef kGlobal = array("g", ArraySpace::global, DType::bf16);
const ArrayRef kShared = array("s", ArraySpace::shared, DType::bf16);
const ArrayRef kMbarriers = array("b", ArraySpace::shared, DType::u64);
const ArrayRef kRegisters = array("r", ArraySpace::registers);
const Expr kZero = ir::index(0);

Access at(const ArrayRef& memory) {
  return {.array = memory, .offset = kZero, .indices = {}, .width = 8, .guard = {}};
}

std::string order(Order::Kind kind, Group group, int pending = 0, Work work = Work::copies) {
  return fmt::format("orders:{}/{}/{}/{}", static_cast<int>(kind), static_cast<int>(group), pending,
                     name(work));
}

}  // namespace

TEST_CASE("a copy in pieces is in flight in its group") {
  CHECK(text_of(AsyncCopy{at(kGlobal), at(kShared)}) ==
        "reads-in-flight-grouped:g writes-in-flight-grouped:s");
  CHECK(text_of(Commit{}) == order(Order::Kind::commit, Group::thread));
  CHECK(text_of(Await{Work::copies, 2}) == order(Order::Kind::await, Group::thread, 2));
}

TEST_CASE("a bulk copy goes through the async proxy, in a group or to an mbarrier") {
  CHECK(text_of(BulkCopy{at(kGlobal), at(kShared)}) ==
        "reads-in-flight-grouped-async-by-warp:g writes-in-flight-grouped-async-by-warp:s");
  CHECK(text_of(BulkCopy{at(kGlobal), at(kShared), at(kMbarriers)}) ==
        "reads-in-flight-async-by-warp:g writes-in-flight-async-by-warp:s updates:b");
}

TEST_CASE("a multicast writes to, and completes in, all blocks of the cluster") {
  TensorCopy copy{std::make_shared<TensorMap>(), {kZero}, at(kShared), at(kMbarriers)};
  CHECK(text_of(copy) == "evaluates:0 writes-in-flight-async-by-warp:s updates:b");
  copy.multicast = true;
  CHECK(text_of(copy) ==
        "evaluates:0 writes-in-flight-async-by-warp-of-cluster:s updates-of-cluster:b");
}

TEST_CASE("a tensor map in memory is written and read by a warp") {
  auto tensor = std::make_shared<Array>();
  tensor->address = kZero;
  WriteMap write;
  write.tensor = tensor;
  write.extents = write.strides = {kZero};
  write.to = at(kGlobal);
  CHECK(text_of(write) == "evaluates:0 evaluates:0 evaluates:0 writes-by-warp:g " +
                              order(Order::Kind::proxy_fence, Group::thread));
  TensorCopy copy{std::make_shared<TensorMap>(), {kZero}, at(kShared), at(kMbarriers)};
  copy.map_at = at(kGlobal);
  CHECK(text_of(copy) == "evaluates:0 reads-by-warp:g writes-in-flight-async-by-warp:s updates:b");
}

TEST_CASE("a tensor store reads its tile and writes its tensor in flight, in groups of its own") {
  TensorStore store;
  store.coordinates = {kZero};
  store.from = at(kShared);
  store.to = at(kGlobal);
  CHECK(text_of(store) ==
        "evaluates:0 reads-in-flight-grouped-async-by-warp:s "
        "writes-in-flight-grouped-async-by-warp:g");
  store.adds = true;
  CHECK(text_of(store) ==
        "evaluates:0 reads-in-flight-grouped-async-by-warp:s "
        "updates-in-flight-grouped-async-by-warp:g");
  CHECK(text_of(Commit{Work::stores}) ==
        order(Order::Kind::commit, Group::thread, 0, Work::stores));
  CHECK(text_of(Await{Work::stores, 2, true}) ==
        order(Order::Kind::await, Group::thread, 2, Work::stores));
}

TEST_CASE("mbarrier statements change their mbarrier, and order threads") {
  CHECK(text_of(MbarrierInit{at(kMbarriers)}) == "writes:b");
  CHECK(text_of(MbarrierArrive{at(kMbarriers)}) ==
        "updates:b " + order(Order::Kind::arrive, Group::thread));
  CHECK(text_of(MbarrierArrive{at(kMbarriers), false, ir::index(1)}) ==
        "evaluates:1 updates-of-cluster:b " + order(Order::Kind::arrive, Group::thread));
  CHECK(text_of(MbarrierWait{at(kMbarriers), kZero}) ==
        "updates:b evaluates:0 " + order(Order::Kind::wait, Group::thread));
  // The arrival of a whole warp: its lanes have come.
  const std::string meets = order(Order::Kind::barrier, Group::warp);
  const std::string arrives = order(Order::Kind::arrive, Group::thread);
  CHECK(text_of(MbarrierArrive{.at = at(kMbarriers), .of_warp_at = 1}) ==
        meets + " updates:b " + arrives);
  CHECK(text_of(MbarrierArrive{.at = at(kMbarriers), .of_warp_at = 2}) ==
        meets + " updates-of-cluster:b " + arrives);
  CHECK(text_of(Fence{}) == order(Order::Kind::proxy_fence, Group::thread));
}

TEST_CASE("matrix statements need the warp together and order no memory") {
  const std::string together = order(Order::Kind::converge, Group::warp);
  CHECK(text_of(LoadMatrix{at(kShared), {kRegisters, kZero}, 4, false}) ==
        "reads-by-warp:s writes*8:r " + together);
  const Slice c{kRegisters, kZero};
  const Slice a{array("a", ArraySpace::registers, DType::bf16), kZero};
  const Slice b{array("b", ArraySpace::registers, DType::bf16), kZero};
  CHECK(text_of(Mma{.c = c, .a = a, .b = b}) == "readswrites*4:r reads*8:a reads*4:b " + together);
}

TEST_CASE("barriers order the group that meets at them") {
  using Kind = Order::Kind;
  CHECK(text_of(Barrier{BarrierScope::warp}) == order(Kind::barrier, Group::warp));
  CHECK(text_of(Barrier{BarrierScope::named, 0, 1, 64}) == order(Kind::barrier, Group::role));
  CHECK(text_of(Barrier{BarrierScope::named_arrive, 0, 1, 64}) == order(Kind::arrive, Group::role));
  CHECK(text_of(Barrier{}) == order(Kind::barrier, Group::block));
  CHECK(text_of(Barrier{BarrierScope::cluster}) == order(Kind::barrier, Group::cluster));
  CHECK(text_of(Barrier{BarrierScope::cluster_arrive}) == order(Kind::arrive, Group::cluster));
  CHECK(text_of(Barrier{BarrierScope::cluster_wait}) == order(Kind::wait, Group::cluster));
  CHECK(text_of(Barrier{BarrierScope::grid}) == order(Kind::barrier, Group::grid));
  const VarRef v = variable("v");
  CHECK(text_of(Collective{v, ir::CollectiveKind::ballot, {kZero}}) ==
        "evaluates:0 binds:v " + order(Kind::exchange, Group::warp));
  CHECK(text_of(Return{kZero}) == "evaluates:0 " + order(Kind::leave, Group::thread));
}

TEST_CASE("a call of an impure function is observed, one that synchronises is a barrier") {
  const auto function = [](bool pure, bool synchronises) {
    auto result = std::make_shared<ir::ExternFunction>();
    result->name = "f";
    result->pure = pure;
    result->synchronises = synchronises;
    return result;
  };
  const VarRef v = variable("v");
  CHECK(text_of(ExternCall{v, function(true, false), {kZero}}) == "evaluates:0 binds:v calls:f");
  CHECK(text_of(ExternCall{v, function(false, false), {kZero}}) ==
        "evaluates:0 binds:v calls:f observed");
  CHECK(text_of(ExternCall{v, function(false, true), {kZero}}) ==
        "evaluates:0 binds:v calls:f observed " + order(Order::Kind::barrier, Group::block));
}

TEST_CASE("what only the executor evaluates is no expression of the GPU's") {
  const Expr one = ir::index(1);
  CHECK(text_of(Assert{one, "", Otherwise::trap}) == "checks:1");
  CHECK(text_of(Assert{one, "", Otherwise::stop}) == "evaluates:1 observed");
  CHECK(text_of(CheckIndices{kShared, {one}, {{one, kZero, one, -1}}}) ==
        "checks:1 checks:1 checks:0 checks:1");
}

TEST_CASE("a relaxed atomic orders nothing else, an acq_rel one its thread") {
  Atomic atomic{ir::AtomicOp::add, at(kGlobal), kZero, {}, {}};
  CHECK(text_of(atomic) == "updates:g evaluates:0");
  atomic.old = variable("old");
  atomic.order = ir::MemoryOrder::acq_rel;
  CHECK(text_of(atomic) ==
        "updates:g evaluates:0 binds:old " + order(Order::Kind::fence, Group::thread));
  // A wait evaluates its condition of what it has found.
  atomic.op = ir::AtomicOp::load;
  atomic.value = {};
  atomic.until = kZero;
  CHECK(text_of(atomic) ==
        "updates:g binds:old evaluates:0 " + order(Order::Kind::fence, Group::thread));
}

TEST_CASE("a loop repeats its body, a branch does not, and walk() enters both") {
  const VarRef i = variable("i");
  For loop{i, kZero, kZero, kZero, false, {stmt(Barrier{BarrierScope::warp})}};
  CHECK(text_of(loop) == "evaluates:0 evaluates:0 evaluates:0 binds:i body-repeats:1");
  If branch{kZero, {stmt(loop)}, {stmt(Barrier{}), stmt(Comment{"end"})}};
  CHECK(text_of(branch) == "evaluates:0 body:1 body:2");
  Body body = {stmt(branch)};
  int barriers = 0, statements = 0;
  walk(body, [&](const Stmt& stmt) {
    ++statements;
    if (has_order(stmt, Order::Kind::barrier)) ++barriers;
  });
  CHECK(statements == 5);
  CHECK(barriers == 2);
  CHECK(any_in(body[0], [](const Stmt& s) { return std::holds_alternative<Comment>(s.node); }));
}

TEST_CASE("a pass may change an access through for_each_access") {
  Stmt store = stmt(Store{at(kShared), kZero, {}});
  for_each_access(store, [](Access& access, bool writes) {
    if (writes) access.width = 2;
  });
  CHECK(std::get<Store>(store.node).to.width == 2);
}
