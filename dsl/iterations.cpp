// Recorder: index ranges that are certain for the loops around a statement.

#include <fmt/format.h>

#include <algorithm>

#include "dsl/recorder.h"

namespace tessera::dsl {

void Recorder::iterate(const ir::VarRef& var, int64_t first, int64_t last) {
  iterations_.push_back({var, first, last, returns});
}

std::vector<Recorder::Corner> Recorder::corners(const ir::Expr& e) const {
  constexpr size_t kMostIndices = 6;
  std::vector<ir::VarRef> vars;
  ir::collect_vars(e, vars);
  std::vector<const Iteration*> iterations;
  for (const ir::VarRef& var : vars) {
    const auto found = std::find_if(iterations_.begin(), iterations_.end(),
                                    [&](const Iteration& it) { return it.var == var; });
    if (found == iterations_.end() || found->returns != returns) return {};
    iterations.push_back(&*found);
  }
  if (iterations.size() > kMostIndices) return {};
  std::vector<Corner> result;
  for (size_t choice = 0; choice < size_t{1} << iterations.size(); ++choice) {
    Corner corner;
    const auto value_of = [&](size_t i) {
      return (choice >> i & 1) != 0 ? iterations[i]->first : iterations[i]->last;
    };
    for (size_t i = 0; i < iterations.size(); ++i) {
      const ir::Var& var = *iterations[i]->var;
      corner.where +=
          fmt::format("{}{} = {}", corner.where.empty() ? "" : ", ", var.name, value_of(i));
      if (var.kind == ir::VarKind::loop) corner.loop = var.loc;
    }
    const ir::Expr value = ir::substitute(e, [&](const ir::VarRef& var) {
      const auto at = std::find(vars.begin(), vars.end(), var) - vars.begin();
      return ir::constant(var->type, value_of(static_cast<size_t>(at)));
    });
    if (!ir::is_constant(value)) return {};
    corner.value = value->integer;
    result.push_back(std::move(corner));
  }
  return result;
}

/// Accesses outside of a tensor are guarded, for its dims and for tiles at its edge: only what the index of one
/// loop, of constant bounds and under no condition, does with a constant extent is a mistake for certain.
std::optional<ErrorFields> Recorder::find_outside(const ir::Region& element, SourceLoc loc) const {
  const ir::Buffer& buffer = *element.buffer;
  if (buffer.space != ir::Space::global || !element.terms.tile_indices.empty()) return {};
  for (size_t d = 0; d < element.offsets.size(); ++d) {
    const ir::Expr& extent = buffer.shape[d];
    std::vector<ir::VarRef> vars;
    ir::collect_vars(element.offsets[d], vars);
    const bool is_of_loop = vars.size() == 1 && vars[0]->kind == ir::VarKind::loop;
    if (!is_of_loop || !ir::is_constant(extent)) continue;
    const std::vector<Corner> all = corners(element.offsets[d]);
    int64_t low = 0, high = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      low = i == 0 ? all[i].value : std::min(low, all[i].value);
      high = i == 0 ? all[i].value : std::max(high, all[i].value);
    }
    // A loop over more than the tensor has is a tile at its edge, and so is one that begins at a multiple of its length.
    const int64_t span = high - low + 1;
    if (low >= 0 && (span > extent->integer || (low > 0 && low % span == 0))) continue;
    for (const Corner& corner : all) {
      if (corner.value >= 0 && corner.value < extent->integer) continue;
      return ErrorFields{
          .kind = ErrorKind::program,
          .op = kernel.name,
          .what = fmt::format("index of '{}' is out of range", buffer.name),
          .expected = fmt::format("0 <= index < {}", to_string(extent)),
          .got = fmt::format("{} in dimension {}, where {}", corner.value, d, corner.where),
          .hint = "guard it with k.if_, or choose between values with select",
          .code = "OOB_CONST",
          .loc = loc,
          .related = corner.loop};
    }
  }
  return {};
}

void Recorder::check_inside(const ir::Region& element, SourceLoc loc) const {
  if (const auto outside = find_outside(element, loc)) throw Error(*outside);
}

void Recorder::check_one_writer(const ir::ElementStore& store, SourceLoc loc) {
  const auto clash = iteration_writes.stores(store, scope());
  const ir::Space space = store.buffer->space;
  // check_iterations knows the order of the accesses to shared memory, and check_sums which iterations of a fragment's
  // element one thread has.
  const bool is_checked_later = clash && ((space == ir::Space::shared && !clash->all) ||
                                          (space == ir::Space::fragment && clash->all));
  if (!clash || is_checked_later) return;
  std::string element = store.buffer->name;
  for (size_t d = 0; d < store.indices.size(); ++d) {
    element += (d == 0 ? "[" : ", ") + to_string(store.indices[d]);
  }
  if (!store.indices.empty()) element += ']';
  const bool has_atomics = space == ir::Space::global || space == ir::Space::shared;
  const ErrorFields error = {
      .kind = ErrorKind::program,
      .op = kernel.name,
      .what = fmt::format("{} iterations of a parallel loop change one element, {}",
                          clash->all ? "all" : "several", element),
      .expected = "an element of its own for each iteration",
      .got = "one for " + clash->iterations,
      .hint = fmt::format("use k.reduce_sum (_max, _min) of a fragment{}",
                          has_atomics ? ", k.reducer or k.atomic_add" : " or k.reducer"),
      .code = "ONE_ELEMENT",
      .loc = loc,
      .related = clash->loop};
  // A thread may sum up its own iterations, if threads then combine their sums.
  const bool is_of_thread = space == ir::Space::scalar || space == ir::Space::local;
  if (!is_of_thread) throw Error(error);
  parts_.emplace(store.buffer->id, error);
}

bool Recorder::is_exchanged(const ir::Expr& e) const {
  if (exchanged_.empty() || values_of_parts_.empty()) return false;
  std::vector<ir::VarRef> vars;
  ir::collect_vars(e, vars);
  return std::any_of(vars.begin(), vars.end(),
                     [&](const ir::VarRef& var) { return exchanged_.contains(var->id); });
}

const ErrorFields* Recorder::find_part(const ir::Expr& e) const {
  if (values_of_parts_.empty() || is_exchanged(e)) return nullptr;
  std::vector<ir::VarRef> vars;
  ir::collect_vars(e, vars);
  for (const ir::VarRef& var : vars) {
    const auto part = values_of_parts_.find(var->id);
    if (part != values_of_parts_.end()) return &part->second;
  }
  return nullptr;
}

/// Throws if the sum of a thread's own iterations is stored for others as if it were that of all.
void Recorder::note_part(const ir::ElementStore& store) {
  const bool is_of_thread =
      store.buffer->space == ir::Space::scalar || store.buffer->space == ir::Space::local;
  if (const ErrorFields* part = find_part(store.value)) {
    if (is_of_thread) {
      parts_.emplace(store.buffer->id, *part);
      return;
    }
    const bool is_exchange = std::any_of(store.indices.begin(), store.indices.end(),
                                         [&](const ir::Expr& index) { return uses_thread(index); });
    if (!is_exchange) throw Error(*part);
    return;
  }
  const bool is_certain = parallel_depth == 0 && iteration_writes.conditions.empty();
  if (is_of_thread && (is_certain || is_exchanged(store.value))) {
    parts_.erase(store.buffer->id);
  }
}

}  // namespace tessera::dsl
