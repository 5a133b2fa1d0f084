#include "codegen/layouts/fragment_layouts.h"

#include <algorithm>

#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

using layout::Digit;
using layout::Layout;
using layout::Replica;

/// index = (loop var / div) % mod. mod 0 = no modulo; axis -1 = a constant.
struct DigitIndex {
  int axis = -1;
  int64_t div = 1;
  int64_t mod = 0;
};

std::optional<DigitIndex> digit_index(const ir::Loop& loop, const ir::Expr& index,
                                      const IndexMath& math) {
  const Form form = math.form(index, true);
  DigitIndex result;
  if (form.terms.empty()) return result;
  if (form.terms.size() != 1 || form.terms[0].coefficient != 1 || form.constant != 0) {
    return std::nullopt;
  }
  ir::Expr e = form.terms[0].atom;
  if (e->op == ir::Op::mod && ir::is_constant(e->args[1])) {
    result.mod = e->args[1]->integer;
    e = e->args[0];
  }
  if (e->op == ir::Op::div && ir::is_constant(e->args[1])) {
    result.div = e->args[1]->integer;
    e = e->args[0];
  }
  if (e->op != ir::Op::var) return std::nullopt;
  for (size_t v = 0; v < loop.vars.size(); ++v) {
    if (loop.vars[v] == e->var) result.axis = static_cast<int>(v);
  }
  if (result.axis < 0) return std::nullopt;
  return result;
}

/// One summand coefficient * variable of an index, with the variable below `extent`.
struct Component {
  static constexpr int kInner = -1;  // of a loop inside the parallel one, or a constant index
  int axis = kInner;                 // of the parallel loop
  int64_t coefficient = 1;
  int64_t extent = 1;
};
using Chain = std::vector<Component>;

/// The extent of a loop inside `body` whose index `var` counts from 0 in steps of 1; 0 if there is
/// none.
int64_t inner_extent(const ir::Body& body, const ir::VarRef& var) {
  for (const ir::Stmt& stmt : body) {
    int64_t found = 0;
    if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) {
      const bool counts = ir::is_constant(loop->begin, 0) && ir::is_constant(loop->step, 1) &&
                          ir::is_constant(loop->extents[0]);
      if (loop->vars[0] == var) return counts ? loop->extents[0]->integer : 0;
    }
    for_each_body(stmt, [&](const ir::Body& inner) {
      if (found == 0) found = inner_extent(inner, var);
    });
    if (found != 0) return found;
  }
  return 0;
}

/// The index as a mixed-radix number of loop variables, least significant first: 4 * u + c for c
/// below 4. A constant represents any value of an inner loop over the whole dimension; in 16 + i for i below
/// 16, the place of a part of 16, one over the parts.
std::optional<Chain> chain_of(const ir::Loop& loop, const ir::Expr& index, int64_t extent,
                              const IndexMath& math) {
  const Form form = math.form(index, true);
  if (form.terms.empty()) return Chain{{Component::kInner, 1, extent}};
  Chain chain;
  for (const Term& term : form.terms) {
    if (term.atom->op != ir::Op::var || term.coefficient < 1) return std::nullopt;
    Component component;
    component.coefficient = term.coefficient;
    for (size_t v = 0; v < loop.vars.size(); ++v) {
      if (loop.vars[v] == term.atom->var) {
        component.axis = static_cast<int>(v);
        component.extent = loop.extents[v]->integer;
      }
    }
    if (component.axis < 0) component.extent = inner_extent(loop.body, term.atom->var);
    if (component.extent == 0) return std::nullopt;
    chain.push_back(component);
  }
  std::sort(chain.begin(), chain.end(),
            [](const Component& a, const Component& b) { return a.coefficient < b.coefficient; });
  int64_t next = 1;
  for (const Component& component : chain) {
    if (component.coefficient != next) return std::nullopt;
    next *= component.extent;
  }
  if (form.constant == 0) return chain;
  if (form.constant % next != 0 || extent % next != 0) return std::nullopt;
  chain.push_back({Component::kInner, next, extent / next});
  return chain;
}

/// The chains of all indices; nothing if one index is no chain.
std::optional<std::vector<Chain>> chains_of(const ir::Loop& loop, const FragmentUse& use,
                                            const IndexMath& math) {
  std::vector<Chain> chains;
  for (size_t d = 0; d < use.indices.size(); ++d) {
    auto chain = chain_of(loop, use.indices[d], use.buffer->shape[d]->integer, math);
    if (!chain) return std::nullopt;
    chains.push_back(std::move(*chain));
  }
  return chains;
}

bool has_inner(const std::vector<Chain>& chains) {
  return std::any_of(chains.begin(), chains.end(), [](const Chain& chain) {
    return std::any_of(chain.begin(), chain.end(), [](const Component& component) {
      return component.axis == Component::kInner && component.extent > 1;
    });
  });
}

/// True if the chains contain every parallel axis of more than one iteration exactly once.
bool determines_iteration(const ir::Loop& loop, const std::vector<Chain>& chains) {
  std::vector<int> uses(loop.vars.size(), 0);
  for (const Chain& chain : chains) {
    for (const Component& component : chain) {
      if (component.axis >= 0) ++uses[static_cast<size_t>(component.axis)];
    }
  }
  for (size_t v = 0; v < uses.size(); ++v) {
    if (uses[v] > 1 || (uses[v] == 0 && loop.extents[v]->integer != 1)) return false;
  }
  return true;
}

/// True if the row-major position in the fragment equals the row-major position in the loop.
bool same_order(const ir::Loop& loop, const FragmentUse& use, const IndexMath& math) {
  ir::Expr in_loop = ir::index(0);
  ir::Expr in_fragment = ir::index(0);
  int64_t loop_size = 1;
  int64_t fragment_size = 1;
  for (size_t v = 0; v < loop.vars.size(); ++v) {
    in_loop = in_loop * loop.extents[v] + ir::var(loop.vars[v]);
    loop_size *= loop.extents[v]->integer;
  }
  for (size_t d = 0; d < use.indices.size(); ++d) {
    in_fragment = in_fragment * use.buffer->shape[d] + use.indices[d];
    fragment_size *= use.buffer->shape[d]->integer;
  }
  return loop_size == fragment_size && math.same(in_loop, in_fragment);
}

/// Returns nothing if some elements have no place. A loop over a part of a fragment says nothing
/// about the rest, which normal form fills with digits without strides.
std::optional<Layout> complete(Layout layout) {
  for (const Digit& digit : layout.digits()) {
    if (digit.thread == 0 && digit.slot == 0) return std::nullopt;
  }
  return layout;
}

/// Renumbers slots densely, keeping their order.
std::vector<Digit> compact_slots(std::vector<Digit> digits) {
  std::vector<Digit*> slots;
  for (Digit& digit : digits) {
    if (digit.slot > 0) slots.push_back(&digit);
  }
  std::stable_sort(slots.begin(), slots.end(),
                   [](const Digit* a, const Digit* b) { return a->slot < b->slot; });
  int64_t stride = 1;
  for (Digit* digit : slots) {
    digit->slot = stride;
    stride *= digit->extent;
  }
  return digits;
}

}  // namespace

namespace {

/// Splits a digit of the fragment where the index has joints, and gives each part to its loop axis.
/// Parts that an inner loop indexes must stay in one thread and leave the loop's layout.
bool hand_to_axes(Digit digit, const Chain& chain, std::vector<Digit>& result) {
  for (size_t c = 0; c < chain.size() && digit.extent > 1; ++c) {
    const Component& component = chain[c];
    const bool last = c + 1 == chain.size();
    const int64_t end = component.coefficient * component.extent;
    if (!last && digit.div >= end) continue;
    Digit part = digit;
    if (!last && digit.div * digit.extent > end) {
      part.extent = end / digit.div;
      if (end % digit.div != 0 || digit.extent % part.extent != 0) return false;
    }
    if (part.div % component.coefficient != 0) return false;
    if (component.axis >= 0) {
      result.push_back(
          {component.axis, part.div / component.coefficient, part.extent, part.thread, part.slot});
    } else if (part.thread != 0) {
      return false;
    }
    digit.div *= part.extent;
    digit.thread *= part.extent;
    digit.slot *= part.extent;
    digit.extent /= part.extent;
  }
  return digit.extent == 1;
}

/// fragment_from_loop for indices that are chains.
std::optional<Layout> fragment_from_chains(const std::vector<Chain>& chains,
                                           const std::vector<int64_t>& shape,
                                           const Layout& iteration) {
  std::vector<Digit> digits;
  std::vector<bool> used(iteration.shape().size(), false);
  int64_t inner_slots = 1;
  for (size_t d = 0; d < chains.size(); ++d) {
    for (const Component& component : chains[d]) {
      if (component.axis >= 0) continue;
      digits.push_back(
          {static_cast<int>(d), component.coefficient, component.extent, 0, inner_slots});
      inner_slots *= component.extent;
    }
  }
  for (size_t d = 0; d < chains.size(); ++d) {
    for (size_t c = 0; c < chains[d].size(); ++c) {
      const Component& component = chains[d][c];
      if (component.axis < 0) continue;
      const bool last = c + 1 == chains[d].size();
      if (used[static_cast<size_t>(component.axis)]) return std::nullopt;
      if (!last && iteration.padded_extent(component.axis) != component.extent) return std::nullopt;
      used[static_cast<size_t>(component.axis)] = true;
      for (const Digit& digit : iteration.digits()) {
        if (digit.axis != component.axis) continue;
        digits.push_back({static_cast<int>(d), digit.div * component.coefficient, digit.extent,
                          digit.thread, digit.slot * inner_slots});
      }
    }
  }
  std::vector<Replica> replicas = iteration.replicas();
  for (const Digit& digit : iteration.digits()) {
    if (!used[static_cast<size_t>(digit.axis)] && digit.thread > 0) {
      replicas.push_back({digit.extent, digit.thread});
    }
  }
  Layout result(shape, compact_slots(std::move(digits)), std::move(replicas));
  return complete(std::move(result));
}

}  // namespace

std::vector<int64_t> constants(const std::vector<ir::Expr>& list) {
  std::vector<int64_t> values;
  for (const ir::Expr& e : list) values.push_back(e->integer);
  return values;
}

bool same_indices(const std::vector<ir::Expr>& a, const std::vector<ir::Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const ir::Expr& x, const ir::Expr& y) { return IndexMath().same(x, y); });
}

std::optional<Layout> loop_from_fragment(const ir::Loop& loop, const FragmentUse& use,
                                         const Layout& fragment, const IndexMath& math) {
  const std::vector<int64_t> extents = constants(loop.extents);
  if (const auto chains = chains_of(loop, use, math);
      chains && determines_iteration(loop, *chains)) {
    std::vector<Digit> digits;
    for (const Digit& digit : fragment.digits()) {
      if (!hand_to_axes(digit, (*chains)[static_cast<size_t>(digit.axis)], digits)) {
        return std::nullopt;
      }
    }
    if (has_inner(*chains)) digits = compact_slots(std::move(digits));
    return Layout(extents, std::move(digits), fragment.replicas());
  }
  if (same_order(loop, use, math)) return layout::reshape(fragment, extents);
  return std::nullopt;
}

std::optional<Layout> fragment_from_loop(const ir::Loop& loop, const FragmentUse& use,
                                         const Layout& iteration, const IndexMath& math) {
  const std::vector<int64_t> shape = constants(use.buffer->shape);
  if (const auto chains = chains_of(loop, use, math); chains && has_inner(*chains)) {
    return fragment_from_chains(*chains, shape, iteration);
  }
  std::vector<DigitIndex> indices;
  bool plain = true;
  for (const ir::Expr& e : use.indices) {
    const auto index = digit_index(loop, e, math);
    plain = plain && index.has_value();
    if (index) indices.push_back(*index);
  }
  if (!plain) {
    if (!same_order(loop, use, math)) return std::nullopt;
    return layout::reshape(iteration, shape);
  }
  std::vector<Digit> digits;
  std::vector<Replica> replicas = iteration.replicas();
  std::vector<Digit> open(iteration.digits().rbegin(), iteration.digits().rend());
  while (!open.empty()) {
    const Digit digit = open.back();
    open.pop_back();
    bool used = false;
    bool split = false;
    for (size_t d = 0; d < indices.size() && !split; ++d) {
      const DigitIndex& index = indices[d];
      if (index.axis != digit.axis) continue;
      const int64_t low = index.div;
      const int64_t high = index.mod > 0 ? index.div * index.mod : 0;  // 0 = no upper end
      const int64_t end = digit.div * digit.extent;
      for (const int64_t cut : {low, high}) {
        if (cut <= digit.div || cut >= end) continue;
        const int64_t first = cut / digit.div;
        if (cut % digit.div != 0 || digit.extent % first != 0) return std::nullopt;
        open.push_back(
            {digit.axis, cut, digit.extent / first, digit.thread * first, digit.slot * first});
        open.push_back({digit.axis, digit.div, first, digit.thread, digit.slot});
        split = true;
        break;
      }
      if (split) break;
      if (digit.div >= low && (high == 0 || end <= high)) {
        if (used || digit.div % low != 0) return std::nullopt;
        used = true;
        digits.push_back(
            {static_cast<int>(d), digit.div / low, digit.extent, digit.thread, digit.slot});
      }
    }
    if (split || used) continue;
    if (digit.thread > 0) replicas.push_back({digit.extent, digit.thread});
  }
  Layout result(shape, compact_slots(std::move(digits)), std::move(replicas));
  return complete(std::move(result));
}

}  // namespace tessera::codegen
