#include "codegen/passes/clear_in_products.h"

#include <cmath>
#include <set>
#include <vector>

#include "codegen/analysis/evaluate.h"
#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

using Elements = std::set<int64_t>;

/// A sum that begins at -0 is another.
bool is_zero(const Expr& e) {
  return ir::is_constant(e) && e->integer == 0 && e->number == 0 && !std::signbit(e->number);
}

bool touches(const Stmt& stmt, const Array& array) {
  return any_in(stmt, [&](const Stmt& inner) {
    bool found = false;
    for_each_array(inner, [&](const ArrayRef& other) { found |= other.get() == &array; });
    return found;
  });
}

/// The elements of `array` that a nest of unrolled loops stores zeros to; empty if it does anything else.
Elements zeros_of(const Stmt& stmt, const Array*& array, Environment& values) {
  if (const auto* loop = std::get_if<For>(&stmt.node)) {
    const auto begin = evaluate(loop->begin, values), end = evaluate(loop->end, values),
               step = evaluate(loop->step, values);
    if (!loop->unrolled || !begin || !end || !step || loop->body.size() != 1) return {};
    Elements found;
    for (int64_t i = *begin; i < *end; i += *step) {
      values.set(*loop->var, i);
      found.merge(zeros_of(loop->body[0], array, values));
    }
    return found;
  }
  const auto* store = std::get_if<Store>(&stmt.node);
  if (store == nullptr || store->to.array->space != ArraySpace::registers) return {};
  const auto at = evaluate(store->to.offset, values);
  if (!store->value || !is_zero(store->value) || !at || store->to.width != 1) return {};
  array = store->to.array.get();
  return {*at};
}

/// The product behind body[first] that adds to all of `array`: the places of its fence and of the first instruction for each
/// part of the sums. Empty if something else touches the array before, or no other product starts in between.
struct Product {
  size_t fence = 0;
  std::vector<Mma*> first = {};
};
Product product_of(Body& body, size_t first, const Array& array) {
  Product product;
  Elements sums;
  bool is_another_in_flight = false;
  for (size_t i = first; i < body.size(); ++i) {
    if (const auto* fence = std::get_if<Fence>(&body[i].node);
        fence != nullptr && fence->sum.array.get() == &array) {
      product.fence = i;
      continue;
    }
    auto* const mma = std::get_if<Mma>(&body[i].node);
    if (!touches(body[i], array)) {
      is_another_in_flight |= product.fence == 0 && mma != nullptr && mma->is_of_group();
      continue;
    }
    const bool is_of_product = product.fence != 0 && mma != nullptr && mma->is_of_group() &&
                               mma->c.array.get() == &array && mma->a.array.get() != &array;
    if (!is_of_product || !ir::is_constant(mma->c.base)) break;
    const int64_t base = mma->c.base->integer;
    if (!sums.insert(base).second) continue;
    for (int64_t e = 1; e < mma->sums(); ++e) sums.insert(base + e);
    product.first.push_back(mma);
  }
  const bool are_all = static_cast<int64_t>(sums.size()) == array.size;
  return are_all && is_another_in_flight ? product : Product{};
}

void clear_in(Body& body, int num_vars) {
  for (Stmt& stmt : body) {
    for_each_body(stmt, [&](Body& inner) { clear_in(inner, num_vars); });
  }
  for (size_t i = body.size(); i-- > 0;) {
    const Array* array = nullptr;
    Environment values(num_vars);
    const Elements zeros = zeros_of(body[i], array, values);
    if (zeros.empty() || static_cast<int64_t>(zeros.size()) != array->size) continue;
    const Product product = product_of(body, i + 1, *array);
    if (product.first.empty()) continue;
    for (Mma* mma : product.first) mma->clears = true;
    std::get<Fence>(body[product.fence].node) = {Fence::Of::registers};
    body.erase(body.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace

void clear_in_products(Program& program) {
  clear_in(program.body, program.num_vars);
}

}  // namespace tessera::codegen
