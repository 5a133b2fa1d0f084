// The question at each store in a parallel loop: may two iterations change one element, one of them from the value that
// the other left? The order of iterations is not defined, and a fragment or a variable is held by each thread for itself, so the
// sum that an author has in mind would silently be a part of it.
//
// A store is refused if all of these hold:
//
//   1. its indices are known: constants, loop indices and names of such (`names_` expands k.let). Thread indices, loaded values
//      and other values of the iteration may give each iteration an element of its own
//   2. it is not apart: some loop index is neither an index of the element nor added to one (are_apart)
//   3. the stored value is made of the old one (reads_old): through names, loads and variables of the iteration. A load behind a
//      reset of the same element in the same iteration is not of another one
//   4. conditions between loop and store leave more than one iteration: `c == 0` leaves one along c, a condition on the thread
//      may leave one thread
//   5. two iterations meet: along an axis that no index contains (Clash::all), else by trying up to 4096 iterations
//
// Everything is decided while recording, at the author's line. A clash that is not found here may still trap on the executor;
// a store that is apart is never refused.

#include "dsl/iteration_writes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tessera::dsl {
namespace {

using Indices = std::vector<ir::Expr>;

constexpr int64_t kMostPoints = 4096;     // iterations that are compared
constexpr int64_t kMostOperations = 256;  // of a name that is expanded

bool same(const Indices& a, const Indices& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), ir::equal);
}

bool contains(const ir::Expr& e, const ir::VarRef& var) {
  std::vector<ir::VarRef> vars;
  ir::collect_vars(e, vars);
  return std::find(vars.begin(), vars.end(), var) != vars.end();
}

/// The index, or the index plus or minus what does not contain it.
bool is_shifted(const ir::Expr& e, const ir::VarRef& index) {
  if (e->op == ir::Op::var) return e->var == index;
  if (e->op == ir::Op::sub) return is_shifted(e->args[0], index) && !contains(e->args[1], index);
  return e->op == ir::Op::add && ((is_shifted(e->args[0], index) && !contains(e->args[1], index)) ||
                                  (!contains(e->args[0], index) && is_shifted(e->args[1], index)));
}

bool is_variable(ir::Space space) {
  return space == ir::Space::scalar || space == ir::Space::local;
}

}  // namespace

void IterationWrites::begin(const ir::VarRef& index, int64_t extent) {
  if (axes_.empty()) {
    first_var_ = index->id;
    conditions_around_ = conditions.size();
  }
  axes_.push_back({index, extent});
}

void IterationWrites::end() {
  std::vector<ir::Expr> around = std::move(conditions);
  *this = {};
  conditions = std::move(around);
}

void IterationWrites::defines(const ir::VarRef& var, Indices from) {
  if (!is_open()) return;
  if (from.size() == 1 && !is_float(from[0]->type) && size(from[0]) <= kMostOperations) {
    names_.emplace(var->id, expand(from[0]));
  }
  from_.emplace(var->id, std::move(from));
}

void IterationWrites::loads(const ir::ElementLoad& load, const std::vector<int>& scopes) {
  if (!is_open()) return;
  const bool is_own = std::any_of(resets_.begin(), resets_.end(), [&](const Reset& reset) {
    return reset.buffer == load.buffer->id && same(reset.indices, expand(load.indices)) &&
           std::find(scopes.begin(), scopes.end(), reset.scope) != scopes.end();
  });
  loads_.emplace(load.var->id, Load{load.buffer, load.indices, is_own});
}

std::optional<IterationWrites::Clash> IterationWrites::stores(const ir::ElementStore& store,
                                                              int scope) {
  if (!is_open()) return std::nullopt;
  const ir::Buffer& buffer = *store.buffer;
  if (is_variable(buffer.space)) variables_[buffer.id].push_back(store.value);
  if (is_variable(buffer.space) && own_buffers_.contains(buffer.id)) return std::nullopt;
  const bool is_of_thread = is_variable(buffer.space) || buffer.space == ir::Space::fragment;
  const Indices indices = expand(store.indices);
  std::vector<ir::VarRef> vars;
  for (const ir::Expr& index : indices) ir::collect_vars(index, vars);
  for (const ir::VarRef& var : vars) {
    // An index that depends on the thread or the iteration may give each an element of its own.
    const bool differs = var->kind == ir::VarKind::thread || var->kind == ir::VarKind::value;
    if (is_of_iteration(*var) || (differs && !is_of_thread)) return std::nullopt;
  }
  if (are_apart(indices)) return std::nullopt;
  std::set<int> seen;
  if (!reads_old(store.value, buffer, indices, seen)) {
    if (is_of_thread) resets_.push_back({buffer.id, indices, scope});
    return std::nullopt;
  }
  std::vector<int64_t> extents;  // of the iterations that may change the element
  for (const Axis& axis : axes_) extents.push_back(axis.extent);
  for (size_t c = conditions_around_; c < conditions.size(); ++c) {
    const ir::Expr condition = expand(conditions[c]);
    if (is_of_one_thread(condition, true)) return std::nullopt;
    for (size_t a = 0; a < axes_.size(); ++a) {
      if (holds_once(condition, true, axes_[a].index)) extents[a] = 1;
    }
  }
  return find_clash(indices, extents);
}

/// Operations of the expression, with those of its names.
int64_t IterationWrites::size(const ir::Expr& e) const {
  if (e->op == ir::Op::var) {
    const auto known = names_.find(e->var->id);
    return known == names_.end() ? 1 : size(known->second);
  }
  int64_t sum = 1;
  for (const ir::Expr& arg : e->args) sum += size(arg);
  return sum;
}

/// With the values that the iteration has named in place of their names.
ir::Expr IterationWrites::expand(const ir::Expr& e) const {
  return ir::substitute(e, [&](const ir::VarRef& var) {
    const auto known = names_.find(var->id);
    return known == names_.end() ? ir::Expr() : known->second;
  });
}

Indices IterationWrites::expand(const Indices& list) const {
  Indices result;
  for (const ir::Expr& e : list) result.push_back(expand(e));
  return result;
}

/// A value that is neither known outside of the loop nor made of its indices.
bool IterationWrites::is_of_iteration(const ir::Var& var) const {
  return var.kind == ir::VarKind::value && var.id >= first_var_;
}

namespace {

/// Calls `is_met(comparison, holds)` until it is true of one that the condition needs to hold, or not to.
template <class IsMet>
bool needs(const ir::Expr& condition, bool holds, const IsMet& is_met) {
  switch (condition->op) {
    case ir::Op::logical_not:
      return needs(condition->args[0], !holds, is_met);
    case ir::Op::logical_and:
    case ir::Op::logical_or:
      return (condition->op == ir::Op::logical_and) == holds &&
             (needs(condition->args[0], holds, is_met) || needs(condition->args[1], holds, is_met));
    default:
      return is_met(condition, holds);
  }
}

}  // namespace

/// True if the condition depends on the thread, and so may choose one.
bool IterationWrites::is_of_one_thread(const ir::Expr& condition, bool holds) {
  return needs(condition, holds, [](const ir::Expr& comparison, bool) {
    std::vector<ir::VarRef> vars;
    ir::collect_vars(comparison, vars);
    return std::any_of(vars.begin(), vars.end(),
                       [](const auto& var) { return var->kind == ir::VarKind::thread; });
  });
}

/// True if the condition chooses one value of the index, as c == 0 does and c % 2 == 0 does not.
bool IterationWrites::holds_once(const ir::Expr& condition, bool holds, const ir::VarRef& index) {
  return needs(condition, holds, [&](const ir::Expr& comparison, bool is_true) {
    if (comparison->op != (is_true ? ir::Op::eq : ir::Op::ne)) return false;
    const ir::Expr &a = comparison->args[0], &b = comparison->args[1];
    return (is_shifted(a, index) && !contains(b, index)) ||
           (is_shifted(b, index) && !contains(a, index));
  });
}

/// True if the value is made of the element that it is stored to.
bool IterationWrites::reads_old(const ir::Expr& value, const ir::Buffer& buffer,
                                const Indices& indices, std::set<int>& seen) const {
  std::vector<ir::VarRef> vars;
  ir::collect_vars(value, vars);
  return std::any_of(vars.begin(), vars.end(), [&](const ir::VarRef& var) {
    if (!seen.insert(var->id).second) return false;
    const auto through = [&](const Indices& list) {
      return std::any_of(list.begin(), list.end(),
                         [&](const ir::Expr& e) { return reads_old(e, buffer, indices, seen); });
    };
    if (const auto known = from_.find(var->id); known != from_.end()) return through(known->second);
    const auto load = loads_.find(var->id);
    if (load == loads_.end()) return false;
    const ir::Buffer& source = *load->second.buffer;
    if (!load->second.is_own && source.id == buffer.id &&
        same(expand(load->second.indices), indices)) {
      return true;
    }
    const auto stored = variables_.find(source.id);
    return stored != variables_.end() && source.id != buffer.id && through(stored->second);
  });
}

/// True if each index of the loop is an index of the element, or is added to one.
bool IterationWrites::are_apart(const Indices& indices) const {
  return std::all_of(axes_.begin(), axes_.end(), [&](const Axis& axis) {
    const auto is_index = [&](const ir::Expr& e) {
      return e->op == ir::Op::var && e->var == axis.index;
    };
    const auto is_free = [&](const ir::Expr& e) {
      return std::none_of(axes_.begin(), axes_.end(),
                          [&](const Axis& other) { return contains(e, other.index); });
    };
    return axis.extent == 1 || std::any_of(indices.begin(), indices.end(), [&](const ir::Expr& e) {
             return is_index(e) ||
                    (e->op == ir::Op::add && ((is_index(e->args[0]) && is_free(e->args[1])) ||
                                              (is_free(e->args[0]) && is_index(e->args[1]))));
           });
  });
}

std::optional<IterationWrites::Clash> IterationWrites::find_clash(
    const Indices& indices, const std::vector<int64_t>& extents) const {
  for (size_t a = 0; a < axes_.size(); ++a) {
    const Axis& axis = axes_[a];
    const bool counts =
        extents[a] == 1 || std::any_of(indices.begin(), indices.end(),
                                       [&](const ir::Expr& e) { return contains(e, axis.index); });
    if (!counts) {
      return Clash{true, fmt::format("{} = 0 .. {}", axis.index->name, axis.extent - 1),
                   axis.index->loc};
    }
  }
  int64_t points = 1;
  for (const int64_t extent : extents) points *= extent;
  std::map<std::string, std::vector<int64_t>> first;  // the iteration that stores each element
  for (int64_t point = 0; point < std::min(points, kMostPoints); ++point) {
    std::vector<int64_t> at(axes_.size());
    int64_t rest = point;
    for (size_t a = axes_.size(); a-- > 0; rest /= extents[a]) at[a] = rest % extents[a];
    std::string element;
    for (const ir::Expr& index : indices) {
      const ir::Expr value = ir::substitute(index, [&](const ir::VarRef& var) {
        for (size_t a = 0; a < axes_.size(); ++a) {
          if (axes_[a].index == var) return ir::constant(var->type, at[a]);
        }
        return ir::Expr();
      });
      element += to_string(value) + ", ";
    }
    const auto [known, is_new] = first.try_emplace(element, at);
    if (is_new) continue;
    return Clash{false,
                 fmt::format("({}) and ({})", fmt::join(known->second, ", "), fmt::join(at, ", ")),
                 axes_.front().index->loc};
  }
  return std::nullopt;
}

}  // namespace tessera::dsl
