#include <algorithm>
#include <map>
#include <utility>

#include "codegen/analysis/round_count.h"
#include "codegen/thread_ir/walk.h"
#include "codegen/waits/place_waits.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

class GroupNumbers {
 public:
  explicit GroupNumbers(Program& program) : program_(program) {}

  void run() {
    Since since;
    visit(program_.body, since);
    if (copies_in_bulk_) program_.body.push_back({Await{}, {}});
  }

 private:
  /// By the author's group: the fewest commits of its kind of work since its own.
  using Since = std::map<std::pair<Work, int>, int64_t>;

  void visit(Body& body, Since& since) {
    for (Stmt& stmt : body) {
      by_structure(
          stmt, [&](For& loop) { visit_loop(loop, since); },
          [&](If& branch) { visit_branch(branch, since); },
          [&](RoleBodies& bodies) {
            for (RoleBodies::Role& role : bodies.roles) {
              Since of_role = since;
              visit(role.body, of_role);
            }
          });
      look_for_bulk_copies(stmt);
      if (auto* commit = std::get_if<Commit>(&stmt.node)) close(*commit, since);
      if (auto* wait = std::get_if<Await>(&stmt.node)) number(*wait, since);
    }
    std::erase_if(body, [](const Stmt& stmt) {
      const auto* wait = std::get_if<Await>(&stmt.node);
      return wait != nullptr && wait->token >= 0;
    });
  }

  void look_for_bulk_copies(const Stmt& stmt) {
    for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
      const bool is_copied = effect.writes && effect.is_grouped && effect.proxy == Proxy::async;
      is_bulk_open_ =
          is_bulk_open_ || (is_copied && effect.access.array->space == ArraySpace::shared);
    });
  }

  void close(Commit& commit, Since& since) {
    for (auto& [group, commits] : since) commits += group.first == commit.work ? 1 : 0;
    if (commit.work == Work::copies) {
      // The pipeliner awaits its own.
      copies_in_bulk_ = copies_in_bulk_ || (is_bulk_open_ && commit.token >= 0);
      is_bulk_open_ = false;
    }
    if (commit.token >= 0) since[{commit.work, std::exchange(commit.token, -1)}] = 0;
  }

  /// A wait for a store that the threads carry out keeps its token.
  static void number(Await& wait, const Since& since) {
    if (wait.token < 0) return;
    constexpr int64_t kMostPending = 1 << 20;
    const auto group = since.find({wait.work, wait.token});
    const bool is_known = group != since.end();
    TESSERA_CHECK(is_known || wait.work == Work::stores,
                  "a wait for a group of copies that is not in scope");
    if (!is_known) return;
    wait.pending = static_cast<int>(std::min(group->second, kMostPending));
    wait.token = -1;
  }

  void visit_loop(For& loop, Since& since) {
    // Every round adds as many commits as the first, so the first round has the fewest.
    Since round = since;
    visit(loop.body, round);
    const bool is_counted = break_of(loop) == nullptr && ir::is_constant(loop.begin) &&
                            ir::is_constant(loop.end) && ir::is_constant(loop.step);
    if (!is_counted) return;
    constexpr int64_t kMany = int64_t{1} << 32;  // more than any wait leaves in flight
    const int64_t rounds =
        std::min(kMany, round_count(loop.begin->integer, loop.end->integer, loop.step->integer));
    for (auto& [group, commits] : since) commits += rounds * (round.at(group) - commits);
  }

  void visit_branch(If& branch, Since& since) {
    Since then = since, otherwise = since;
    visit(branch.then, then);
    visit(branch.otherwise, otherwise);
    for (auto& [group, commits] : since) {
      commits = std::min(then.at(group), otherwise.at(group));
    }
  }

  Program& program_;
  bool is_bulk_open_ = false;    // a bulk or tensor copy since the last commit of copies
  bool copies_in_bulk_ = false;  // in a group with a token
};

/// True if another product goes on with the sum of `begin`, after statements from `at` on that need no sum and free no stage.
bool is_continued(const Body& body, size_t at, const Fence& begin) {
  for (; at < body.size(); ++at) {
    const Stmt& stmt = body[at];
    if (const auto* fence = std::get_if<Fence>(&stmt.node)) {
      if (fence->of == Fence::Of::shared) continue;
      return fence->of == Fence::Of::registers && fence->sum.array != nullptr &&
             fence->sum.array == begin.sum.array && fence->width == begin.width &&
             ir::equal(fence->sum.base, begin.sum.base);
    }
    const auto* const load = std::get_if<Load>(&stmt.node);
    const bool is_counter = load != nullptr && load->from.array->space == ArraySpace::registers &&
                            load->from.array != begin.sum.array;
    if (!is_counter && !std::holds_alternative<Comment>(stmt.node) &&
        !std::holds_alternative<Let>(stmt.node) &&
        !std::holds_alternative<MbarrierWait>(stmt.node)) {
      return false;
    }
  }
  return false;
}

/// Each product is awaited behind its commit. Products that add to one sum in turn are committed together.
void await_products(Body& body) {
  Fence begin;
  for (size_t i = 0; i < body.size(); ++i) {
    for_each_body(body[i], [](Body& inner) { await_products(inner); });
    const auto* fence = std::get_if<Fence>(&body[i].node);
    if (fence != nullptr && fence->of == Fence::Of::registers) begin = *fence;
    const auto* commit = std::get_if<Commit>(&body[i].node);
    if (commit == nullptr || commit->work != Work::products) continue;
    if (is_continued(body, i + 1, begin)) {
      body.erase(body.begin() + static_cast<std::ptrdiff_t>(i));
      --i;
      continue;
    }
    const Stmt wait = {Await{.work = Work::products, .sum = begin.sum, .width = begin.width},
                       body[i].loc, body[i].manual_sync};
    body.insert(body.begin() + static_cast<std::ptrdiff_t>(++i), wait);
  }
}

}  // namespace

void number_groups(Program& program) {
  GroupNumbers(program).run();
  await_products(program.body);
}

}  // namespace tessera::codegen
