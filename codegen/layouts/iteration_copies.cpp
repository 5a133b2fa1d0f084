#include "codegen/layouts/iteration_copies.h"

#include <algorithm>
#include <set>

#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

/// The effects of a body that matter to copies of it.
struct BodyEffects {
  std::map<int, int> uses;                        // registers, by id of their storage
  std::set<int> written_registers;                // the same ids
  std::set<int> read, written;                    // memory, by id of its storage
  std::set<int> read_globally, written_globally;  // the part that insert_barriers does not order
  bool happens_once = false;                      // has an effect that a second copy would repeat
  bool meets_others = false;                      // waits for other threads
};

class Summary : public TileEffectReceiver {
 public:
  explicit Summary(const ir::Body& body) { this->body(body, false); }
  const BodyEffects& result() const { return result_; }

  void uses(const ir::BufferRef& buffer, bool writes) override {
    const ir::Space space = buffer->space;
    const int id = memory_of(*buffer);
    if (space == ir::Space::shared) {
      (writes ? result_.written : result_.read).insert(id);
    } else if (space == ir::Space::global || space == ir::Space::cluster) {
      (writes ? result_.written : result_.read).insert(id);
      (writes ? result_.written_globally : result_.read_globally).insert(id);
    } else {
      ++result_.uses[id];
      if (writes && !contributes_) result_.written_registers.insert(id);
    }
  }
  void orders(const Order& order) override {
    if (order.group != Group::thread) result_.meets_others = true;
  }
  void happens_once() override { result_.happens_once = true; }
  void body(const ir::Body& body, bool) override {
    for (const ir::Stmt& stmt : body) {
      contributes_ = std::holds_alternative<ir::ReducerUpdate>(stmt.node);  // already runs once
      effects(stmt, *this);
    }
  }

 private:
  BodyEffects result_;
  bool contributes_ = false;  // of the current statement
};

bool intersect(const std::set<int>& a, const std::set<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int id) { return b.contains(id); });
}

Copies copies_of(const ir::Body& body, const std::map<int, int>& uses_in_kernel) {
  const Summary summary(body);
  const BodyEffects& effects = summary.result();
  const bool in_place = intersect(effects.read, effects.written);
  const bool loads_to_store = !effects.read_globally.empty() && !effects.written.empty();
  if (!in_place && !effects.happens_once && !loads_to_store) return Copies::all;
  const bool leaves_registers =
      std::any_of(effects.written_registers.begin(), effects.written_registers.end(),
                  [&](int id) { return effects.uses.at(id) != uses_in_kernel.at(id); });
  if (!leaves_registers && !effects.meets_others) return Copies::first;
  if (!in_place && !effects.happens_once) return Copies::all;
  const bool globally = intersect(effects.read_globally, effects.written_globally);
  return globally || effects.happens_once ? Copies::none : Copies::all;
}

void visit(const ir::Body& body, const std::map<int, int>& uses, std::map<int, Copies>& result) {
  for (const ir::Stmt& stmt : body) {
    const auto* loop = std::get_if<ir::Loop>(&stmt.node);
    if (loop != nullptr && loop->kind == ir::LoopKind::parallel) {
      const bool is_new = result.emplace(loop_id(*loop), copies_of(loop->body, uses)).second;
      TESSERA_CHECK(is_new, "two parallel loops with one variable");
      continue;
    }
    for_each_body(stmt, [&](const ir::Body& inner) { visit(inner, uses, result); });
  }
}

}  // namespace

std::map<int, Copies> copies_of_loops(const ir::Kernel& kernel) {
  const Summary all(kernel.body);
  std::map<int, Copies> result;
  visit(kernel.body, all.result().uses, result);
  return result;
}

}  // namespace tessera::codegen
