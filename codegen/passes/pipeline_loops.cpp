#include "codegen/passes/pipeline_loops.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "codegen/pipelines/copy_groups.h"
#include "codegen/pipelines/first_copies.h"
#include "codegen/pipelines/replay.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

class LoopPipeline {
 public:
  LoopPipeline(ir::Kernel& kernel, const ir::Loop& loop, SourceLoc loc)
      : kernel_(kernel), loop_(loop), loc_(loc), counter_(loop.vars[0]) {}

  /// The loop without its copies that are issued ahead. `uses` counts the uses of each storage in the
  /// whole kernel.
  ir::Stmt run(const std::map<int, int>& uses, std::vector<std::string>& notes) {
    require_no_waits(loop_.body);
    if (loop_.stages > 0) groups_ = find_copy_groups(loop_, uses, notes);
    if (waits_late()) {
      --ahead_;
      issues_last_ = true;
      notes.push_back(to_string(loc_) + ": one iteration less, for a product under way");
    }
    if (!groups_.empty()) {
      // The version is the remainder of a counter that starts at 0.
      if (!begins_at_zero()) counter_ = new_counter(loop_.vars[0]->name + "_count", rounds());
      version_tiles();
    }
    return main_loop();
  }

  bool copies_ahead() const { return !groups_.empty(); }
  /// Iterations that copies are issued ahead.
  int ahead() const { return ahead_; }

  /// The copies of the rounds `begin` to `end`, which come before the loop.
  ir::Stmt first_copies(int begin, int end) {
    ir::Loop loop;
    loop.kind = ir::LoopKind::unrolled;
    loop.vars = {new_counter("stage", number(end))};
    loop.begin = number(begin);
    loop.step = number(1);
    loop.extents = {number(end)};
    for (const CopyGroup& group : groups_) issue(group, ir::var(loop.vars[0]), loop.body);
    return {std::move(loop), loc_};
  }

 private:
  [[noreturn]] void fail(const char* code, std::string what, SourceLoc loc) const {
    throw Error(
        {.kind = ErrorKind::program,
         .op = kernel_.name,
         .what = std::move(what),
         .hint = "a pipelined loop counts its own copies: use k.copy in it, or a serial loop",
         .code = code,
         .loc = loc,
         .related = loc_});
  }

  /// True if the product of an iteration may still run in the next one: its operands are not overwritten
  /// then if copies go one iteration less ahead.
  bool waits_late() const {
    if (loop_.in_place || loop_.stages < 2 || groups_.empty()) return false;
    const ir::Gemm* product = nullptr;
    for (const ir::Stmt& stmt : loop_.body) {
      const auto* gemm = std::get_if<ir::Gemm>(&stmt.node);
      if (gemm == nullptr) continue;
      if (product != nullptr || gemm->instruction != ir::Instruction::wgmma || gemm->promote > 0) {
        return false;
      }
      product = gemm;
    }
    if (product == nullptr || product->a.buffer->space != ir::Space::shared) return false;
    int uses = 0;
    for_each_use(loop_.body, [&](const ir::BufferRef& buffer, bool) {
      uses += storage_of(*buffer).id == storage_of(*product->c.buffer).id;
    });
    return uses == 1;
  }

  void require_no_waits(const ir::Body& body) const {
    for (const ir::Stmt& stmt : body) {
      if (has_order(stmt, Order::Kind::commit) || has_order(stmt, Order::Kind::await)) {
        fail("ASYNC_IN_PIPELINE", "an asynchronous copy or a wait inside a pipelined loop",
             stmt.loc);
      }
      const auto* inner = std::get_if<ir::Loop>(&stmt.node);
      if (inner != nullptr && inner->kind == ir::LoopKind::pipelined) {
        fail("ASYNC_IN_PIPELINE", "a pipelined loop inside a pipelined loop", stmt.loc);
      }
      for_each_body(stmt, [&](const ir::Body& nested) { require_no_waits(nested); });
    }
  }

  std::shared_ptr<ir::Var> new_var(const ir::Var& like, std::string name) {
    auto var = std::make_shared<ir::Var>(like);
    var->name = std::move(name);
    var->id = kernel_.num_vars++;
    return var;
  }

  /// A loop index from 0 to `upper`.
  ir::VarRef new_counter(std::string name, ir::Expr upper) {
    auto var = new_var(*loop_.vars[0], std::move(name));
    var->lower = number(0);
    var->upper = std::move(upper);
    return var;
  }

  ir::Expr number(int64_t value) const { return ir::constant(loop_.vars[0]->type, value); }
  bool begins_at_zero() const { return ir::is_constant(loop_.begin, 0); }

  ir::Expr rounds() const {
    return begins_at_zero() ? loop_.extents[0] : loop_.extents[0] - loop_.begin;
  }

  /// Gives every tile that is copied ahead its versions.
  void version_tiles() {
    std::set<int> tiles;  // ids of their storage
    for (const CopyGroup& group : groups_) {
      for (const Producer& producer : group.producers) {
        for (const ir::Stmt& copy : producer.copies) tiles.insert(storage_of(*target_of(copy)).id);
      }
    }
    const ir::Expr versions = ir::index(loop_.versions());
    for_each_use(loop_.body, [&](const ir::BufferRef& buffer, bool) {
      const ir::Buffer& storage = storage_of(*buffer);
      if (!tiles.contains(storage.id)) return;
      for (const ir::BufferRef& old : {buffer->alias_of, buffer}) {
        if (!old || versioned_.contains(old->id)) continue;
        auto fresh = std::make_shared<ir::Buffer>(*old);
        fresh->id = kernel_.num_buffers++;
        fresh->shape.insert(fresh->shape.begin(), versions);
        ++fresh->num_version_dims;
        if (old->alias_of) fresh->alias_of = versioned_.at(old->alias_of->id);
        versioned_[old->id] = fresh;
      }
    });
  }

  /// The uses of versioned tiles in `body` as uses of version `iteration` % versions.
  void use_version(ir::Body& body, const ir::Expr& iteration) const {
    const ir::Expr version = ir::cast(DType::i32, iteration % number(loop_.versions()));
    BufferMove move;
    move.region = [&](ir::Region& region) {
      const auto found = versioned_.find(region.buffer->id);
      if (found == versioned_.end()) return;
      region.buffer = found->second;
      region.offsets.insert(region.offsets.begin(), version);
      region.extents.insert(region.extents.begin(), ir::Expr());
      for (int& dimension : region.order) ++dimension;
    };
    move.element = [&](ir::BufferRef& buffer, std::vector<ir::Expr>& indices) {
      const auto found = versioned_.find(buffer->id);
      if (found == versioned_.end()) return;
      buffer = found->second;
      indices.insert(indices.begin(), version);
    };
    move_buffers(body, move);
  }

  /// The copies of a group for round `round`, if there is such a round, and the commit.
  void issue(const CopyGroup& group, const ir::Expr& round, ir::Body& out) {
    ir::If branch;
    branch.condition = round < rounds();
    Replay replay(kernel_);
    replay.set(loop_.vars[0], begins_at_zero() ? round : loop_.begin + round);
    std::set<size_t> replays;
    for (const Producer& producer : group.producers) {
      replays.insert(producer.replayed.begin(), producer.replayed.end());
    }
    for (const size_t position : replays) {
      branch.then.push_back(replay(loop_.body[position]));
    }
    for (const Producer& producer : group.producers) {
      ir::Body copies;
      for (const ir::Stmt& copy : producer.copies) {
        copies.push_back(replay(copy, ir::CopyMode::async_if_possible));
      }
      use_version(copies, round);
      if (producer.condition) {
        branch.then.push_back({ir::If{replay(producer.condition), copies, {}}, producer.loc});
      } else {
        branch.then.insert(branch.then.end(), copies.begin(), copies.end());
      }
    }
    out.push_back({std::move(branch), loc_});
    out.push_back({ir::AsyncCommit{}, loc_});
  }

  ir::Stmt main_loop() {
    ir::Loop loop = loop_;
    loop.kind = ir::LoopKind::serial;
    loop.stages = 0;
    if (groups_.empty()) return {std::move(loop), loc_};
    loop.body.clear();
    if (counter_ != loop_.vars[0]) {
      loop.vars = {counter_};
      loop.begin = number(0);
      loop.extents = {rounds()};
      loop.body.push_back({ir::Let{loop_.vars[0], loop_.begin + ir::var(counter_)}, loc_});
    }
    const ir::Expr round = ir::var(counter_);
    std::set<size_t> ahead;  // statements of the body that are issued ahead
    size_t last_reader = 0;
    for (const CopyGroup& group : groups_) {
      for (const Producer& producer : group.producers) {
        ahead.insert(producer.position);
        last_reader = std::max(last_reader, producer.last_reader);
      }
    }
    int pending = ahead_ * static_cast<int>(groups_.size()) - 1;
    ir::Body consumers;
    const auto flush = [&] {
      use_version(consumers, round);
      loop.body.insert(loop.body.end(), consumers.begin(), consumers.end());
      consumers.clear();
    };
    for (size_t i = 0; i < loop_.body.size(); ++i) {
      for (const CopyGroup& group : groups_) {
        if (group.consumer != i) continue;
        flush();
        loop.body.push_back({ir::AsyncWait{-1, pending}, loc_});
        if (issues_last_) {
          --pending;
        } else {
          issue(group, round + number(ahead_), loop.body);
        }
      }
      if (!ahead.contains(i)) consumers.push_back(loop_.body[i]);
      if (!issues_last_ || i != last_reader) continue;
      flush();
      for (const CopyGroup& group : groups_) issue(group, round + number(ahead_), loop.body);
    }
    flush();
    return {std::move(loop), loc_};
  }

  ir::Kernel& kernel_;
  const ir::Loop& loop_;
  const SourceLoc loc_;
  ir::VarRef counter_;  // of the rounds, from 0
  int ahead_ = loop_.stages;
  bool issues_last_ = loop_.in_place;  // after the last reader of what is copied
  std::vector<CopyGroup> groups_;
  std::map<int, ir::BufferRef> versioned_;  // by id of the buffer it replaces
};

class Pipeliner {
 public:
  Pipeliner(ir::Kernel& kernel, std::vector<std::string>& notes) : kernel_(kernel), notes_(notes) {
    for_each_use(kernel.body,
                 [&](const ir::BufferRef& buffer, bool) { ++uses_[storage_of(*buffer).id]; });
  }

  ir::Body body(const ir::Body& from) {
    ir::Body to;
    for (const ir::Stmt& stmt : from) {
      const auto* loop = std::get_if<ir::Loop>(&stmt.node);
      if (loop != nullptr && loop->kind == ir::LoopKind::pipelined) {
        pipeline(*loop, stmt, to);
        continue;
      }
      to.push_back(stmt);
      for_each_body(to.back(), [&](ir::Body& inner) { inner = body(inner); });
    }
    return to;
  }

 private:
  /// Adds the loop and the first copies: those of the first round as early as they can, those of the
  /// others after the loads there, which they would delay.
  void pipeline(const ir::Loop& loop, const ir::Stmt& stmt, ir::Body& to) {
    LoopPipeline pipeline(kernel_, loop, stmt.loc);
    ir::Stmt rounds = pipeline.run(uses_, notes_);
    rounds.manual_sync = stmt.manual_sync;
    const auto first_copies = [&](int begin, int end) {
      ir::Stmt copies = pipeline.first_copies(begin, end);
      copies.manual_sync = stmt.manual_sync;
      return copies;
    };
    if (pipeline.copies_ahead()) {
      ir::Stmt first = first_copies(0, 1);
      const size_t place = earliest_place(to, first);
      if (place < to.size()) {
        notes_.push_back("the first copies are issued before " + to_string(to[place].loc));
        const size_t rest = place_behind_loads(to, place);
        if (pipeline.ahead() > 1) insert(to, rest, first_copies(1, pipeline.ahead()));
        insert(to, place, std::move(first));
      } else {
        to.push_back(first_copies(0, pipeline.ahead()));
      }
    }
    const bool drains = pipeline.copies_ahead() && ends_early(loop);
    to.push_back(std::move(rounds));
    // Copies for rounds that never come.
    if (drains) to.push_back({ir::AsyncWait{-1, 0}, stmt.loc, stmt.manual_sync});
  }

  static void insert(ir::Body& body, size_t place, ir::Stmt stmt) {
    body.insert(body.begin() + static_cast<ptrdiff_t>(place), std::move(stmt));
  }

  ir::Kernel& kernel_;
  std::vector<std::string>& notes_;
  std::map<int, int> uses_;
};

}  // namespace

ir::Kernel pipeline_loops(const ir::Kernel& kernel, std::vector<std::string>& notes) {
  ir::Kernel result = kernel;
  result.body = Pipeliner(result, notes).body(kernel.body);
  return result;
}

}  // namespace tessera::codegen
