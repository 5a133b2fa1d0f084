#include "codegen/verify/thread_ir.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <utility>

#include "codegen/analysis/shared_lifetimes.h"
#include "codegen/analysis/uniform.h"
#include "codegen/rule.h"
#include "codegen/thread_ir/tensor_copy_rules.h"
#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

class Verifier : EffectReceiver {
 public:
  Verifier(const Program& program, const Expectations& expected, std::string_view after)
      : program_(program), expected_(expected), after_(after) {}

  void run(const std::vector<VarRef>& uniform) {
    if (expected_.is_shared_placed) {
      walk(program_.body, [&](const Stmt& stmt) { require_offsets(stmt); });
      uniform_.emplace(program_, UniformValues::Over::block, uniform);
      const std::string meet = expected_.are_bulk_copies_lowered ? "" : meeting_in_arena(program_);
      require(meet.empty(), "shared arrays in use together lie apart", meet);
    }
    for (const Param& param : program_.params) {
      if (param.var) vars_.insert(param.var.get());
      if (param.array) arrays_.insert(param.array.get());
    }
    for (const VarRef& block : program_.blocks) vars_.insert(block.get());
    if (program_.thread) vars_.insert(program_.thread.get());
    for (const ArrayRef& array : program_.shared) {
      arrays_.insert(array.get());
      if (expected_.is_shared_placed) require_place(*array);
    }
    verify_body(program_.body);
    require(!is_open_, "a group of accesses in flight is never closed", "the end");
  }

 private:
  // ---- reports
  template <class What>
  void require(bool holds, std::string_view rule, const What& what) const {
    require_rule(holds, after_, rule, what, loc_);
  }

  // ---- scopes
  void verify_body(const Body& body) {
    is_top_level_ = &body == &program_.body;
    for (const Stmt& stmt : body) {
      verify_stmt(stmt);
      is_top_level_ = &body == &program_.body;
    }
    for (const Stmt& stmt : body) {
      for_each_binding(stmt, [&](const VarRef& var, const Expr*) { vars_.erase(var.get()); });
      for_each_declaration(stmt, [&](const ArrayRef& array) { arrays_.erase(array.get()); });
    }
  }

  void verify_stmt(const Stmt& stmt) {
    loc_ = stmt.loc;
    by_structure(
        stmt, [&](const For& loop) { verify_loop(loop); },
        [&](const If& branch) { verify_branch(branch); },
        [&](const RoleBodies& bodies) { verify_roles(bodies); },
        [&] {
          verify_mbarrier(stmt);
          effects(stmt, *this);
        });
    loc_ = stmt.loc;
    verify_types(stmt);
    verify_barrier(stmt);
    verify_group_mma(stmt);
  }

  void verify_loop(const For& loop) {
    for (const Expr& e : {loop.begin, loop.end, loop.step}) {
      evaluates(e);
      require(is_integer(e->type), "the bounds of a loop are integers",
              [&] { return to_string(e); });
    }
    if (ir::is_constant(loop.step)) {
      require(loop.step->integer > 0, "the step of a loop is positive", loop.var->name);
    }
    if (loop.unrolled) {
      const bool constant =
          ir::is_constant(loop.begin) && ir::is_constant(loop.end) && ir::is_constant(loop.step);
      require(constant, "an unrolled loop has constant bounds", loop.var->name);
    }
    for (size_t i = 0; i < loop.body.size(); ++i) {
      require(!std::holds_alternative<Break>(loop.body[i].node) ||
                  (!loop.unrolled && i + 1 == loop.body.size()),
              "a break ends the body of a loop that is not unrolled", loop.var->name);
    }
    const bool together = together_;
    together_ = together && is_uniform(loop.begin) && is_uniform(loop.end) && is_uniform(loop.step);
    if (const Break* leave = break_of(loop)) together_ = together_ && is_uniform(leave->condition);
    vars_.insert(loop.var.get());
    const bool was_open = is_open_, was_in_flight = in_flight_;
    verify_body(loop.body);
    // A round meets what the one before left open.
    if (is_open_ && !was_open) verify_body(loop.body);
    in_flight_ = in_flight_ || was_in_flight;  // the loop may have no rounds
    vars_.erase(loop.var.get());
    together_ = together;
  }

  void verify_branch(const If& branch) {
    evaluates(branch.condition);
    const bool together = together_, was_open = is_open_, was_in_flight = in_flight_;
    together_ = together && is_uniform(branch.condition);
    verify_body(branch.then);
    const bool then_open = std::exchange(is_open_, was_open);
    const bool then_in_flight = std::exchange(in_flight_, was_in_flight);
    verify_body(branch.otherwise);
    is_open_ = is_open_ || then_open;
    in_flight_ = in_flight_ || then_in_flight;
    together_ = together;
  }

  void verify_roles(const RoleBodies& bodies) {
    require(is_top_level_ && !had_roles_, "roles stand once, at the top level", "roles");
    had_roles_ = true;
    require(!is_open_ && !in_flight_, "no copies are in flight when roles begin", "roles");
    for (size_t i = 0; i < bodies.roles.size(); ++i) {
      const RoleBodies::Role& role = bodies.roles[i];
      const ThreadGroup& threads = role.threads;
      const std::string what = fmt::format("'{}' is threads {} .. +{} of {}", role.name,
                                           threads.first, threads.count, program_.threads);
      require(threads.is_whole_warps() && threads.count > 0, "a role is whole warps", what);
      require(threads.first >= 0 && threads.end() <= program_.threads,
              "a role is inside of the block", what);
      for (size_t other = 0; other < i; ++other) {
        require(!threads.meets(bodies.roles[other].threads), "roles are disjoint",
                fmt::format("{}, and so is '{}' in part", what, bodies.roles[other].name));
      }
      if (role.thread) binds(role.thread, nullptr);
      const bool was_open = is_open_;
      role_ = &role;
      verify_body(role.body);
      role_ = nullptr;
      require(is_open_ == was_open, "a role closes its accesses in flight", what);
      if (role.thread) vars_.erase(role.thread.get());
    }
  }

  // ---- effects of one statement
  void memory(const MemoryEffect& effect) override {
    const Access& access = effect.access;
    const Array& array = *access.array;
    require_known(array);
    const bool is_shared = array.space == ArraySpace::shared || array.space == ArraySpace::cluster;
    const bool may_be_open = is_shared && !expected_.is_shared_placed;
    require(access.offset || may_be_open, "an access has an offset", array.name);
    if (access.offset) {
      evaluates(access.offset);
      const DType wanted = array.space == ArraySpace::global ? DType::i64 : DType::i32;
      require(access.offset->type == wanted, "an offset is i64 in global memory, else i32",
              [&] { return fmt::format("{}[{}]", array.name, to_string(access.offset)); });
    }
    if (access.guard) {
      evaluates(access.guard);
      require(access.guard->type == DType::boolean, "a guard is boolean",
              [&] { return to_string(access.guard); });
    }
    require(access.width > 0, "an access has elements", array.name);
    require(!effect.writes || !array.read_only, "nothing is stored to what is read only",
            array.name);
    if (array.space == ArraySpace::registers) require_inside(array, access.offset, access.width);
    if (effect.is_grouped) is_open_ = true;
    if (array.is_mbarriers()) {
      require(is_at_mbarrier_, "mbarriers are no data", array.name);
      if (!effect.atomic) initialised_.insert(&array);
      require(initialised_.contains(&array), "an mbarrier is initialised before it is used",
              array.name);
    }
  }
  void registers(const RegisterEffect& effect) override {
    const Array& array = *effect.slice.array;
    require_known(array);
    require(array.space == ArraySpace::registers, "a slice is of registers", array.name);
    evaluates(effect.slice.base);
    require_inside(array, effect.slice.base, effect.width);
  }
  void evaluates(const Expr& e) override {
    std::vector<VarRef> used;
    ir::collect_vars(e, used);
    for (const VarRef& var : used) {
      require(vars_.contains(var.get()), "a variable is defined before it is used",
              [&] { return fmt::format("{} in {}", var->name, to_string(e)); });
    }
  }
  void checks(const Expr& e) override { evaluates(e); }
  void binds(const VarRef& var, const Expr* value) override {
    require(var->id >= 0 && var->id < program_.num_vars, "variables are numbered below num_vars",
            var->name);
    require(value == nullptr || (*value)->type == var->type, "a value has the dtype of its name",
            var->name);
    vars_.insert(var.get());
  }
  void declares(const ArrayRef& array, bool) override { arrays_.insert(array.get()); }
  void orders(const Order& order) override {
    const bool meets = order.kind == Order::Kind::barrier || order.kind == Order::Kind::arrive ||
                       order.kind == Order::Kind::wait;
    require(role_ == nullptr || !meets || order.group < Group::block,
            "no barrier of the block stands in a role", role_ == nullptr ? "" : role_->name);
    require(role_ == nullptr || order.kind != Order::Kind::leave,
            "no thread leaves the kernel in a role", role_ == nullptr ? "" : role_->name);
    const bool is_of_copies = order.work == Work::copies;
    if (order.kind == Order::Kind::commit) {
      in_flight_ = in_flight_ || (is_open_ && is_of_copies);
      is_open_ = false;
    }
    if (order.kind != Order::Kind::await) return;
    require(!is_open_, "a group of accesses in flight is closed before a wait", "a wait");
    if (is_of_copies) in_flight_ = in_flight_ && order.pending > 0;
  }

  // ---- rules
  void require_offsets(const Stmt& stmt) {
    loc_ = stmt.loc;
    for_each_access(stmt, [&](const Access& access, bool) {
      require(static_cast<bool>(access.offset), "an access has an offset", access.array->name);
    });
  }
  bool is_uniform(const Expr& e) const { return !uniform_ || (*uniform_)(e); }
  void require_known(const Array& array) const {
    const bool may_follow =
        array.space == ArraySpace::registers && !expected_.are_registers_declared;
    require(may_follow || arrays_.contains(&array), "an array is declared before it is used",
            array.name);
  }
  void require_inside(const Array& array, const Expr& base, int64_t width) const {
    if (!base || !ir::is_constant(base)) return;
    require(base->integer >= 0 && base->integer + width <= array.size,
            "registers are inside of their array", [&] {
              return fmt::format("{}[{} .. +{}] of {}", array.name, base->integer, width,
                                 array.size);
            });
  }
  void require_place(const Array& array) const {
    const int64_t end = array.shared_offset + (array.size * bits(array.dtype) + 7) / 8;
    require(array.shared_offset >= 0 && end <= program_.shared_bytes,
            "a shared array is inside of the arena",
            fmt::format("{} ends at byte {} of {}", array.name, end, program_.shared_bytes));
    if (!array.is_mbarriers()) return;
    constexpr int kMostArrivals = (1 << 20) - 1;
    require(array.shared_offset % 8 == 0 && array.arrivals <= kMostArrivals,
            "mbarriers are aligned to 8 bytes and count to 2^20 - 1", array.name);
  }

  void verify_types(const Stmt& stmt) const {
    const std::string_view rule = broken_rule(stmt, program_, expected_.is_shared_placed);
    require(rule.empty(), rule, "a tensor copy");
    if (const auto* load = std::get_if<Load>(&stmt.node); load != nullptr && load->var) {
      require(load->var->type == load->from.array->dtype, "a load has the dtype of its array",
              load->var->name);
    } else if (const auto* store = std::get_if<Store>(&stmt.node); store && store->value) {
      require(store->value->type == store->to.array->dtype, "a store has the dtype of its array",
              [&] {
                return fmt::format("{} into {}", to_string(store->value), store->to.array->name);
              });
    } else if (const auto* atomic = std::get_if<Atomic>(&stmt.node)) {
      verify_atomic(*atomic);
    } else if (const auto* branch = std::get_if<If>(&stmt.node)) {
      require(branch->condition->type == DType::boolean, "a condition is boolean",
              [&] { return to_string(branch->condition); });
    } else if (const auto* convert = std::get_if<Convert>(&stmt.node)) {
      require(convert->at_once > 0 && convert->width % convert->at_once == 0,
              "a conversion takes whole groups of elements", convert->into.array->name);
    } else if (const auto* copy = std::get_if<AsyncCopy>(&stmt.node)) {
      verify_copy(*copy);
    } else if (const auto* bulk = std::get_if<BulkCopy>(&stmt.node)) {
      verify_copy(*bulk);
      require(bulk->bytes() % 16 == 0, "a bulk copy moves whole pieces of 16 bytes",
              fmt::format("{} bytes", bulk->bytes()));
    } else if (const auto* wait = std::get_if<MbarrierWait>(&stmt.node)) {
      require(is_integer(wait->phase->type), "a phase is an integer", to_string(wait->phase));
    }
  }
  void verify_atomic(const Atomic& atomic) const {
    const Array& array = *atomic.to.array;
    if (atomic.to.width == 1) {
      const bool loads = atomic.op == ir::AtomicOp::load;
      require(loads ? !atomic.value : atomic.value && atomic.value->type == array.dtype,
              "an atomic has the dtype of its array", array.name);
      return;
    }
    require(atomic.from.array && atomic.from.array->dtype == array.dtype && !atomic.value &&
                !atomic.old && atomic.op == ir::AtomicOp::add &&
                atomic.order == ir::MemoryOrder::relaxed && has_wide_sum(array.space, array.dtype),
            "an atomic of several elements is a relaxed sum of floats that has such an instruction",
            array.name);
  }
  template <class Copy>
  void verify_copy(const Copy& copy) const {
    require(copy.from.array->dtype == copy.to.array->dtype && !copy.to.guard,
            "a copy in flight neither converts nor skips", copy.to.array->name);
  }

  /// Mbarrier statements name mbarriers, other statements do not.
  void verify_mbarrier(const Stmt& stmt) {
    const Access* at = nullptr;
    if (const auto* init = std::get_if<MbarrierInit>(&stmt.node)) at = &init->at;
    if (const auto* arrive = std::get_if<MbarrierArrive>(&stmt.node)) at = &arrive->at;
    if (const auto* wait = std::get_if<MbarrierWait>(&stmt.node)) at = &wait->at;
    if (const auto* copy = std::get_if<BulkCopy>(&stmt.node)) {
      if (copy->mbarrier.array) at = &copy->mbarrier;
      require(at != nullptr || role_ == nullptr, "a bulk copy of a role names its mbarrier",
              copy->to.array->name);
      const bool is_lowered = at != nullptr && !copy->from.guard;
      require(is_lowered || !expected_.are_bulk_copies_lowered,
              "a bulk copy names its mbarrier and has no guard", copy->to.array->name);
    }
    if (const auto* copy = std::get_if<TensorCopy>(&stmt.node)) {
      if (copy->mbarrier.array) at = &copy->mbarrier;
      require(at != nullptr || !expected_.are_bulk_copies_lowered,
              "a tensor copy names its mbarrier", copy->to.array->name);
    }
    is_at_mbarrier_ = at != nullptr;
    if (at == nullptr) return;
    const Array& array = *at->array;
    require(array.is_mbarriers() && array.space == ArraySpace::shared && array.dtype == DType::u64,
            "an mbarrier statement names mbarriers", array.name);
  }

  void verify_group_mma(const Stmt& stmt) const {
    const auto* mma = std::get_if<Mma>(&stmt.node);
    if (mma == nullptr || !mma->is_of_group()) return;
    const ThreadGroup group = role_ == nullptr ? program_.block() : role_->threads;
    require(group.first % 128 + group.count % 128 == 0,
            "a product of four warps is issued by groups of 128 threads",
            fmt::format("threads {} .. +{}", group.first, group.count));
    require(together_, "all threads of the block come to a product of four warps",
            mma->c.array->name);
    require((mma->a.array == nullptr) != (mma->left.first.array == nullptr),
            "the left operand is in registers or in shared memory", mma->c.array->name);
    for (const SharedMatrix* matrix : {&mma->left, &mma->right}) {
      const Array* array = matrix->first.array.get();
      if (array == nullptr || !expected_.is_shared_placed) continue;
      const int64_t span = array->swizzle ? array->swizzle->panel * bits(array->dtype) / 8 : 0;
      require(span == 32 || span == 64 || span == 128,
              "an operand lies in panels of 32, 64 or 128 bytes", array->name);
      require(array->shared_offset % (8 * span) == 0,
              "the panels of an operand begin at a multiple of eight rows", array->name);
    }
  }

  void verify_barrier(const Stmt& stmt) const {
    const auto* barrier = std::get_if<Barrier>(&stmt.node);
    if (barrier == nullptr) return;
    if (barrier->scope == BarrierScope::block &&
        barrier->reason != 0) {  // the author's are check_convergence's
      require(together_, "all threads of the block come to a barrier", "a barrier");
    }
    if (!barrier->is_named()) return;
    const std::string what =
        fmt::format("named barrier {} of {} threads", barrier->id, barrier->threads);
    require(barrier->id >= 1 && barrier->id <= kMaxNamedBarriers,
            "a named barrier has an id of 1 to 15", what);
    require(barrier->threads > 0 && barrier->threads % kThreadsPerWarp == 0 &&
                barrier->threads <= program_.threads,
            "a named barrier counts whole warps of the block", what);
    if (barrier->reason == 0) return;
    require(role_ != nullptr && barrier->threads == role_->threads.count && together_,
            "all threads of the role come to a barrier", what);
  }

  const Program& program_;
  const Expectations expected_;
  const std::string_view after_;
  std::optional<UniformValues> uniform_;  // needs the offsets of shared accesses
  std::set<const ir::Var*> vars_;         // in scope
  std::set<const Array*> arrays_;
  std::set<const Array*> initialised_;      // mbarriers
  bool is_at_mbarrier_ = false;             // the statement looked at names some
  const RoleBodies::Role* role_ = nullptr;  // around the statement
  bool is_top_level_ = true, had_roles_ = false;
  bool together_ = true;    // all threads of the block, or of the role, come here
  bool is_open_ = false;    // accesses in flight that no group has yet
  bool in_flight_ = false;  // a closed group may be in flight: no wait for all groups came since
  SourceLoc loc_;           // of the statement looked at
};

}  // namespace

void verify(const Program& program, const std::vector<VarRef>& uniform,
            const Expectations& expected, std::string_view after) {
  Verifier(program, expected, after).run(uniform);
}

}  // namespace tessera::codegen
