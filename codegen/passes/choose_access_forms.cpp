#include "codegen/passes/choose_access_forms.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "codegen/analysis/usage.h"
#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

class FormChooser {
 public:
  explicit FormChooser(Program& program) : program_(program) {
    walk(program.body, [this](const Stmt& stmt) {
      waits_for_previous_ = waits_for_previous_ || has_order(stmt, Order::Kind::previous_kernel);
    });
    note_uses(program.body, 0);
  }

  void run() {
    walk(program_.body, [this](Stmt& stmt) {
      if (auto* load = std::get_if<Load>(&stmt.node)) {
        load->by_branch = branches(*load);
        load->in_pair = shares_register(*load);
      } else if (auto* store = std::get_if<Store>(&stmt.node)) {
        const Array& array = *store->to.array;
        store->kept_for_loops = store->to.width == 1 && !store->from.array &&
                                array.dtype == DType::f32 && is_kept_for_loops(array);
      }
    });
  }

 private:
  /// `loops`: around the body, not counting unrolled ones.
  void note_uses(const Body& body, int loops) {
    const auto deepest = [&](std::map<const Array*, int>& depths, const ArrayRef& array) {
      int& depth = depths[array.get()];
      depth = std::max(depth, loops);
    };
    for (const Stmt& stmt : body) {
      for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
        const ArrayRef& array = effect.access.array;
        if (!effect.writes || effect.atomic) computed_on_.insert(array.get());
        if (effect.writes) deepest(fill_loops_, array);
      });
      for_each_register_effect(stmt, [&](const RegisterEffect& effect) {
        if (!effect.reads) return;
        const ArrayRef& array = effect.slice.array;
        if (effect.use == RegisterUse::converted || effect.use == RegisterUse::computed) {
          computed_on_.insert(array.get());
        }
        if (effect.use == RegisterUse::multiplied) deepest(product_loops_, array);
      });
      const auto* loop = std::get_if<For>(&stmt.node);
      const bool is_loop = repeats(stmt) && (loop == nullptr || !loop->unrolled);
      for_each_body(stmt,
                    [&](const Body& inner) { note_uses(inner, is_loop ? loops + 1 : loops); });
    }
  }

  /// Registers that only move on need fewer of their kind where each branch ends with its store.
  bool branches(const Load& load) const {
    const Array& array = *load.from.array;
    if (!load.into.array || load.from.width == 1 || !load.from.guard) return false;
    if (load.from.cache != ir::CacheHint::none) return false;
    const bool is_constant = array.is_constant() && !waits_for_previous_;
    return array.space != ArraySpace::global || !is_constant ||
           !computed_on_.contains(load.into.array.get());
  }

  /// True if the element shares a register with a neighbour and is used in place. Extracted first, it
  /// would be a register of its own to the compiler; widened in place, it costs one instruction.
  bool shares_register(const Load& load) {
    const Array& array = *load.from.array;
    const bool has_form = array.dtype == DType::bf16 || array.dtype == DType::e4m3;
    if (!load.at_use || !has_form || array.space != ArraySpace::registers) return false;
    if (!usage_) usage_.emplace(program_);
    return array.size % 2 == 0 && usage_->is_vector(array);
  }

  /// True if matrix products read the registers in a loop that does not fill them. A compiler would sink
  /// the computation of the values into that loop and repeat it in every round.
  bool is_kept_for_loops(const Array& array) const {
    const auto filled = fill_loops_.find(&array), read = product_loops_.find(&array);
    return filled != fill_loops_.end() && read != product_loops_.end() &&
           filled->second < read->second;
  }

  Program& program_;
  bool waits_for_previous_ = false;
  std::set<const Array*> computed_on_;
  // Loops, not counting unrolled ones, around what fills an array and around products that read it.
  std::map<const Array*, int> fill_loops_, product_loops_;
  std::optional<Usage> usage_;  // made on first use
};

}  // namespace

void choose_access_forms(Program& program) {
  FormChooser(program).run();
}

}  // namespace tessera::codegen
