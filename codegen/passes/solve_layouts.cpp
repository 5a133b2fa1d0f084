#include "codegen/passes/solve_layouts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "codegen/passes/layout_cost.h"
#include "codegen/passes/layout_participants.h"
#include "codegen/passes/stage_fragments.h"
#include "dsl/base/error.h"
#include "dsl/layout/mma.h"

namespace tessera::codegen {
namespace {

using layout::Layout;

/// A fragment that every thread holds whole: at most so many registers.
constexpr int64_t kMaxReplicated = 64;

struct State {
  std::map<int, Layout> fragments;
  std::map<const ir::Loop*, Layout> loops;
};

/// Why an attempt failed, and the use that could be staged instead.
struct Conflict {
  std::string what;
  SourceLoc loc, related;
  const Participant* participant = nullptr;
  const FragmentUse* use = nullptr;
};

std::vector<int64_t> constants(const std::vector<ir::Expr>& list) {
  std::vector<int64_t> values;
  for (const ir::Expr& e : list) values.push_back(e->integer);
  return values;
}

/// The layout that the instructions of `gemm` want of one of its fragments.
Layout layout_in_gemm(const ir::Gemm& gemm, const ir::BufferRef& fragment) {
  const std::vector<int64_t> shape = constants(fragment->shape);
  const int element_bits = bits(fragment->dtype);
  if (fragment == gemm.a.buffer) {
    return layout::mma_left(shape[0], shape[1], element_bits, gemm.warps);
  }
  if (fragment == gemm.b.buffer) {
    return layout::mma_right(shape[0], shape[1], element_bits, gemm.warps);
  }
  return layout::mma_accumulator(shape[shape.size() - 2], shape[shape.size() - 1], gemm.warps);
}

class Solver {
 public:
  explicit Solver(const ir::Kernel& kernel)
      : kernel_(kernel), participants_(find_participants(kernel)) {}

  /// Fills plan(), or says what is in the way.
  std::optional<Conflict> solve() {
    State state;
    if (auto conflict = set_given(state)) return conflict;
    for (int component = 0; component < participants_.num_components; ++component) {
      if (auto conflict = solve_component(component, state)) return conflict;
    }
    for (const Participant& p : participants_.all) {
      if (p.loop == nullptr) continue;
      for (std::string& note :
           uncoalesced_accesses(p, state.loops.at(p.loop), kernel_.threads, participants_.math)) {
        plan_.uncoalesced.push_back(std::move(note));
      }
    }
    plan_.fragments = std::move(state.fragments);
    plan_.loops = std::move(state.loops);
    return std::nullopt;
  }
  LayoutPlan& plan() { return plan_; }

 private:
  /// Threads beyond the layout's own hold further copies, so that every thread of the block owns
  /// something.
  Layout whole_block(const Layout& layout) const {
    const int64_t used = layout.num_threads();
    if (kernel_.threads > used && kernel_.threads % used == 0) {
      return layout::replicate(layout, kernel_.threads / used);
    }
    return layout;
  }

  // ---- what is given

  /// The author's layouts, those of matrix instructions, and full copies for reads by every thread.
  std::optional<Conflict> set_given(State& state) {
    for (const auto& [id, buffer] : participants_.fragments) {
      if (!buffer->layout) continue;
      if (auto conflict = set_fragment(state, buffer, whole_block(*buffer->layout), buffer->loc)) {
        return conflict;
      }
    }
    for (const int reducer : participants_.reducers) {
      // Where nothing is contributed any layout does.
      if (participants_.updated.contains(reducer) || state.fragments.contains(reducer)) continue;
      const std::vector<int64_t> shape = constants(participants_.fragments.at(reducer)->shape);
      state.fragments[reducer] = layout::replicated(shape, kernel_.threads);
    }
    for (const bool products : {true, false}) {
      for (const Participant& p : participants_.all) {
        if (p.gemm == nullptr) continue;
        for (const FragmentUse& use : p.fragments) {
          if (use.written != products) continue;
          if (auto conflict =
                  require(state, p, use, layout_in_gemm(*p.gemm, use.buffer), "the gemm")) {
            if (products) conflict->use = nullptr;  // two layouts by the author's own choice
            return conflict;
          }
        }
      }
    }
    for (const Participant& p : participants_.all) {
      if (p.read == nullptr) continue;
      const FragmentUse& use = p.fragments[0];
      const std::vector<int64_t> shape = constants(use.buffer->shape);
      int64_t size = 1;
      for (const int64_t extent : shape) size *= extent;
      if (size > kMaxReplicated || !has_fixed_index(use)) {
        return Conflict{fmt::format("fragment '{}' is read by every thread", use.buffer->name),
                        use.loc,
                        {},
                        &p,
                        &use};
      }
      const Layout needed = layout::replicated(shape, kernel_.threads);
      if (auto conflict = require(state, p, use, needed, "a read outside of parallel loops")) {
        return conflict;
      }
    }
    return std::nullopt;
  }

  std::optional<Conflict> require(State& state, const Participant& p, const FragmentUse& use,
                                  const Layout& needed, const char* who) {
    const auto have = state.fragments.find(use.buffer->id);
    if (have == state.fragments.end()) return set_fragment(state, use.buffer, needed, use.loc);
    if (have->second == needed) return std::nullopt;
    return Conflict{fmt::format("fragment '{}' has the layout {} but {} needs {}", use.buffer->name,
                                to_string(have->second), who, to_string(needed)),
                    p.loc, use.buffer->loc, &p, &use};
  }

  /// Registers can only be indexed by constants and by loops of constant bounds.
  static bool has_fixed_index(const FragmentUse& use, const ir::Loop* parallel = nullptr) {
    std::vector<ir::VarRef> vars;
    for (const ir::Expr& e : use.indices) ir::collect_vars(e, vars);
    return std::all_of(vars.begin(), vars.end(), [&](const ir::VarRef& var) {
      const bool by_thread =
          parallel != nullptr &&
          std::find(parallel->vars.begin(), parallel->vars.end(), var) != parallel->vars.end();
      return !by_thread && var->kind == ir::VarKind::loop && var->lower && var->upper &&
             ir::is_constant(var->lower) && ir::is_constant(var->upper);
    });
  }

  // ---- propagation

  std::optional<Conflict> set_fragment(State& state, const ir::BufferRef& buffer,
                                       const Layout& layout, SourceLoc loc) {
    for (const auto& [id, other] : participants_.fragments) {
      if (root_id(*other) != root_id(*buffer)) continue;
      auto view = id == buffer->id ? std::optional<Layout>(layout)
                                   : layout::reshape(layout, constants(other->shape));
      if (!view) {
        return Conflict{fmt::format("the layout of fragment '{}' cannot be reshaped to [{}]",
                                    buffer->name, fmt::join(constants(other->shape), ", ")),
                        loc, other->loc};
      }
      state.fragments[id] = *view;
    }
    return std::nullopt;
  }

  /// True if threads that hold an element in different registers would need it in one iteration:
  /// registers cannot be indexed by the thread.
  static bool threads_choose_slots(const Layout& have, const Layout& needed) {
    for (const layout::Digit& held : have.digits()) {
      if (held.slot == 0) continue;
      for (const layout::Digit& wanted : needed.digits()) {
        const bool overlap = wanted.axis == held.axis && wanted.thread != 0 &&
                             wanted.div < held.div * held.extent &&
                             held.div < wanted.div * wanted.extent;
        if (overlap) return true;
      }
    }
    return false;
  }

  std::optional<Conflict> check_use(const State& state, const Participant& p,
                                    const FragmentUse& use, const Layout& needed) const {
    const Layout& have = state.fragments.at(use.buffer->id);
    const bool readable = layout::contains(have, needed) && !threads_choose_slots(have, needed);
    const bool complete = !use.written || layout::contains(needed, have);
    if (readable && complete) return std::nullopt;
    return Conflict{fmt::format("fragment '{}' has the layout {} but this loop needs {}",
                                use.buffer->name, to_string(have), to_string(needed)),
                    use.loc, p.loc, &p, movable(use)};
  }

  Conflict no_digits(const Participant& p, const FragmentUse& use) const {
    return {fmt::format("the index of fragment '{}' does not follow the digits of the loop layout",
                        use.buffer->name),
            use.loc, p.loc, &p, movable(use)};
  }

  /// True if every thread holds a part of every element: then any thread may contribute anywhere.
  bool is_wide_reducer(const State& state, const FragmentUse& use) const {
    const auto have = state.fragments.find(use.buffer->id);
    return participants_.reducers.contains(use.buffer->id) && have != state.fragments.end() &&
           have->second == layout::replicated(constants(use.buffer->shape), kernel_.threads);
  }

  /// The use, if its fragment may go through shared memory: the copies of a reducer differ.
  const FragmentUse* movable(const FragmentUse& use) const {
    return participants_.reducers.contains(use.buffer->id) ? nullptr : &use;
  }

  /// Gives fragments of a planned loop their layout, or checks the one they have.
  std::optional<Conflict> push_to_fragments(State& state, const Participant& p) {
    const Layout& iteration = state.loops.at(p.loop);
    for (const FragmentUse& use : p.fragments) {
      if (is_wide_reducer(state, use)) continue;
      const auto needed = fragment_from_loop(*p.loop, use, iteration, participants_.math);
      const bool known = state.fragments.contains(use.buffer->id);
      if (needed && !known) {
        if (auto conflict = set_fragment(state, use.buffer, *needed, use.loc)) return conflict;
      } else if (needed) {
        if (auto conflict = check_use(state, p, use, *needed)) return conflict;
      } else if (!known || use.written || !has_fixed_index(use, p.loop) ||
                 state.fragments.at(use.buffer->id) !=
                     layout::replicated(constants(use.buffer->shape), kernel_.threads)) {
        return no_digits(p, use);
      }
    }
    return std::nullopt;
  }

  /// A layout for an unplanned loop from a fragment that has one: written fragments first, then
  /// those without copies.
  std::optional<Layout> pull_from_fragments(const State& state, const Participant& p) const {
    for (const int preference : {0, 1, 2}) {
      for (const FragmentUse& use : p.fragments) {
        const auto found = state.fragments.find(use.buffer->id);
        if (found == state.fragments.end() || is_wide_reducer(state, use)) continue;
        const bool single = found->second.num_replicas() == 1;
        const int rank = use.written ? 0 : single ? 1 : 2;
        if (rank != preference) continue;
        if (auto loop = loop_from_fragment(*p.loop, use, found->second, participants_.math))
          return loop;
      }
    }
    return std::nullopt;
  }

  /// Carries what is known through a component until nothing changes.
  std::optional<Conflict> propagate(State& state, int component) {
    std::set<const Participant*> done;
    bool changed = true;
    while (changed) {
      changed = false;
      for (const Participant& p : participants_.all) {
        if (p.component != component || done.contains(&p)) continue;
        const bool reduces = p.reduce != nullptr || p.finalize != nullptr;
        if (p.loop == nullptr && !reduces) {
          done.insert(&p);  // given
          continue;
        }
        if (reduces) {
          const auto source = state.fragments.find(p.fragments[0].buffer->id);
          if (source == state.fragments.end()) continue;
          // A reducer folds its copies, so its result lies where it does.
          const Layout result =
              p.reduce != nullptr ? layout::reduce(source->second, p.reduce->axis) : source->second;
          const ir::BufferRef& to = p.fragments[1].buffer;
          const auto have = state.fragments.find(to->id);
          if (have == state.fragments.end()) {
            if (auto conflict = set_fragment(state, to, result, p.loc)) return conflict;
          } else if (have->second.digits() != result.digits() ||
                     !layout::contains(result, have->second)) {
            return Conflict{
                fmt::format(
                    "fragment '{}' has the layout {} but the reduction leaves its result as {}",
                    to->name, to_string(have->second), to_string(result)),
                p.loc, to->loc, &p, &p.fragments[1]};
          }
        } else {
          if (!state.loops.contains(p.loop)) {
            auto loop = pull_from_fragments(state, p);
            if (!loop) continue;
            state.loops[p.loop] = *loop;
          }
          if (auto conflict = push_to_fragments(state, p)) return conflict;
        }
        done.insert(&p);
        changed = true;
      }
    }
    return std::nullopt;
  }

  // ---- candidates

  /// Splits proposed by one loop: one per distinct vector width of its accesses, widest first.
  std::vector<Layout> proposals(const Participant& p) const {
    const std::vector<int64_t> extents = constants(p.loop->extents);
    std::vector<int64_t> widths;
    int64_t limit = 16;
    while (extents.back() % limit != 0) limit /= 2;
    for (const MemoryUse& use : p.memory) {
      widths.push_back(feasible_vector(participants_.math, *use.buffer, use.indices,
                                       *p.loop->vars.back(), limit));
    }
    widths.push_back(1);
    std::sort(widths.rbegin(), widths.rend());
    widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
    std::vector<Layout> result;
    for (const int64_t width : widths) {
      result.push_back(whole_block(layout::plan(extents, kernel_.threads, width)));
    }
    return result;
  }

  Layout whole_rows(const Participant& p) const {
    const std::vector<int64_t> extents = constants(p.loop->extents);
    return whole_block(layout::plan(extents, kernel_.threads, extents.back()));
  }

  bool resolved(const State& state, int component) const {
    for (const Participant& p : participants_.all) {
      if (p.component != component) continue;
      if (p.loop != nullptr && !state.loops.contains(p.loop)) return false;
      for (const FragmentUse& use : p.fragments) {
        if (!state.fragments.contains(use.buffer->id)) return false;
      }
    }
    return true;
  }

  /// Carries a proposal through its component; parts that it does not determine take their own first
  /// proposal.
  std::optional<Conflict> attempt_from(State& attempt, const Participant& root, int component) {
    auto conflict = propagate(attempt, component);
    while (!conflict && !resolved(attempt, component)) {
      const auto next = std::find_if(
          participants_.all.begin(), participants_.all.end(), [&](const Participant& p) {
            return p.component == component && p.loop != nullptr && !attempt.loops.contains(p.loop);
          });
      if (next == participants_.all.end()) {
        return Conflict{"a fragment is used before anything determines its layout", root.loc, {}};
      }
      attempt.loops[next->loop] = proposals(*next).front();
      conflict = propagate(attempt, component);
    }
    return conflict;
  }

  std::optional<Conflict> solve_component(int component, State& state) {
    if (auto conflict = propagate(state, component)) return conflict;
    if (resolved(state, component)) return std::nullopt;
    Search search;
    const auto roots = [&](const auto& propose) {
      for (const Participant& root : participants_.all) {
        const bool open =
            root.component == component && root.loop != nullptr && !state.loops.contains(root.loop);
        if (open) try_root(search, state, root, propose(root));
      }
    };
    roots([&](const Participant& root) { return proposals(root); });
    // Views that cut the rows in different ways agree on rows that no thread shares.
    const bool by_views = search.first && search.first->use == nullptr;
    if (!search.best && by_views) {
      roots([&](const Participant& root) { return std::vector<Layout>{whole_rows(root)}; });
    }
    if (!search.best) {
      if (search.first) return search.first;
      return Conflict{"no layout fits this program", kernel_.body.front().loc, {}};
    }
    state = std::move(*search.best);
    return std::nullopt;
  }

  struct Search {
    std::optional<State> best;
    double best_cost = 0;
    std::optional<Conflict> first;  // why the first proposal does not fit
  };

  void try_root(Search& search, const State& state, const Participant& root,
                const std::vector<Layout>& proposals) {
    for (const Layout& proposal : proposals) {
      State attempt = state;
      attempt.loops[root.loop] = proposal;
      if (const auto conflict = attempt_from(attempt, root, root.component)) {
        note(root, proposal, "rejected: " + conflict->what);
        if (!search.first) search.first = conflict;
        continue;
      }
      const double cost = component_cost(attempt, root.component);
      note(root, proposal, fmt::format("cost {:.1f}", cost));
      if (!search.best || cost < search.best_cost) {
        search.best = std::move(attempt);
        search.best_cost = cost;
      }
    }
  }

  double component_cost(const State& state, int component) const {
    double cost = 0;
    for (const Participant& p : participants_.all) {
      const bool counts = p.loop != nullptr || p.reduce != nullptr || p.finalize != nullptr;
      if (p.component != component || !counts) continue;
      const Layout& layout = p.loop != nullptr ? state.loops.at(p.loop)
                                               : state.fragments.at(p.fragments[0].buffer->id);
      cost += layout_cost(p, layout, kernel_.threads, participants_.math);
    }
    return cost;
  }

  void note(const Participant& root, const Layout& proposal, const std::string& verdict) {
    const std::string what = root.loop->label.empty() ? "parallel loop" : root.loop->label;
    plan_.notes.push_back(
        fmt::format("{}: {} ({}): {}", to_string(root.loc), what, to_string(proposal), verdict));
  }

  const ir::Kernel& kernel_;
  const Participants participants_;
  LayoutPlan plan_;
};

[[noreturn]] void fail(const ir::Kernel& kernel, const Conflict& conflict) {
  ErrorFields fields;
  fields.kind = ErrorKind::program;
  fields.op = kernel.name;
  fields.code = "LAYOUT_CONFLICT";
  fields.what = conflict.what;
  fields.loc = conflict.loc;
  fields.related = conflict.related;
  fields.hint =
      "copy the fragment into one with the layout that this use needs, or stage it through "
      "shared memory";
  throw Error(std::move(fields));
}

}  // namespace

LayoutPlan solve_layouts(ir::Kernel& kernel) {
  FragmentStaging staging(kernel);
  std::vector<std::string> relayouts;
  while (true) {
    Solver solver(kernel);
    const auto conflict = solver.solve();
    if (!conflict) {
      solver.plan().relayouts = std::move(relayouts);
      return std::move(solver.plan());
    }
    if (conflict->use == nullptr) fail(kernel, *conflict);
    // The participant's statement is one of `kernel`, which is ours to change.
    relayouts.push_back(staging.stage(conflict->participant->stmt, FragmentUse(*conflict->use)) +
                        conflict->what);
  }
}

}  // namespace tessera::codegen
