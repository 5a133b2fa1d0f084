#include "codegen/passes/fragment_layouts.h"

#include <algorithm>

#include "codegen/analysis/index_form.h"

namespace tessera::codegen {
namespace {

using layout::Digit;
using layout::Layout;
using layout::Replica;

std::vector<int64_t> constants(const std::vector<ir::Expr>& list) {
  std::vector<int64_t> values;
  for (const ir::Expr& e : list) values.push_back(e->integer);
  return values;
}

/// index = (loop var / div) % mod, mod 0 = no modulo; axis -1 = a constant.
struct DigitIndex {
  int axis = -1;
  int64_t div = 1;
  int64_t mod = 0;
};

std::optional<DigitIndex> digit_index(const ir::Loop& loop, const ir::Expr& index) {
  const Form form = IndexMath().form(index);
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

/// The row-major position in the fragment equals the row-major position in the loop.
bool same_order(const ir::Loop& loop, const FragmentUse& use) {
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
  return loop_size == fragment_size && IndexMath().same(in_loop, in_fragment);
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

std::optional<Layout> loop_from_fragment(const ir::Loop& loop, const FragmentUse& use,
                                         const Layout& fragment) {
  const std::vector<int64_t> extents = constants(loop.extents);
  std::vector<int> loop_axis(use.indices.size(), -1);
  std::vector<bool> covered(loop.vars.size(), false);
  bool bare = true;
  for (size_t d = 0; d < use.indices.size(); ++d) {
    const auto index = digit_index(loop, use.indices[d]);
    if (!index || index->div != 1 || index->mod != 0) {
      bare = false;
      break;
    }
    loop_axis[d] = index->axis;
    if (index->axis >= 0) {
      if (covered[static_cast<size_t>(index->axis)]) bare = false;
      covered[static_cast<size_t>(index->axis)] = true;
    } else if (use.buffer->shape[d]->integer != 1) {
      bare = false;
    }
  }
  for (size_t v = 0; v < covered.size(); ++v) bare = bare && (covered[v] || extents[v] == 1);
  if (bare) {
    std::vector<Digit> digits;
    for (const Digit& digit : fragment.digits()) {
      const int axis = loop_axis[static_cast<size_t>(digit.axis)];
      if (axis < 0) return std::nullopt;
      Digit moved = digit;
      moved.axis = axis;
      digits.push_back(moved);
    }
    return Layout(extents, std::move(digits), fragment.replicas());
  }
  if (same_order(loop, use)) return layout::reshape(fragment, extents);
  return std::nullopt;
}

std::optional<Layout> fragment_from_loop(const ir::Loop& loop, const FragmentUse& use,
                                         const Layout& iteration) {
  const std::vector<int64_t> shape = constants(use.buffer->shape);
  std::vector<DigitIndex> indices;
  bool plain = true;
  for (const ir::Expr& e : use.indices) {
    const auto index = digit_index(loop, e);
    plain = plain && index.has_value();
    if (index) indices.push_back(*index);
  }
  if (!plain) {
    if (!same_order(loop, use)) return std::nullopt;
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
  // A loop over a part of the fragment says nothing about the rest.
  for (size_t d = 0; d < shape.size(); ++d) {
    if (result.padded_extent(static_cast<int>(d)) < shape[d]) return std::nullopt;
  }
  return result;
}

}  // namespace tessera::codegen
