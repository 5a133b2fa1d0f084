// Three forms of a statement whose use of a fragment does not fit the fragment's layout, and their rewriting. `s` is the shared
// copy, one per fragment and kernel; a relayout loop is a parallel loop of one load and one store, which later passes
// lay out and vectorise as any other:
//
//   parallel loop that reads f        f -> s; the loop reads s
//   parallel loop that writes f       f -> s, unless the loop overwrites all of f first; the loop writes s; s -> f
//   reduction into f                  into a fragment r of its own, which takes the layout that the reduction gives;
//                                     r -> s; s -> f
//   product with the operand f        f -> s; the product takes s
//
// "Overwrites all" is decided by running the loop's index expressions over all iterations (up to 65536): each element has
// exactly one. The copy f -> s would otherwise read elements that nobody wrote, a false UNINITIALISED, and cost traffic.
//
// A loop that reads f as f32 and makes a narrower fragment of it, as a conversion to bf16 does, is rewritten at the narrower one: the
// same values cross shared memory in half the bytes.
//
// In a region of manual barriers the author cannot name the copy, so barriers are put around it here.

#include "codegen/layouts/stage_fragments.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "codegen/analysis/evaluate.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

/// The body that holds `at`, and its position there.
struct Place {
  ir::Body* body = nullptr;
  size_t position = 0;
};

Place find(ir::Body& body, const ir::Stmt* at) {
  for (size_t i = 0; i < body.size(); ++i) {
    if (&body[i] == at) return {&body, i};
    Place inner;
    for_each_body(body[i], [&](ir::Body& nested) {
      if (inner.body == nullptr) inner = find(nested, at);
    });
    if (inner.body != nullptr) return inner;
  }
  return {};
}

/// Redirects every access with the indices of `use` to `to`.
void redirect(ir::Stmt& stmt, const FragmentUse& use, const ir::BufferRef& to) {
  const auto element = [&](ir::BufferRef& buffer, const std::vector<ir::Expr>& indices) {
    if (buffer->id == use.buffer->id && same_indices(indices, use.indices)) buffer = to;
  };
  move_buffers(stmt, {[](ir::Region&) {}, element});
}

/// True if the iterations are the elements in their order.
bool is_identity(const ir::Loop& loop, const FragmentUse& use) {
  if (use.indices.size() != loop.vars.size()) return false;
  for (size_t d = 0; d < use.indices.size(); ++d) {
    const bool is_axis = use.indices[d]->op == ir::Op::var && use.indices[d]->var == loop.vars[d];
    if (!is_axis || !ir::equal(use.buffer->shape[d], loop.extents[d])) return false;
  }
  return true;
}

/// True if each iteration has one element and each element one iteration.
bool is_permutation(const ir::Loop& loop, const FragmentUse& use, int num_vars) {
  constexpr int64_t kMostElements = 1 << 16;
  int64_t elements = 1, iterations = 1;
  for (const ir::Expr& extent : use.buffer->shape) elements *= extent->integer;
  for (const ir::Expr& extent : loop.extents) iterations *= extent->integer;
  if (elements != iterations || elements > kMostElements) return false;
  std::vector<bool> stored(static_cast<size_t>(elements));
  Environment environment(num_vars);
  for (int64_t iteration = 0; iteration < iterations; ++iteration) {
    int64_t rest = iteration;
    for (size_t v = loop.vars.size(); v-- > 0; rest /= loop.extents[v]->integer) {
      environment.set(*loop.vars[v], rest % loop.extents[v]->integer);
    }
    for (const ir::Stmt& stmt : loop.body) {
      const auto* let = std::get_if<ir::Let>(&stmt.node);
      if (let == nullptr) continue;
      const auto value = evaluate(let->value, environment);
      value ? environment.set(*let->var, *value) : environment.clear(*let->var);
    }
    int64_t element = 0;
    for (size_t d = 0; d < use.indices.size(); ++d) {
      const int64_t extent = use.buffer->shape[d]->integer;
      const auto index = evaluate(use.indices[d], environment);
      if (!index || *index < 0 || *index >= extent) return false;
      element = element * extent + *index;
    }
    if (stored[static_cast<size_t>(element)]) return false;
    stored[static_cast<size_t>(element)] = true;
  }
  return true;
}

/// True if each element has an iteration that first stores to it: then the old values do not matter.
bool overwrites_all(const ir::Loop& loop, const FragmentUse& use, int num_vars) {
  for (const ir::Stmt& stmt : loop.body) {
    if (const auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) {
      if (load->buffer->id == use.buffer->id) return false;
    } else if (const auto* store = std::get_if<ir::ElementStore>(&stmt.node)) {
      if (store->buffer->id != use.buffer->id) continue;
      return same_indices(store->indices, use.indices) &&
             (is_identity(loop, use) || is_permutation(loop, use, num_vars));
    } else if (!std::holds_alternative<ir::Let>(stmt.node)) {
      return false;
    }
  }
  return false;
}

/// A narrower fragment that a loop which reads `use` overwrites in whole and does not read. To stage what
/// it writes there moves fewer bytes, and the loop computes where its values are.
std::optional<FragmentUse> narrower_result(const ir::Loop& loop, const FragmentUse& use,
                                           int num_vars) {
  if (use.written) return std::nullopt;
  for (const ir::Stmt& stmt : loop.body) {
    const auto* store = std::get_if<ir::ElementStore>(&stmt.node);
    if (store == nullptr || store->buffer->space != ir::Space::fragment) continue;
    const DType dtype = store->buffer->dtype;
    const FragmentUse result{store->buffer, store->indices, true, stmt.loc};
    bool is_read = false;
    for_each_use(loop.body, [&](const ir::BufferRef& buffer, bool writes) {
      is_read = is_read || (!writes && storage_of(*buffer).id == storage_of(*result.buffer).id);
    });
    const bool is_narrower = bits(dtype) >= 8 && bits(dtype) < bits(use.buffer->dtype);
    if (is_narrower && !is_read && overwrites_all(loop, result, num_vars)) return result;
  }
  return std::nullopt;
}

}  // namespace

ir::BufferRef FragmentStaging::shared_copy(const ir::Buffer& fragment, SourceLoc loc) {
  ir::BufferRef& entry = copies_[fragment.id];
  if (entry) return entry;
  auto buffer = std::make_shared<ir::Buffer>();
  buffer->name = fragment.name + "_staged";
  buffer->stands_for = fragment.name;
  buffer->dtype = fragment.dtype;
  buffer->space = ir::Space::shared;
  buffer->id = kernel_.num_buffers++;
  buffer->shape = fragment.shape;
  buffer->loc = loc;
  entry = buffer;
  return entry;
}

ir::Stmt FragmentStaging::copy(const ir::BufferRef& from, const ir::BufferRef& to, SourceLoc loc) {
  static const char* const kNames[] = {"i", "j", "k", "l"};
  ir::Loop loop;
  loop.kind = ir::LoopKind::parallel;
  loop.begin = ir::index(0);
  loop.step = ir::index(1);
  loop.extents = to->shape;
  loop.label = fmt::format("relayout {} -> {}", from->name, to->name);
  const auto new_var = [&](std::string name, DType type, ir::VarKind kind) {
    auto var = std::make_shared<ir::Var>();
    var->name = std::move(name);
    var->type = type;
    var->kind = kind;
    var->id = kernel_.num_vars++;
    var->loc = loc;
    return var;
  };
  std::vector<ir::Expr> indices;
  for (size_t d = 0; d < to->shape.size(); ++d) {
    auto var = new_var(kNames[d], DType::i32, ir::VarKind::loop);
    var->lower = ir::index(0);
    var->upper = to->shape[d];
    indices.push_back(ir::var(var));
    loop.vars.push_back(var);
  }
  const ir::VarRef value = new_var(from->name + "_value", from->dtype, ir::VarKind::value);
  loop.body.push_back({ir::ElementLoad{value, from, indices, {}}, loc});
  loop.body.push_back({ir::ElementStore{to, indices, ir::var(value), {}}, loc});
  return {std::move(loop), loc};
}

std::string FragmentStaging::stage(const ir::Stmt* at, const FragmentUse& misfit) {
  const Place place = find(kernel_.body, at);
  TESSERA_CHECK(place.body != nullptr, "a staged statement is not in the kernel");
  ir::Stmt& stmt = (*place.body)[place.position];
  const SourceLoc loc = stmt.loc;
  const auto* parallel = std::get_if<ir::Loop>(&stmt.node);
  const FragmentUse use =
      parallel != nullptr ? narrower_result(*parallel, misfit, kernel_.num_vars).value_or(misfit)
                          : misfit;
  const ir::BufferRef staged = shared_copy(*use.buffer, loc);
  std::vector<ir::Stmt> before, after;
  auto* reduce = std::get_if<ir::Reduce>(&stmt.node);
  auto* finalize = std::get_if<ir::ReducerFinalize>(&stmt.node);
  if (reduce != nullptr || finalize != nullptr) {
    auto result = std::make_shared<ir::Buffer>(*use.buffer);
    result->stands_for = result->name;
    result->name += "_reduced";
    result->id = kernel_.num_buffers++;
    result->alias_of = nullptr;
    result->layout = nullptr;
    if (reduce != nullptr) reduce->to.buffer = result;
    if (finalize != nullptr) finalize->to = result;
    after.push_back(copy(result, staged, loc));
    after.push_back(copy(staged, use.buffer, loc));
  } else if (auto* gemm = std::get_if<ir::Gemm>(&stmt.node)) {
    (gemm->a.buffer == use.buffer ? gemm->a : gemm->b).buffer = staged;
    before.push_back(copy(use.buffer, staged, loc));
  } else {
    const auto* loop = std::get_if<ir::Loop>(&stmt.node);
    if (loop == nullptr || !use.written || !overwrites_all(*loop, use, kernel_.num_vars)) {
      before.push_back(copy(use.buffer, staged, loc));
    }
    redirect(stmt, use, staged);
    if (use.written) after.push_back(copy(staged, use.buffer, loc));
  }
  if (stmt.manual_sync) {  // the author cannot name the copy, and no barrier is inserted
    const ir::Stmt sync = {ir::Sync{ir::SyncKind::block}, loc};
    before.push_back(sync);
    if (!after.empty()) after.insert(after.begin(), sync);
  }
  const auto position = [&] {
    return place.body->begin() + static_cast<std::ptrdiff_t>(place.position);
  };
  place.body->insert(position() + 1, after.begin(), after.end());
  place.body->insert(position(), before.begin(), before.end());
  return fmt::format("{}: '{}' goes through shared memory: ", tessera::to_string(loc),
                     use.buffer->name);
}

}  // namespace tessera::codegen
