#include "codegen/pipelines/loop_pipeline.h"

#include <algorithm>
#include <set>
#include <utility>

#include "codegen/pipelines/copy_marks.h"
#include "codegen/pipelines/replay.h"
#include "codegen/products/atoms.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

class WaitCheck {
 public:
  WaitCheck(const ir::Kernel& kernel, SourceLoc loc) : kernel_(kernel), loc_(loc) {}

  void run(const ir::Body& body) const {
    for (const ir::Stmt& stmt : body) {
      if (has_order(stmt, Order::Kind::commit, Work::copies) ||
          has_order(stmt, Order::Kind::await, Work::copies)) {
        fail("an asynchronous copy or a wait inside a pipelined loop", stmt.loc);
      }
      const auto* inner = std::get_if<ir::Loop>(&stmt.node);
      if (inner != nullptr && inner->kind == ir::LoopKind::pipelined) {
        fail("a pipelined loop inside a pipelined loop", stmt.loc);
      }
      for_each_body(stmt, [&](const ir::Body& nested) { run(nested); });
    }
  }

 private:
  [[noreturn]] void fail(const char* what, SourceLoc loc) const {
    throw Error(
        {.kind = ErrorKind::program,
         .op = kernel_.name,
         .what = what,
         .hint = "a pipelined loop counts its own copies: use k.copy in it, or a serial loop",
         .code = "ASYNC_IN_PIPELINE",
         .loc = loc,
         .related = loc_});
  }

  const ir::Kernel& kernel_;
  const SourceLoc loc_;
};

}  // namespace

void require_no_waits(const ir::Kernel& kernel, const ir::Loop& loop, SourceLoc loc) {
  WaitCheck(kernel, loc).run(loop.body);
}

ir::Loop as_serial(ir::Loop loop) {
  loop.kind = ir::LoopKind::serial;
  loop.stages = 1;
  loop.in_place = loop.across = loop.producer = false;
  return loop;
}

ir::Stmt LoopPipeline::run(const std::map<int, int>& uses, std::vector<std::string>& notes) {
  require_no_waits(kernel_, loop_, loc_);
  if (ahead_ > 0) groups_ = find_copy_groups(loop_, uses, notes);
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

void LoopPipeline::refuse_crossing(std::string why) const {
  throw Error({.kind = ErrorKind::program,
               .op = kernel_.name,
               .what = "the first copies of a pipelined loop cannot go across the loop around it",
               .expected = "copies that are known, and may be made, a round of that loop earlier",
               .got = std::move(why),
               .hint = "leave out `across`",
               .code = "PIPELINE_ACROSS",
               .loc = loc_});
}

void LoopPipeline::require_crossing(Crossing* crossing, bool manual_sync,
                                    const std::vector<std::string>& notes) {
  if (crossing == nullptr) refuse_crossing("it stands not directly in a serial or persistent loop");
  if (manual_sync) refuse_crossing("it stands in manual_sync, where no barrier would precede them");
  if (groups_.empty()) {
    refuse_crossing(notes.empty() ? "it has no copies that go ahead"
                                  : "no copy goes ahead: " + notes.back());
  }
  ir::Body copies;
  for (const CopyGroup& group : groups_) issue(group, number(0), copies);
  for (const ir::Stmt& stmt : copies) {
    const std::string why = crossing->obstacle(stmt);
    if (!why.empty()) refuse_crossing(why);
  }
  crossing->is_crossed = true;
}

ir::Stmt LoopPipeline::first_copies(int begin, int end, const Under& under) {
  ir::Loop loop;
  loop.kind = ir::LoopKind::unrolled;
  loop.vars = {new_counter("stage", number(end))};
  loop.begin = number(begin);
  loop.step = number(1);
  loop.extents = {number(end)};
  for (const CopyGroup& group : groups_) issue(group, ir::var(loop.vars[0]), loop.body, under);
  return {std::move(loop), loc_};
}

bool LoopPipeline::waits_late() const {
  if (loop_.in_place || ahead_ < 2 || groups_.empty()) return false;
  std::map<int, int> uses;  // of the sums, by id of the storage
  for (const ir::Stmt& stmt : loop_.body) {
    const auto* gemm = std::get_if<ir::Gemm>(&stmt.node);
    if (gemm == nullptr) continue;
    const bool is_delayed =
        atom_of(*gemm).is_async && gemm->promote == 0 && gemm->a.buffer->space == ir::Space::shared;
    if (!is_delayed) return false;
    uses.emplace(storage_of(*gemm->c.buffer).id, 0);
  }
  for_each_use(loop_.body, [&](const ir::BufferRef& buffer, bool) {
    const auto sum = uses.find(storage_of(*buffer).id);
    if (sum != uses.end()) ++sum->second;
  });
  return !uses.empty() &&
         std::all_of(uses.begin(), uses.end(), [](const auto& sum) { return sum.second == 1; });
}

std::shared_ptr<ir::Var> LoopPipeline::new_var(const ir::Var& like, std::string name) {
  auto var = std::make_shared<ir::Var>(like);
  var->name = std::move(name);
  var->id = kernel_.num_vars++;
  return var;
}

ir::VarRef LoopPipeline::new_counter(std::string name, ir::Expr upper) {
  auto var = new_var(*loop_.vars[0], std::move(name));
  var->lower = number(0);
  var->upper = std::move(upper);
  return var;
}

std::vector<const Producer*> LoopPipeline::producers() const {
  std::vector<const Producer*> all;
  for (const CopyGroup& group : groups_) {
    for (const Producer& producer : group.producers) all.push_back(&producer);
  }
  return all;
}

void LoopPipeline::version_tiles() {
  std::set<int> tiles;  // ids of their storage
  for (const CopyGroup& group : groups_) {
    for (const Producer& producer : group.producers) {
      for (const ir::Stmt& copy : producer.copies) tiles.insert(storage_of(*target_of(copy)).id);
    }
  }
  const ir::Expr versions = ir::index(loop_.stages);
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

void LoopPipeline::use_version(ir::Body& body, const ir::Expr& iteration) const {
  const ir::Expr version = ir::cast(DType::i32, iteration % number(loop_.stages));
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

void LoopPipeline::issue(const CopyGroup& group, const ir::Expr& round, ir::Body& out,
                         const Under& under) {
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
  CopyMarks marks(loop_.body, producers());
  for (const Producer& producer : group.producers) {
    marks.go_to(producer.position, branch.then);
    ir::Body copies;
    for (const ir::Stmt& copy : producer.copies) {
      copies.push_back(replay(copy, ir::CopyTime::ahead));
    }
    use_version(copies, round);
    if (producer.condition) {
      branch.then.push_back({ir::If{replay(producer.condition), copies, {}}, producer.loc});
    } else {
      branch.then.insert(branch.then.end(), copies.begin(), copies.end());
    }
  }
  marks.close(branch.then);
  ir::Stmt copies = {std::move(branch), loc_};
  out.push_back(under ? under(std::move(copies)) : std::move(copies));
  out.push_back({ir::AsyncCommit{}, loc_});
}

ir::Stmt LoopPipeline::main_loop() {
  ir::Loop loop = as_serial(loop_);
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
  for (const Producer* producer : producers()) {
    ahead.insert(producer->position);
    last_reader = std::max(last_reader, producer->last_reader);
  }
  const CopyMarks marks(loop_.body, producers());
  for (size_t i = 0; i < loop_.body.size(); ++i) {
    if (marks.leaves(i)) ahead.insert(i);
  }
  int pending = ahead_ * static_cast<int>(groups_.size()) - 1;
  ir::Body consumers;
  const auto flush = [&] {
    use_version(consumers, round);
    loop.body.insert(loop.body.end(), consumers.begin(), consumers.end());
    consumers.clear();
  };
  last_reader = after_marks(loop_.body, last_reader);
  for (size_t i = 0; i < loop_.body.size(); ++i) {
    for (const CopyGroup& group : groups_) {
      if (before_marks(loop_.body, group.consumer) != i) continue;
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

}  // namespace tessera::codegen
