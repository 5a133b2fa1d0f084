// Layouts go along three kinds of participants, in a component of fragments that share one:
//
//   parallel loop    fragment -> loop -> its other fragments. A loop takes its layout from one fragment: from one that it
//                    writes first (its threads must be the owners), then from one without replicas, then from any. An
//                    index must follow the digits of the layout; else the loop stays without one, and another is tried
//   reduction        source -> result: the axis drops out of the layout, the threads along it become replicas
//   view             all views of the same registers, reshaped
//
// add_given_layouts() puts in what nobody chooses: the author's layouts, reducers without contributions, the fragments of
// matrix products (sums first, so that a conflict between an author's layout and a product blames the operand), and full
// copies in every thread for reads outside of parallel loops, up to kMaxReplicated registers.
//
// propagate_layouts() then repeats over the participants of one component until none changes. Each is done once: a loop when it
// has a layout, a reduction when its source has. The order of participants is that of the program, so the result does not
// depend on addresses.
//
// Two demands on one fragment are a LayoutConflict. It names the use that could be staged through shared memory instead
// (stage_fragments.h); null where the author chose both sides, or where the fragment is a reducer, whose replicas differ.
// A loop may read a fragment of another layout if every thread holds the elements that it needs, in registers that it
// can name by constants (check_use).

#include "codegen/layouts/propagate_layouts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "codegen/products/atoms.h"
#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

using layout::Layout;
using MaybeConflict = std::optional<LayoutConflict>;

/// Most registers of a fragment that every thread holds whole.
constexpr int64_t kMaxReplicated = 64;

/// The layout that the instructions of `gemm` need for one of its fragments, of which they may use a part.
Layout layout_in_gemm(const ir::Gemm& gemm, const ir::BufferRef& fragment) {
  const layout::WarpGrid& grid = gemm.plan.grid;
  const int element_bits = bits(fragment->dtype);
  const Atom& atom = atom_of(gemm);
  const bool is_left = fragment == gemm.a.buffer, is_right = fragment == gemm.b.buffer;
  const ir::Region& region = is_left ? gemm.a : is_right ? gemm.b : gemm.c;
  const AxisRange rows = range_of(region, 0), columns = range_of(region, 1);
  if (is_left) {
    return atom.left(rows.whole, columns.whole, element_bits, grid, rows.parts(grid.rows));
  }
  if (is_right) {
    return atom.right(rows.whole, columns.whole, element_bits, grid, columns.parts(grid.columns));
  }
  return atom.sum(rows.whole, columns.whole, grid,
                  {rows.parts(grid.rows), columns.parts(grid.columns)});
}

/// Registers can only be indexed by constants and by loops with constant bounds.
bool has_fixed_index(const FragmentUse& use, const ir::Loop* parallel = nullptr) {
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

/// True if threads that hold an element in different registers would need it in one iteration: the
/// thread index cannot index registers.
bool threads_choose_slots(const Layout& have, const Layout& needed) {
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

class Propagation {
 public:
  Propagation(const Participants& participants, KnownLayouts& known)
      : participants_(participants), known_(known) {}

  MaybeConflict add_given() {
    for (const auto& [id, buffer] : participants_.fragments) {
      if (!buffer->layout) continue;
      if (auto conflict =
              set_fragment(buffer, for_all(*buffer->layout, holders_of(*buffer)), buffer->loc)) {
        return conflict;
      }
    }
    for (const int reducer : participants_.reducers) {
      // Without contributions any layout fits.
      if (participants_.updated.contains(reducer) || known_.fragments.contains(reducer)) continue;
      known_.fragments[reducer] = full_copies(*participants_.fragments.at(reducer));
    }
    for (const bool products : {true, false}) {
      for (const Participant& p : participants_.all) {
        if (p.gemm == nullptr) continue;
        for (const FragmentUse& use : p.fragments) {
          if (use.written != products) continue;
          if (auto conflict = require(p, use, layout_in_gemm(*p.gemm, use.buffer), "the gemm")) {
            if (products) conflict->use = nullptr;  // the author chose both layouts
            return conflict;
          }
        }
      }
    }
    for (const Participant& p : participants_.all) {
      if (p.read == nullptr) continue;
      const FragmentUse& use = p.fragments[0];
      int64_t size = 1;
      for (const int64_t extent : constants(use.buffer->shape)) size *= extent;
      if (size > kMaxReplicated || !has_fixed_index(use)) {
        return LayoutConflict{
            fmt::format("fragment '{}' is read by every thread", use.buffer->name),
            use.loc,
            {},
            &p,
            &use};
      }
      if (auto conflict =
              require(p, use, full_copies(*use.buffer), "a read outside of parallel loops")) {
        return conflict;
      }
    }
    return std::nullopt;
  }

  MaybeConflict propagate(int component) {
    std::set<const Participant*> done;
    bool changed = true;
    while (changed) {
      changed = false;
      for (const Participant& p : participants_.all) {
        if (p.component != component || done.contains(&p)) continue;
        if (p.loop != nullptr) {
          if (!plan_loop(p)) continue;
          if (auto conflict = push_to_fragments(p)) return conflict;
        } else if (p.reduce != nullptr || p.finalize != nullptr) {
          const auto source = known_.fragments.find(p.fragments[0].buffer->id);
          if (source == known_.fragments.end()) continue;
          if (auto conflict = push_to_result(p, source->second)) return conflict;
        } else {
          done.insert(&p);  // given
          continue;
        }
        done.insert(&p);
        changed = true;
      }
    }
    return std::nullopt;
  }

 private:
  Layout full_copies(const ir::Buffer& fragment) const {
    return layout::replicated(constants(fragment.shape), holders_of(fragment).count);
  }
  const ThreadGroup& holders_of(const ir::Buffer& fragment) const {
    return participants_.holders.at(fragment.id);
  }

  /// Sets the layout of a fragment and of all that share its registers.
  MaybeConflict set_fragment(const ir::BufferRef& buffer, const Layout& layout, SourceLoc loc) {
    for (const auto& [id, other] : participants_.fragments) {
      if (root_id(*other) != root_id(*buffer)) continue;
      auto view = id == buffer->id ? std::optional<Layout>(layout)
                                   : layout::reshape(layout, constants(other->shape));
      if (!view) {
        return LayoutConflict{fmt::format("the layout of fragment '{}' cannot be reshaped to [{}]",
                                          buffer->name, fmt::join(constants(other->shape), ", ")),
                              loc, other->loc};
      }
      known_.fragments[id] = *view;
    }
    return std::nullopt;
  }

  MaybeConflict require(const Participant& p, const FragmentUse& use, const Layout& needed,
                        const char* who) {
    const auto have = known_.fragments.find(use.buffer->id);
    if (have == known_.fragments.end()) return set_fragment(use.buffer, needed, use.loc);
    if (have->second == needed) return std::nullopt;
    return LayoutConflict{
        fmt::format("fragment '{}' has the layout {} but {} needs {}", use.buffer->name,
                    to_string(have->second), who, to_string(needed)),
        p.loc, use.buffer->loc, &p, &use};
  }

  /// True if every thread holds a part of every element, so that any thread may contribute to any.
  bool is_wide_reducer(const FragmentUse& use) const {
    const auto have = known_.fragments.find(use.buffer->id);
    return participants_.reducers.contains(use.buffer->id) && have != known_.fragments.end() &&
           have->second == full_copies(*use.buffer);
  }

  /// The use if its fragment may go through shared memory. A reducer may not: its replicas differ.
  const FragmentUse* movable(const FragmentUse& use) const {
    return participants_.reducers.contains(use.buffer->id) ? nullptr : &use;
  }

  /// Gives an unplanned loop the layout that follows from a fragment: from written fragments first,
  /// then from those without replicas. False if no fragment has a layout yet.
  bool plan_loop(const Participant& p) {
    if (known_.loops.contains(loop_id(*p.loop))) return true;
    for (const int preference : {0, 1, 2}) {
      for (const FragmentUse& use : p.fragments) {
        const auto found = known_.fragments.find(use.buffer->id);
        if (found == known_.fragments.end() || is_wide_reducer(use)) continue;
        const bool single = found->second.num_replicas() == 1;
        const int rank = use.written ? 0 : single ? 1 : 2;
        if (rank != preference) continue;
        const auto loop = loop_from_fragment(*p.loop, use, found->second, participants_.math);
        if (!loop || (p.copies == Copies::none && loop->num_replicas() > 1)) continue;
        known_.loops[loop_id(*p.loop)] = *loop;
        return true;
      }
    }
    return false;
  }

  /// Sets the layouts of a planned loop's fragments, or checks existing ones.
  MaybeConflict push_to_fragments(const Participant& p) {
    const Layout& iteration = known_.loops.at(loop_id(*p.loop));
    for (const FragmentUse& use : p.fragments) {
      if (is_wide_reducer(use)) continue;
      // Every thread of the group gets the value of a reducer, so it holds a part, maybe an empty
      // one.
      const bool is_reducer = participants_.reducers.contains(use.buffer->id);
      const auto needed = fragment_from_loop(
          *p.loop, use, is_reducer ? for_all(iteration, p.threads) : iteration, participants_.math);
      const bool known = known_.fragments.contains(use.buffer->id);
      if (needed && !known) {
        if (auto conflict = set_fragment(use.buffer, *needed, use.loc)) return conflict;
      } else if (needed) {
        if (auto conflict = check_use(p, use, *needed)) return conflict;
      } else if (!known || use.written || !has_fixed_index(use, p.loop) ||
                 known_.fragments.at(use.buffer->id) != full_copies(*use.buffer)) {
        return LayoutConflict{
            fmt::format("the index of fragment '{}' does not follow the digits of the loop layout",
                        use.buffer->name),
            use.loc, p.loc, &p, movable(use)};
      }
    }
    return std::nullopt;
  }

  MaybeConflict check_use(const Participant& p, const FragmentUse& use,
                          const Layout& needed) const {
    const Layout& have = known_.fragments.at(use.buffer->id);
    const bool readable = layout::contains(have, needed) && !threads_choose_slots(have, needed);
    const bool complete = !use.written || layout::contains(needed, have);
    if (readable && complete) return std::nullopt;
    return LayoutConflict{fmt::format("fragment '{}' has the layout {} but this loop needs {}",
                                      use.buffer->name, to_string(have), to_string(needed)),
                          use.loc, p.loc, &p, movable(use)};
  }

  /// Sets the layout of a reduction's result, or checks the existing one.
  MaybeConflict push_to_result(const Participant& p, const Layout& source) {
    // A reducer folds its replicas, so its result has its layout.
    const Layout result = p.reduce != nullptr ? layout::reduce(source, p.reduce->axis) : source;
    const ir::BufferRef& to = p.fragments[1].buffer;
    const auto have = known_.fragments.find(to->id);
    if (have == known_.fragments.end()) return set_fragment(to, result, p.loc);
    if (have->second.digits() == result.digits() && layout::contains(result, have->second)) {
      return std::nullopt;
    }
    return LayoutConflict{
        fmt::format("fragment '{}' has the layout {} but the reduction leaves its result as {}",
                    to->name, to_string(have->second), to_string(result)),
        p.loc, to->loc, &p, &p.fragments[1]};
  }

  const Participants& participants_;
  KnownLayouts& known_;
};

}  // namespace

Layout for_all(const Layout& layout, const ThreadGroup& threads) {
  const int64_t used = layout.num_threads();
  if (threads.count <= used || threads.count % used != 0) return layout;
  return layout::replicate(layout, threads.count / used);
}

MaybeConflict add_given_layouts(const Participants& participants, KnownLayouts& known) {
  return Propagation(participants, known).add_given();
}

MaybeConflict propagate_layouts(const Participants& participants, int component,
                                KnownLayouts& known) {
  return Propagation(participants, known).propagate(component);
}

}  // namespace tessera::codegen
