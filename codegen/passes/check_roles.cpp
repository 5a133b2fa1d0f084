#include "codegen/passes/check_roles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "codegen/analysis/round_count.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"
#include "dsl/base/target_facts.h"
#include "dsl/ir/registers.h"

namespace tessera::codegen {
namespace {

class RoleCheck {
 public:
  explicit RoleCheck(const ir::Kernel& kernel) : kernel_(kernel), rings_(kernel.rings.size()) {
    for (size_t ring = 0; ring < kernel.rings.size(); ++ring) {
      for (const ir::BufferRef& tile : kernel.rings[ring].tiles) {
        ring_of_[tile->id] = static_cast<int>(ring);
      }
    }
  }

  void run() {
    visit(kernel_.body, 1);
    for (size_t ring = 0; ring < rings_.size(); ++ring) check_counts(ring);
  }

 private:
  using Role = ir::Roles::Role;
  /// A number of times; nothing = known at run time alone.
  using Count = std::optional<int64_t>;
  struct Use {
    const Role* role = nullptr;  // null = all threads
    SourceLoc loc;
    bool writes = false;
    bool by_author = false;  // in manual_sync: the author orders it
  };
  struct Turns {
    const Role* role = nullptr;
    Count count = 0;
    SourceLoc loc;
  };
  struct RingUse {
    Turns fills;
    std::vector<Turns> takes;  // by role
  };

  [[noreturn]] void fail(const char* code, std::string what, SourceLoc loc, std::string expected,
                         std::string got, std::string hint, SourceLoc related) const {
    throw Error({.kind = ErrorKind::program,
                 .op = kernel_.name,
                 .what = std::move(what),
                 .expected = std::move(expected),
                 .got = std::move(got),
                 .hint = std::move(hint),
                 .code = code,
                 .loc = loc,
                 .related = related});
  }

  /// `rounds`: how often the body runs.
  void visit(const ir::Body& body, Count rounds) {
    for (const ir::Stmt& stmt : body) visit(stmt, rounds);
  }

  void visit(const ir::Stmt& stmt, Count rounds) {
    look(stmt);
    if (const auto* roles = std::get_if<ir::Roles>(&stmt.node)) {
      for (const Role& role : roles->roles) {
        role_ = &role;
        visit(role.body, rounds);
      }
      role_ = nullptr;
    } else if (const auto* turn = std::get_if<ir::RingTurn>(&stmt.node)) {
      note(*turn, stmt.loc, rounds);
      turns_.push_back(turn);
      visit(turn->body, rounds);
      turns_.pop_back();
    } else if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) {
      visit(loop->body, rounds_of(*loop, rounds));
    } else {
      for_each_body(stmt, [&](const ir::Body& inner) { visit(inner, std::nullopt); });
    }
  }

  static Count rounds_of(const ir::Loop& loop, Count around) {
    if (!around || ends_early(loop)) return std::nullopt;
    if (!ir::is_constant(loop.begin) || !ir::is_constant(loop.step)) return std::nullopt;
    Count result = around;
    for (const ir::Expr& extent : loop.extents) {
      if (!ir::is_constant(extent)) return std::nullopt;
      const int64_t rounds = round_count(loop.begin->integer, extent->integer, loop.step->integer);
      if (__builtin_mul_overflow(*result, rounds, &*result)) return std::nullopt;
    }
    return result;
  }

  // ---- tiles
  void look(const ir::Stmt& stmt) {
    struct Receiver : TileEffectReceiver {
      void uses(const ir::BufferRef& buffer, bool writes) override {
        all.emplace_back(buffer, writes);
      }
      std::vector<std::pair<ir::BufferRef, bool>> all;
    } receiver;
    effects(stmt, receiver);
    for (const auto& [buffer, writes] : receiver.all) {
      const ir::Buffer& storage = storage_of(*buffer);
      const auto ring = ring_of_.find(storage.id);
      if (ring != ring_of_.end()) {
        check_turn(storage, ring->second, writes, stmt.loc);
      } else if (storage.space == ir::Space::shared || storage.space == ir::Space::fragment) {
        check_owner(storage, {role_, stmt.loc, writes, stmt.manual_sync});
        if (role_ != nullptr && storage.space == ir::Space::fragment) check_fits(storage);
      }
    }
    const ir::CopyPlan* const plan = plan_of(stmt);
    if (plan == nullptr || plan->engine != ir::Engine::bulk) return;
    const bool fills = ring_of_.contains(storage_of(*target_of(stmt)).id);
    if (!fills && first_bulk_ == nullptr) first_bulk_ = &stmt;
    if (first_bulk_ != nullptr && role_ != nullptr) refuse_bulk();
  }

  [[noreturn]] void refuse_bulk() const {
    fail("CPASYNC_ROWS", "a bulk copy outside of a fill, in a kernel with roles", first_bulk_->loc,
         "a fill of a ring", {}, "copy into a tile of a ring, or leave out bulk()", role_->loc);
  }

  void check_turn(const ir::Buffer& tile, int ring, bool writes, SourceLoc loc) const {
    const SourceLoc of_ring = kernel_.rings[static_cast<size_t>(ring)].loc;
    const auto turn = std::find_if(turns_.begin(), turns_.end(), [&](const ir::RingTurn* around) {
      return around->ring == ring;
    });
    if (turn == turns_.end()) {
      fail("RING_OUTSIDE", fmt::format("'{}' is used outside of a fill or a take", tile.name), loc,
           "ring.fill or ring.take around it", "none", "a tile of a ring is that of a stage",
           of_ring);
    }
    if (!writes || (*turn)->fills) return;
    fail("RING_WRITE", fmt::format("'{}' is written in a take", tile.name), loc,
         "a take that reads", "a write", "copy it into a tile of the role first", of_ring);
  }

  void check_owner(const ir::Buffer& tile, const Use& use) {
    std::vector<Use>& uses = uses_[tile.id];
    for (const Use& other : uses) {
      if (other.role == use.role) continue;
      const bool is_fragment = tile.space == ir::Space::fragment;
      // All roles see what was stored before them.
      const bool before = other.role == nullptr || use.role == nullptr;
      if (!is_fragment && (before || !(use.writes || other.writes))) continue;
      if (!is_fragment && use.by_author && other.by_author) continue;
      fail(
          "SHARED_BETWEEN_ROLES",
          fmt::format(
              "{} '{}' is used by role '{}' and by {}", name(tile.space), tile.name, use.role->name,
              other.role == nullptr ? "all threads" : fmt::format("role '{}'", other.role->name)),
          use.loc, is_fragment ? "a fragment of one role" : "one role, or reads alone",
          use.writes ? "written here" : "read here",
          is_fragment
              ? "declare one in each role"
              : "put it into a ring, or order its uses by rings and put all into k.manual_sync",
          other.loc);
    }
    for (Use& known : uses) {
      if (known.role != use.role || known.by_author != use.by_author) continue;
      if (use.writes && !known.writes) known = use;
      return;
    }
    uses.push_back(use);
  }

  /// The fragment may be declared before the roles, where it is measured by the whole block.
  void check_fits(const ir::Buffer& fragment) const {
    const int64_t most = role_->count;
    if (fragment.layout && fragment.layout->num_threads() > most) {
      fail("LAYOUT_THREADS",
           fmt::format("the layout of fragment '{}' needs more threads than role '{}' has",
                       fragment.name, role_->name),
           fragment.loc, fmt::format("at most {}", most),
           fmt::format("{}", fragment.layout->num_threads()), {}, role_->loc);
    }
    const int64_t registers = ir::registers_of(fragment, most);
    if (registers <= kMaxRegisters) return;
    std::vector<int64_t> shape;
    for (const ir::Expr& extent : fragment.shape) shape.push_back(extent->integer);
    fail("REGISTERS",
         fmt::format("fragment '{}' does not fit into the registers of role '{}'", fragment.name,
                     role_->name),
         fragment.loc,
         fmt::format("at most {} registers in each of {} threads", kMaxRegisters, most),
         fmt::format("{}[{}], {} registers each", tessera::name(fragment.dtype),
                     fmt::join(shape, ", "), registers),
         "take a smaller tile, more threads, or k.shared", role_->loc);
  }

  // ---- turns
  void note(const ir::RingTurn& turn, SourceLoc loc, Count rounds) {
    RingUse& ring = rings_[static_cast<size_t>(turn.ring)];
    const auto refuse = [&](std::string what, SourceLoc other) {
      fail("RING_ROLE", std::move(what), loc, "one role that fills, and others that take", {},
           "take one ring for each role that fills", other);
    };
    Turns* turns = &ring.fills;
    if (turn.fills) {
      if (ring.fills.role != nullptr && ring.fills.role != role_) {
        refuse(fmt::format("roles '{}' and '{}' fill one ring", ring.fills.role->name, role_->name),
               ring.fills.loc);
      }
    } else {
      const auto mine = std::find_if(ring.takes.begin(), ring.takes.end(),
                                     [&](const Turns& other) { return other.role == role_; });
      turns = mine == ring.takes.end() ? &ring.takes.emplace_back() : &*mine;
    }
    if (turns->role == nullptr) turns->loc = loc;
    turns->role = role_;
    if (turns->count && rounds) {
      *turns->count += *rounds;
    } else {
      turns->count.reset();
    }
    for (const Turns& take : ring.takes) {
      if (ring.fills.role != role_ || take.role != role_) continue;
      refuse(fmt::format("role '{}' fills a ring and takes from it", role_->name),
             turn.fills ? take.loc : ring.fills.loc);
    }
  }

  void check_counts(size_t number) const {
    const RingUse& ring = rings_[number];
    const SourceLoc of_ring = kernel_.rings[number].loc;
    const bool fills = ring.fills.role != nullptr, takes = !ring.takes.empty();
    if (fills != takes) {
      fail("RING_COUNT",
           fills ? "a ring is filled and not taken" : "a ring is taken and not filled",
           fills ? ring.fills.loc : ring.takes.front().loc, "as many fills as takes", {},
           "fill it in one role and take it in another", of_ring);
    }
    Count all = 0;  // takes of all roles
    for (const Turns& take : ring.takes) {
      all = all && take.count ? Count(*all + *take.count) : std::nullopt;
    }
    // Roles that divide the turns among them.
    const bool is_divided = ring.takes.size() > 1 && all == ring.fills.count;
    for (const Turns& take : ring.takes) {
      if (!ring.fills.count || !take.count || *ring.fills.count == *take.count) continue;
      fail("RING_COUNT",
           fmt::format("role '{}' takes {} times what role '{}' fills {} times", take.role->name,
                       *take.count, ring.fills.role->name, *ring.fills.count),
           take.loc,
           is_divided ? fmt::format("{} takes by each role", *ring.fills.count)
                      : fmt::format("{} takes", *ring.fills.count),
           fmt::format("{}", *take.count),
           is_divided
               ? "each role takes every turn: skip those of the others by k.if_ in the take, or "
                 "give each role a ring of its own"
               : "run both in loops of the same bounds",
           ring.fills.loc);
    }
  }

  const ir::Kernel& kernel_;
  std::map<int, int> ring_of_;            // by id of a tile
  std::map<int, std::vector<Use>> uses_;  // by id of the storage, up to two for each role
  std::vector<RingUse> rings_;
  std::vector<const ir::RingTurn*> turns_;  // around the statement
  const Role* role_ = nullptr;
  const ir::Stmt* first_bulk_ = nullptr;  // outside of fills
};

}  // namespace

void check_roles(const ir::Kernel& kernel) {
  RoleCheck(kernel).run();
}

}  // namespace tessera::codegen
