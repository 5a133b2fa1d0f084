#include "codegen/passes/pipeline_loops.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codegen/pipelines/crossing.h"
#include "codegen/pipelines/first_copies.h"
#include "codegen/pipelines/loop_pipeline.h"
#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

class Pipeliner {
  /// A serial loop that first copies may go across.
  struct Around;

 public:
  Pipeliner(ir::Kernel& kernel, std::vector<std::string>& notes)
      : kernel_(kernel), notes_(notes), uses_(count_uses(kernel)) {}

  /// `around`: the serial loop whose body this is, or that of a condition in it; null for another body.
  ir::Body body(const ir::Body& from, Around* around = nullptr) {
    ir::Body to;
    if (around != nullptr) around->crossing.levels.push_back({&from, 0});
    for (size_t i = 0; i < from.size(); ++i) {
      if (around != nullptr) around->crossing.levels.back().position = i;
      const auto* loop = std::get_if<ir::Loop>(&from[i].node);
      const auto* branch = std::get_if<ir::If>(&from[i].node);
      if (loop != nullptr && loop->kind == ir::LoopKind::pipelined) {
        pipeline(*loop, from[i], to, around);
      } else if (loop != nullptr && loop->kind == ir::LoopKind::serial) {
        serial(*loop, from[i], to);
      } else if (branch != nullptr && around != nullptr) {
        condition(*branch, from[i], to, *around);
      } else {
        to.push_back(from[i]);
        for_each_body(to.back(), [&](ir::Body& inner) { inner = body(inner); });
      }
    }
    if (around != nullptr) around->crossing.levels.pop_back();
    return to;
  }

 private:
  struct Around {
    Crossing crossing;
    using Place = std::function<void(ir::Body&)>;
    std::vector<Place> begin = {};  // of the first copies of its first round
    std::vector<Place> next = {};   // of those of the next round
  };

  void serial(const ir::Loop& loop, const ir::Stmt& stmt, ir::Body& to) {
    Around around{Crossing(loop)};
    ir::Stmt rounds = stmt;
    std::get<ir::Loop>(rounds.node).body = body(loop.body, &around);
    for (const auto& place : around.begin) place(to);
    to.push_back(std::move(rounds));
    // Copies for rounds that never come.
    if (around.crossing.is_crossed && ends_early(loop))
      to.push_back({ir::AsyncWait{-1, 0}, stmt.loc});
  }

  /// A condition in a serial loop: the arm that does not run a crossing loop issues its copies too.
  void condition(const ir::If& branch, const ir::Stmt& stmt, ir::Body& to, Around& around) {
    const size_t before = around.next.size();
    ir::If result = branch;
    result.then = body(branch.then, &around);
    result.otherwise = body(branch.otherwise);
    for (size_t i = before; i < around.next.size(); ++i) around.next[i](result.otherwise);
    to.push_back({std::move(result), stmt.loc, stmt.manual_sync});
  }

  /// Adds the loop and the first copies.
  void pipeline(const ir::Loop& loop, const ir::Stmt& stmt, ir::Body& to, Around* around) {
    const auto pipeline = std::make_shared<LoopPipeline>(kernel_, loop, stmt.loc);
    std::vector<std::string> notes;
    ir::Stmt rounds = pipeline->run(uses_, notes);
    rounds.manual_sync = stmt.manual_sync;
    if (loop.across) {
      pipeline->require_crossing(around != nullptr ? &around->crossing : nullptr, stmt.manual_sync,
                                 notes);
    }
    notes_.insert(notes_.end(), notes.begin(), notes.end());
    const bool drains = pipeline->copies_ahead() && ends_early(loop) && !loop.across;
    if (pipeline->copies_ahead() && !loop.across) {
      place_first_copies(to, *pipeline, stmt.manual_sync, nullptr);
    }
    to.push_back(std::move(rounds));
    // Copies for rounds that never come.
    if (drains) to.push_back({ir::AsyncWait{-1, 0}, stmt.loc, stmt.manual_sync});
    if (loop.across) cross(pipeline, *around, to);
  }

  /// Issues the first copies of the next round of the loop around.
  void cross(const std::shared_ptr<LoopPipeline>& pipeline, Around& around, ir::Body& to) {
    const Crossing crossing = around.crossing;
    const SourceLoc loc = to.back().loc;
    around.begin.push_back([this, pipeline, crossing](ir::Body& before) {
      place_first_copies(before, *pipeline, false, [&](const ir::Stmt& copies) {
        return crossing.for_first(kernel_, copies);
      });
    });
    around.next.push_back([this, pipeline, crossing, loc](ir::Body& into) {
      const auto under = [&](const ir::Stmt& copies) { return crossing.for_next(kernel_, copies); };
      // Nothing is in flight here: every round begins with the same number of groups.
      into.push_back({ir::AsyncWait{-1, 0}, loc});
      into.push_back(pipeline->first_copies(0, pipeline->ahead(), under));
    });
    around.next.back()(to);
    notes_.push_back(to_string(loc) +
                     ": across: the first copies of the next round around are issued behind it");
  }

  /// Those of the first round as early as they can, those of the others after the loads there, which they would
  /// delay.
  void place_first_copies(ir::Body& to, LoopPipeline& pipeline, bool manual_sync,
                          const LoopPipeline::Under& under) {
    const auto first_copies = [&](int begin, int end) {
      ir::Stmt copies = pipeline.first_copies(begin, end, under);
      copies.manual_sync = manual_sync;
      return copies;
    };
    ir::Stmt first = first_copies(0, 1);
    const size_t place = earliest_place(to, first);
    if (place == to.size()) {
      to.push_back(first_copies(0, pipeline.ahead()));
      return;
    }
    notes_.push_back("the first copies are issued before " + to_string(to[place].loc));
    const size_t rest = place_behind_loads(to, place);
    if (pipeline.ahead() > 1) insert(to, rest, first_copies(1, pipeline.ahead()));
    insert(to, place, std::move(first));
  }

  static void insert(ir::Body& body, size_t place, ir::Stmt stmt) {
    body.insert(body.begin() + static_cast<ptrdiff_t>(place), std::move(stmt));
  }

  ir::Kernel& kernel_;
  std::vector<std::string>& notes_;
  const std::map<int, int> uses_;
};

}  // namespace

ir::Kernel pipeline_loops(const ir::Kernel& kernel, std::vector<std::string>& notes) {
  ir::Kernel result = kernel;
  result.body = Pipeliner(result, notes).body(kernel.body);
  return result;
}

}  // namespace tessera::codegen
