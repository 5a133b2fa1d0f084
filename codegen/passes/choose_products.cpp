#include "codegen/passes/choose_products.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "codegen/products/atoms.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

class ProductChooser {
 public:
  ProductChooser(const ir::Kernel& kernel, Target target, std::vector<std::string>& notes)
      : kernel_(kernel), target_(target), notes_(notes), threads_{0, kernel.threads} {
    look(kernel.body);
  }

  void choose(ir::Body& body) {
    for (ir::Stmt& stmt : body) {
      if (auto* roles = std::get_if<ir::Roles>(&stmt.node)) {
        for (ir::Roles::Role& role : roles->roles) {
          threads_ = {role.first, role.count};
          choose(role.body);
        }
        threads_ = {0, kernel_.threads};
        continue;
      }
      for_each_body(stmt, [&](ir::Body& inner) { choose(inner); });
      if (auto* gemm = std::get_if<ir::Gemm>(&stmt.node)) choose(*gemm, stmt.loc);
    }
  }

 private:
  /// Collects what products need to know about other statements.
  void look(const ir::Body& body) {
    for (const ir::Stmt& stmt : body) {
      for_each_binding(stmt, [&](const ir::VarRef& var, const ir::Expr* value) {
        if (value != nullptr && is_integer(var->type)) math_.define(var, *value);
      });
      const ir::CopyPlan* const plan = plan_of(stmt);
      if (plan != nullptr && plan->engine == ir::Engine::bulk) {
        bulk_targets_.insert(storage_of(*target_of(stmt)).id);
      }
      for_each_body(stmt, [&](const ir::Body& inner) { look(inner); });
    }
  }

  void choose(ir::Gemm& gemm, SourceLoc loc) {
    const auto is_bulk_target = [&](const ir::Region& region) {
      return bulk_targets_.contains(storage_of(*region.buffer).id);
    };
    const ProductFacts facts{gemm, math_, target_, threads_,
                             is_bulk_target(gemm.a) || is_bulk_target(gemm.b)};
    const Atom* best = nullptr;
    Fit best_fit;
    double best_clocks = 0;
    std::vector<std::string> others;
    for (const Atom* const row : atoms()) {
      const Atom& atom = *row;
      const bool wanted =
          gemm.instruction == ir::Instruction::automatic || gemm.instruction == atom.instruction;
      const Fit fit = wanted ? atom.fit(facts) : Fit{{}, "the author asks for another"};
      if (wanted && !fit.problem.empty() && gemm.instruction != ir::Instruction::automatic) {
        refuse(atom, fit, loc);
      }
      if (!fit.problem.empty()) {
        others.push_back(fmt::format("{}: {}", atom.name, fit.problem));
      } else if (const double clocks = atom.clocks(facts, fit.grid);
                 best == nullptr || clocks < best_clocks) {
        if (best != nullptr) others.push_back(slower(*best, best_clocks));
        best = &atom;
        best_fit = fit;
        best_clocks = clocks;
      } else {
        others.push_back(slower(atom, clocks));
      }
    }
    if (best == nullptr) {  // nothing fits
      best = atoms().front();
      best_fit = best->fit(facts);
      if (!best_fit.problem.empty()) refuse(*best, best_fit, loc);
      best_clocks = best->clocks(facts, best_fit.grid);
    }
    notes_.push_back(
        fmt::format("{}: gemm: {}, {} x {}{} {}, {:.0f} clocks; not {}", to_string(loc), best->name,
                    best_fit.grid.rows, best_fit.grid.columns,
                    best_fit.grid.depths > 1 ? fmt::format(" x {}", best_fit.grid.depths) : "",
                    best->warps == 1 ? "warps" : fmt::format("groups of {} warps", best->warps),
                    best_clocks, fmt::join(others, "; not ")));
    gemm.plan = {best->name, best_fit.grid};
  }

  static std::string slower(const Atom& atom, double clocks) {
    return fmt::format("{}: {:.0f} clocks", atom.name, clocks);
  }

  [[noreturn]] void refuse(const Atom& atom, const Fit& fit, SourceLoc loc) const {
    ErrorFields parts = {.kind = ErrorKind::program,
                         .op = kernel_.name,
                         .what = fmt::format("this gemm cannot be computed by {}", atom.name),
                         .expected = "a product that the instruction fits",
                         .got = fit.problem,
                         .hint = "leave the instruction to the compiler: Instruction::automatic",
                         .code = "GEMM",
                         .loc = loc};
    if (!fit.expected.empty()) {
      parts.what = fit.problem;
      parts.expected = fit.expected;
      parts.got = fit.got;
      parts.hint.clear();
    }
    if (!fit.remedy.empty()) parts.hint = fit.remedy;
    throw Error(std::move(parts));
  }

  const ir::Kernel& kernel_;
  const Target target_;
  std::vector<std::string>& notes_;
  ThreadGroup threads_;  // that compute the product
  IndexMath math_;
  std::set<int> bulk_targets_;  // by id of the storage
};

}  // namespace

void choose_products(ir::Kernel& kernel, Target target, std::vector<std::string>& notes) {
  ProductChooser(kernel, target, notes).choose(kernel.body);
}

}  // namespace tessera::codegen
