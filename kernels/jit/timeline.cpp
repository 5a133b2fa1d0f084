#include <algorithm>
#include <limits>
#include <utility>

#include "dsl/base/error.h"
#include "kernels/jit/call_context.h"
#include "kernels/jit/jit.h"
#include "kernels/jit/marked_warps.h"

namespace tessera::kernels::jit {
namespace {

using codegen::cpu::WarpMarks;

/// Pairs the begins and ends of a warp. A mark without an end, since later ones were dropped, ends with the last.
std::vector<Timeline::Bar> bars_of(const WarpMarks& warp) {
  std::vector<Timeline::Bar> bars;
  std::vector<size_t> open;
  for (const WarpMarks::Mark& mark : warp.marks) {
    if (mark.event % 2 == 0) {
      open.push_back(bars.size());
      bars.push_back({mark.event / 2, mark.step, mark.step, static_cast<int>(open.size()) - 1});
      continue;
    }
    TESSERA_CHECK(!open.empty() && bars[open.back()].mark == mark.event / 2,
                  "a warp ends a mark that it has not begun");
    bars[open.back()].end = mark.step;
    open.pop_back();
  }
  for (const size_t bar : open) bars[bar].end = warp.marks.back().step;
  return bars;
}

}  // namespace

TimelineScope::TimelineScope(int64_t block)
    : outer_(std::exchange(call_context().timeline, this)), block_(block) {}
TimelineScope::~TimelineScope() {
  call_context().timeline = outer_;
}

MarkedProgram marked(const codegen::Program& program) {
  MarkedProgram result{program.name, program.marked_block.value_or(0), program.marks, {}};
  result.roles.resize(static_cast<size_t>(program.block().num_warps()));
  for (const codegen::Stmt& stmt : program.body) {
    const auto* bodies = std::get_if<codegen::RoleBodies>(&stmt.node);
    if (bodies == nullptr) continue;
    for (const codegen::RoleBodies::Role& role : bodies->roles) {
      const int first = role.threads.first / codegen::kThreadsPerWarp;
      for (int warp = 0; warp < role.threads.num_warps(); ++warp) {
        result.roles[static_cast<size_t>(first + warp)] = role.name;
      }
    }
  }
  return result;
}

Timeline timeline_of(const MarkedProgram& program, const std::vector<WarpMarks>& warps) {
  Timeline result{program.kernel, program.block, "steps", program.marks, {}};
  int64_t first = std::numeric_limits<int64_t>::max();
  for (size_t warp = 0; warp < warps.size(); ++warp) {
    if (warps[warp].marks.empty()) continue;
    first = std::min(first, warps[warp].marks.front().step);
    result.rows.push_back({static_cast<int>(warp), program.roles.at(warp), bars_of(warps[warp]),
                           warps[warp].dropped});
  }
  for (Timeline::Row& row : result.rows) {
    for (Timeline::Bar& bar : row.bars) {
      bar.begin -= first;
      bar.end -= first;
    }
  }
  return result;
}

Timeline timeline_of(const MarkedProgram& program, std::span<const uint64_t> words) {
  constexpr size_t kWords = WarpMarks::kMost + 1;
  std::vector<WarpMarks> warps(program.roles.size());
  TESSERA_CHECK(words.size() >= warps.size() * kWords, "an array of marks of another size");
  for (size_t warp = 0; warp < warps.size(); ++warp) {
    const std::span<const uint64_t> own = words.subspan(warp * kWords, kWords);
    for (size_t i = 0; i < WarpMarks::kMost && own[i] != 0; ++i) {
      warps[warp].marks.push_back(
          {static_cast<int>(own[i] & 0xFF) - 1, static_cast<int64_t>(own[i] >> 8)});
    }
    warps[warp].dropped = static_cast<int64_t>(own[WarpMarks::kMost]);
  }
  Timeline result = timeline_of(program, warps);
  result.unit = "cycles";
  return result;
}

}  // namespace tessera::kernels::jit
