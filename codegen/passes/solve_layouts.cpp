#include "codegen/passes/solve_layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "codegen/layouts/layout_cost.h"
#include "codegen/layouts/layout_participants.h"
#include "codegen/layouts/propagate_layouts.h"
#include "codegen/layouts/stage_fragments.h"
#include "codegen/layouts/vector_width.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

using layout::Layout;

class Solver {
 public:
  explicit Solver(const ir::Kernel& kernel)
      : kernel_(kernel), participants_(find_participants(kernel)) {}

  /// Fills plan(), or returns the conflict that prevents it.
  std::optional<LayoutConflict> solve() {
    KnownLayouts known;
    if (auto conflict = add_given_layouts(participants_, known)) return conflict;
    for (int component = 0; component < participants_.num_components; ++component) {
      if (auto conflict = solve_component(component, known)) return conflict;
    }
    for (const Participant& p : participants_.all) {
      if (p.loop == nullptr) continue;
      const Layout& layout = known.loops.at(loop_id(*p.loop));
      layouts_.loops[loop_id(*p.loop)] = {layout, p.copies, vector_width(*p.loop, layout)};
      for (std::string& note : uncoalesced_accesses(p, layout, participants_.math)) {
        layouts_.uncoalesced.push_back(std::move(note));
      }
    }
    layouts_.fragments = std::move(known.fragments);
    return std::nullopt;
  }
  LayoutSolution& plan() { return layouts_; }

 private:
  Layout split(const Participant& p, int64_t width) const {
    const std::vector<int64_t> extents = constants(p.loop->extents);
    const Layout plan = layout::split(extents, p.threads.count, width);
    if (p.copies == Copies::none) return Layout(extents, plan.digits());
    return for_all(plan, p.threads);
  }

  /// A split of a loop into runs of `width` iterations.
  struct Proposal {
    int64_t width;
    Layout layout;
  };

  /// The splits that one loop proposes: one per distinct vector width of its accesses, widest
  /// first. A copy in pieces proposes the widths of pieces.
  std::vector<Proposal> proposals(const Participant& p) const {
    std::vector<int64_t> widths;
    if (is_in_pieces(*p.loop)) {
      widths = piece_widths(participants_.math, *p.loop);
      TESSERA_CHECK(!widths.empty(), "choose_copies chose pieces for a copy that has none");
    } else {
      int64_t limit = 16;
      while (p.loop->extents.back()->integer % limit != 0) limit /= 2;
      for (const MemoryUse& use : p.memory) {
        widths.push_back(feasible_vector(participants_.math, *use.buffer, use.indices,
                                         *p.loop->vars.back(), limit));
      }
      widths.push_back(1);
    }
    std::sort(widths.rbegin(), widths.rend());
    widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
    std::vector<Proposal> result;
    for (const int64_t width : widths) result.push_back({width, split(p, width)});
    return result;
  }
  /// The widths between the widest of its accesses and 1.
  std::vector<Proposal> shorter_proposals(const Participant& p) const {
    std::vector<Proposal> result;
    for (int64_t width = proposals(p).front().width / 2; width > 1; width /= 2) {
      result.push_back({width, split(p, width)});
    }
    return result;
  }

  /// True if two loops use the same elements of the same fragments and nothing else, so that they
  /// propose the same layouts.
  static bool proposes_the_same(const Participant& a, const Participant& b) {
    if (!a.memory.empty() || !b.memory.empty() || a.copies != b.copies) return false;
    if (constants(a.loop->extents) != constants(b.loop->extents)) return false;
    const auto in_terms_of_b = [&](const ir::Expr& e) {
      return ir::substitute(e, [&](const ir::VarRef& var) {
        const auto& vars = a.loop->vars;
        const auto found = std::find(vars.begin(), vars.end(), var);
        if (found == vars.end()) return ir::Expr();
        return ir::var(b.loop->vars[static_cast<size_t>(found - vars.begin())]);
      });
    };
    return std::equal(a.fragments.begin(), a.fragments.end(), b.fragments.begin(),
                      b.fragments.end(), [&](const FragmentUse& x, const FragmentUse& y) {
                        return x.buffer == y.buffer && x.written == y.written &&
                               std::equal(x.indices.begin(), x.indices.end(), y.indices.begin(),
                                          y.indices.end(),
                                          [&](const ir::Expr& i, const ir::Expr& j) {
                                            return ir::equal(in_terms_of_b(i), j);
                                          });
                      });
  }

  Proposal whole_rows(const Participant& p) const {
    const int64_t width = p.loop->extents.back()->integer;
    return {width, split(p, width)};
  }

  std::optional<LayoutConflict> propagate(KnownLayouts& known, int component) const {
    return propagate_layouts(participants_, component, known);
  }

  bool resolved(const KnownLayouts& known, int component) const {
    for (const Participant& p : participants_.all) {
      if (p.component != component) continue;
      if (p.loop != nullptr && !known.loops.contains(loop_id(*p.loop))) return false;
      for (const FragmentUse& use : p.fragments) {
        if (!known.fragments.contains(use.buffer->id)) return false;
      }
    }
    return true;
  }

  /// Propagates a proposal through its component. Parts that it does not determine take their own
  /// first proposal.
  std::optional<LayoutConflict> attempt_from(KnownLayouts& attempt, const Participant& root) const {
    const int component = root.component;
    auto conflict = propagate(attempt, component);
    while (!conflict && !resolved(attempt, component)) {
      const auto next = std::find_if(participants_.all.begin(), participants_.all.end(),
                                     [&](const Participant& p) {
                                       return p.component == component && p.loop != nullptr &&
                                              !attempt.loops.contains(loop_id(*p.loop));
                                     });
      if (next == participants_.all.end()) {
        return LayoutConflict{
            "a fragment is used before anything determines its layout", root.loc, {}};
      }
      attempt.loops[loop_id(*next->loop)] = proposals(*next).front().layout;
      conflict = propagate(attempt, component);
    }
    return conflict;
  }

  std::optional<LayoutConflict> solve_component(int component, KnownLayouts& known) {
    if (auto conflict = propagate(known, component)) return conflict;
    if (resolved(known, component)) return std::nullopt;
    Search search;
    std::vector<const Participant*> open;
    for (const Participant& root : participants_.all) {
      const bool is_open = root.component == component && root.loop != nullptr &&
                           !known.loops.contains(loop_id(*root.loop));
      const bool is_new = is_open && std::none_of(open.begin(), open.end(), [&](const auto* other) {
                            return proposes_the_same(root, *other);
                          });
      if (is_new) open.push_back(&root);
    }
    const auto roots = [&](const auto& propose) {
      for (const Participant* root : open) try_root(search, known, *root, propose(*root));
    };
    roots([&](const Participant& root) { return proposals(root); });
    // Long runs do not suit one of the loops: shorter ones may.
    if (!search.best || search.is_scalar) {
      roots([&](const Participant& root) { return shorter_proposals(root); });
    }
    // Views that split the rows differently agree on rows that no threads share.
    const bool by_views = search.first && search.first->use == nullptr;
    if (!search.best && by_views) {
      roots([&](const Participant& root) { return std::vector<Proposal>{whole_rows(root)}; });
    }
    if (!search.best) {
      if (search.first) return search.first;
      return LayoutConflict{"no layout fits this program", kernel_.body.front().loc, {}};
    }
    known = std::move(*search.best);
    return std::nullopt;
  }

  struct Search {
    std::optional<KnownLayouts> best;
    double best_cost = 0;
    bool is_scalar =
        false;  // the best one accesses elements one by one where a loop could take more
    std::optional<LayoutConflict> first;  // why the first proposal fails
  };

  void try_root(Search& search, const KnownLayouts& known, const Participant& root,
                const std::vector<Proposal>& proposals) {
    for (const auto& [width, proposal] : proposals) {
      KnownLayouts attempt = known;
      attempt.loops[loop_id(*root.loop)] = proposal;
      if (const auto conflict = attempt_from(attempt, root)) {
        note(root, proposal, "rejected: " + conflict->what);
        if (!search.first) search.first = conflict;
        continue;
      }
      const double cost = component_cost(attempt, root.component);
      note(root, proposal, fmt::format("cost {:.1f}", cost));
      if (!search.best || cost < search.best_cost) {
        search.best = std::move(attempt);
        search.best_cost = cost;
        search.is_scalar = width == 1 && proposals.front().width > 1;
      }
    }
  }

  double component_cost(const KnownLayouts& known, int component) const {
    double cost = 0;
    for (const Participant& p : participants_.all) {
      const bool counts = p.loop != nullptr || p.reduce != nullptr || p.finalize != nullptr;
      if (p.component != component || !counts) continue;
      const Layout& layout = p.loop != nullptr ? known.loops.at(loop_id(*p.loop))
                                               : known.fragments.at(p.fragments[0].buffer->id);
      cost += layout_cost(p, layout, participants_.math);
    }
    return cost;
  }

  void note(const Participant& root, const Layout& proposal, const std::string& verdict) {
    const std::string what = root.loop->label.empty() ? "parallel loop" : root.loop->label;
    layouts_.notes.push_back(
        fmt::format("{}: {} ({}): {}", to_string(root.loc), what, to_string(proposal), verdict));
  }

  const ir::Kernel& kernel_;
  const Participants participants_;
  LayoutSolution layouts_;
};

[[noreturn]] void fail(const ir::Kernel& kernel, const LayoutConflict& conflict) {
  throw Error(
      {.kind = ErrorKind::program,
       .op = kernel.name,
       .what = conflict.what,
       .hint =
           "copy the fragment into one with the layout that this use needs, or stage it through "
           "shared memory",
       .code = "LAYOUT_CONFLICT",
       .loc = conflict.loc,
       .related = conflict.related});
}

}  // namespace

LayoutSolution solve_layouts(ir::Kernel& kernel) {
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
    // `kernel` owns the participant's statement and is not const.
    relayouts.push_back(staging.stage(conflict->participant->stmt, FragmentUse(*conflict->use)) +
                        conflict->what);
  }
}

}  // namespace tessera::codegen
