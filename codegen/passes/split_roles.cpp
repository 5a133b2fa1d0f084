#include "codegen/passes/split_roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "codegen/pipelines/copy_marks.h"
#include "codegen/pipelines/load_role.h"
#include "codegen/pipelines/loop_pipeline.h"
#include "codegen/pipelines/take_range.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"
#include "dsl/base/target_facts.h"

namespace tessera::codegen {
namespace {

constexpr int kWarp = 32, kWarpgroup = 128, kMostThreads = 1024;

bool converts(const ir::Stmt& copy) {
  return source_of(copy)->dtype != target_of(copy)->dtype;
}

class RoleSplitter {
 public:
  RoleSplitter(const ir::Kernel& from, Target target, std::vector<std::string>& notes)
      : from_(from), target_(target), notes_(notes), result_(from), load_(from, result_) {}

  ir::Kernel run() {
    find(from_.body, {});
    if (loops_.empty()) return from_;
    const SourceLoc loc = loops_.begin()->second.stmt->loc;
    require_block(loc);
    require_no_block_statements(from_.body);
    std::set<const ir::Body*> around;  // bodies that the load role runs
    for (const auto& [id, loop] : loops_) around.insert(loop.path.begin(), loop.path.end() - 1);
    require_waits_in(around, from_.body);
    const std::map<int, int> uses = count_uses(from_);
    for (auto& [id, loop] : loops_) fill_ring(loop, uses);
    ir::Body load = load_.body(from_.body, loops_);
    make_roles(take(from_.body), std::move(load), loc);
    return std::move(result_);
  }

 private:
  struct Registers {
    int compute = 0, load = 0;  // of each thread; 0 = as launched
  };

  [[noreturn]] void refuse(SourceLoc loc, std::string what, std::string expected, std::string got,
                           SourceLoc related = {}) const {
    throw Error({.kind = ErrorKind::program,
                 .op = from_.name,
                 .what = std::move(what),
                 .expected = std::move(expected),
                 .got = std::move(got),
                 .hint = "leave out `producer`",
                 .code = "PRODUCER",
                 .loc = loc,
                 .related = related});
  }

  // ---- loops
  void find(const ir::Body& body, Path path) {
    path.push_back(&body);
    for (const ir::Stmt& stmt : body) {
      const auto* loop = std::get_if<ir::Loop>(&stmt.node);
      if (loop != nullptr && loop->producer) {
        RingLoop& found = loops_[loop_id(*loop)];
        found.stmt = &stmt;
        found.path = path;
        found.path.push_back(&loop->body);
      }
      for_each_body(stmt, [&](const ir::Body& inner) { find(inner, path); });
    }
  }

  void require_block(SourceLoc loc) const {
    if (from_.threads % kWarp != 0) {
      refuse(loc, "the load role needs a warp of its own", "a launch of whole warps",
             fmt::format("{} threads", from_.threads));
    }
    if (from_.threads + kWarp > kMostThreads) {
      refuse(loc, "the load role needs a warp of its own",
             fmt::format("a launch of at most {} threads", kMostThreads - kWarp),
             fmt::format("{}", from_.threads));
    }
  }

  void require_no_block_statements(const ir::Body& body) const {
    const SourceLoc loc = loops_.begin()->second.stmt->loc;
    for (const ir::Stmt& stmt : body) {
      if (std::holds_alternative<ir::Roles>(stmt.node)) {
        refuse(loc, "a pipelined loop with a load role, in a kernel that has roles",
               "a ring of the author's, or no k.roles", "k.roles", stmt.loc);
      }
      const std::string_view refused = ir::refused_in_role(stmt);
      if (!refused.empty()) {
        refuse(loc, fmt::format("{} in a kernel with a load role", refused),
               "statements of the threads of the launch", "one of all threads of the block",
               stmt.loc);
      }
      for_each_body(stmt, [&](const ir::Body& inner) { require_no_block_statements(inner); });
    }
  }

  /// The load role waits for the kernel before, where the author does.
  void require_waits_in(const std::set<const ir::Body*>& around, const ir::Body& body) const {
    for (const ir::Stmt& stmt : body) {
      if (has_order(stmt, Order::Kind::previous_kernel) && !around.contains(&body)) {
        refuse(loops_.begin()->second.stmt->loc, "a load role does not come to a wait",
               "k.wait_for_previous_kernel outside of the loop, under the conditions around it",
               "another place", stmt.loc);
      }
      for_each_body(stmt, [&](const ir::Body& inner) { require_waits_in(around, inner); });
    }
  }

  void fill_ring(RingLoop& loop, const std::map<int, int>& uses) {
    const SourceLoc loc = loop.stmt->loc;
    require_no_waits(from_, loop.loop(), loc);
    require_path(loop);
    std::vector<std::string> notes;
    const std::vector<CopyGroup> groups =
        find_copy_groups(loop.loop(), uses, notes,
                         [&](const Producer& producer) { return obstacle_of(producer, loop); });
    for (const CopyGroup& group : groups) {
      loop.producers.insert(loop.producers.end(), group.producers.begin(), group.producers.end());
    }
    std::sort(loop.producers.begin(), loop.producers.end(),
              [](const Producer& a, const Producer& b) { return a.position < b.position; });
    if (loop.producers.empty()) {
      refuse(loc, "no copy of a pipelined loop can go to a load role",
             "a copy from global to shared memory that goes ahead",
             notes.empty() ? "none" : notes.back());
    }
    notes_.insert(notes_.end(), notes.begin(), notes.end());
    loop.ring = static_cast<int>(result_.rings.size());
    result_.rings.push_back({loop.loop().stages, {}, loc});
    for (const Producer& producer : loop.producers) {
      if (producer.condition)
        load_.depend({ir::Assume{producer.condition}, producer.loc}, loop.path);
      for (const ir::Stmt& copy : producer.copies) {
        load_.depend(copy, loop.path);
        put_into_ring(target_of(copy), loop.ring);
      }
    }
  }

  /// Looks at the loops and conditions around the loop, and at itself.
  void require_path(const RingLoop& loop) {
    Path path;
    for (const ir::Body* body : loop.path) {
      path.push_back(body);
      for (const ir::Stmt& stmt : *body) {
        const auto is_loop = [&](const ir::Stmt& inner) { return &inner == loop.stmt; };
        if (any_in(stmt, is_loop)) require_place(stmt, path, loop.stmt->loc);
      }
    }
    if (any_in(*loop.stmt, [](const ir::Stmt& inner) { return inner.manual_sync; })) {
      refuse(loop.stmt->loc, "a load role in k.manual_sync", "barriers that the compiler inserts",
             "those of the author alone");
    }
  }

  void require_place(const ir::Stmt& stmt, const Path& path, SourceLoc loc) {
    const auto* around = std::get_if<ir::Loop>(&stmt.node);
    if (around != nullptr && around->kind == ir::LoopKind::pipelined) {
      require_no_waits(from_, *around, stmt.loc);
    }
    if (around != nullptr && ends_early(*around)) {
      refuse(loc, "a load role cannot know when a loop ends", "a loop that runs all its rounds",
             "k.break_if", around->body.back().loc);
    }
    ir::Stmt head = stmt;
    for_each_body(head, [](ir::Body& body) { body.clear(); });
    if (const auto obstacle = load_.obstacle(head, path)) {
      refuse(loc,
             fmt::format("a load role cannot know {}",
                         around != nullptr ? "the bounds of a loop" : "a condition"),
             "what inputs and indices of blocks and loops determine", obstacle->what,
             obstacle->loc);
    }
    load_.depend(head, path);
  }

  /// Why copies stay with the threads that compute.
  std::string obstacle_of(const Producer& producer, const RingLoop& loop) const {
    for (const ir::Stmt& copy : producer.copies) {
      if (converts(copy)) return "it converts";
      std::string why = load_.obstacle_of_source(*source_of(copy));
      if (!why.empty()) return why;
      require_known(copy, loop, "where it copies from");
    }
    if (producer.condition) {
      require_known({ir::Assume{producer.condition}, producer.loc}, loop, "whether it copies");
    }
    return {};
  }

  void require_known(const ir::Stmt& stmt, const RingLoop& loop, const char* what) const {
    const auto obstacle = load_.obstacle(stmt, loop.path);
    if (!obstacle) return;
    refuse(stmt.loc, fmt::format("a load role cannot know {}", what),
           "what inputs and indices of blocks and loops determine", obstacle->what, obstacle->loc);
  }

  // ---- tiles
  void put_into_ring(const ir::BufferRef& tile, int ring) {
    const ir::BufferRef& storage = tile->alias_of ? tile->alias_of : tile;
    if (moved_.contains(storage->id)) return;
    moved(storage, ring);
    result_.rings[static_cast<size_t>(ring)].tiles.push_back(moved_.at(storage->id));
  }

  /// The buffer as one of the ring.
  const ir::BufferRef& moved(const ir::BufferRef& buffer, int ring) {
    ir::BufferRef& known = moved_[buffer->id];
    if (known) return known;
    auto fresh = std::make_shared<ir::Buffer>(*buffer);
    fresh->id = result_.num_buffers++;
    fresh->ring = ring;
    if (buffer->alias_of) fresh->alias_of = moved(buffer->alias_of, ring);
    known = std::move(fresh);
    return known;
  }

  void use_ring(ir::Body& body) {
    const auto replace = [&](ir::BufferRef& buffer) {
      const auto storage = moved_.find(storage_of(*buffer).id);
      if (storage != moved_.end()) buffer = moved(buffer, storage->second->ring);
    };
    BufferMove move;
    move.region = [&](ir::Region& region) { replace(region.buffer); };
    move.element = [&](ir::BufferRef& buffer, std::vector<ir::Expr>&) { replace(buffer); };
    move_buffers(body, move);
  }

  // ---- roles
  ir::Body take(const ir::Body& from) {
    ir::Body to;
    for (const ir::Stmt& stmt : from) {
      const auto* loop = std::get_if<ir::Loop>(&stmt.node);
      const auto mine = loop != nullptr ? loops_.find(loop_id(*loop)) : loops_.end();
      to.push_back(stmt);
      if (mine != loops_.end()) {
        std::get<ir::Loop>(to.back().node) = take(mine->second);
      } else {
        for_each_body(to.back(), [&](ir::Body& inner) { inner = take(inner); });
      }
    }
    return to;
  }

  ir::Loop take(const RingLoop& from) {
    ir::Loop loop = as_serial(from.loop());
    ir::RingTurn turn = turn_of(from, false, result_);
    const TakeRange range = take_range(from.loop().body, from.producers);
    const CopyMarks marks(from.loop().body, from.all_producers());
    loop.body.clear();
    for (size_t i = 0; i < from.loop().body.size(); ++i) {
      const bool is_filled =
          marks.leaves(i) ||
          std::any_of(from.producers.begin(), from.producers.end(),
                      [&](const Producer& producer) { return producer.position == i; });
      if (!is_filled) {
        const bool is_taken = i >= range.first && i <= range.last;
        (is_taken ? turn.body : loop.body).push_back(from.loop().body[i]);
      }
      if (i == range.last) loop.body.push_back({std::move(turn), from.stmt->loc});
    }
    return loop;
  }

  /// All groups of four warps together have no more than at launch.
  Registers find_registers() const {
    const auto is_product = [](const ir::Stmt& stmt) {
      return std::holds_alternative<ir::Gemm>(stmt.node);
    };
    const bool multiplies =
        std::any_of(from_.body.begin(), from_.body.end(),
                    [&](const ir::Stmt& stmt) { return any_in(stmt, is_product); });
    const bool can_set = facts_of(target_).moves_registers && from_.threads % kWarpgroup == 0 &&
                         from_.min_blocks_per_sm <= 1 && from_.threads + kWarpgroup <= kMostThreads;
    if (!multiplies || !can_set) return {};
    bool by_engine = true;
    for (const auto& [id, loop] : loops_) {
      for (const Producer& producer : loop.producers) {
        by_engine = by_engine &&
                    std::all_of(producer.copies.begin(), producer.copies.end(),
                                [](const ir::Stmt& copy) { return is_by_engine(*plan_of(copy)); });
      }
    }
    constexpr int kByEngine = 24, kByPieces = 40;  // of the load role
    const int groups = from_.threads / kWarpgroup;
    const int all = registers_at_launch(from_.threads + kWarpgroup) * (groups + 1);
    const int least = by_engine ? kByEngine : kByPieces;
    const int compute = std::min((all - least) / groups / 8 * 8, kMaxLaunchRegisters);
    if (compute <= registers_at_launch(from_.threads + kWarp)) return {};
    return {compute, std::min(all - compute * groups, kByPieces)};
  }

  void make_roles(ir::Body compute, ir::Body load, SourceLoc loc) {
    use_ring(compute);
    use_ring(load);
    const Registers registers = find_registers();
    const bool sets = registers.compute > 0;
    ir::Roles roles;
    roles.roles.push_back(
        {"compute", 0, from_.threads, registers.compute, from_.thread, std::move(compute), loc});
    ir::Var thread = *from_.thread;
    thread.name = "load_thread";
    thread.id = result_.num_vars++;
    thread.upper = ir::index(kWarp);
    roles.roles.push_back({"load", from_.threads, kWarp, registers.load,
                           std::make_shared<const ir::Var>(thread), std::move(load), loc});
    result_.threads = from_.threads + (sets ? kWarpgroup : kWarp);
    thread.name = "block_thread";
    thread.id = result_.num_vars++;
    thread.upper = ir::index(result_.threads);
    result_.thread = std::make_shared<const ir::Var>(std::move(thread));
    result_.body.clear();
    result_.body.push_back({std::move(roles), loc});
  }

  const ir::Kernel& from_;
  const Target target_;
  std::vector<std::string>& notes_;
  ir::Kernel result_;
  LoadRole load_;
  std::map<int, RingLoop> loops_;  // by id
  std::map<int, ir::BufferRef>
      moved_;  // tiles of rings and views of them, by the id of the author's buffer
};

}  // namespace

ir::Kernel split_roles(const ir::Kernel& kernel, Target target, std::vector<std::string>& notes) {
  return RoleSplitter(kernel, target, notes).run();
}

}  // namespace tessera::codegen
