#include "codegen/lower.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <span>
#include <variant>

#include "codegen/passes/arrange_shared.h"
#include "codegen/passes/check_convergence.h"
#include "codegen/passes/check_iterations.h"
#include "codegen/passes/check_roles.h"
#include "codegen/passes/check_sums.h"
#include "codegen/passes/choose_access_forms.h"
#include "codegen/passes/choose_conversions.h"
#include "codegen/passes/choose_copies.h"
#include "codegen/passes/choose_products.h"
#include "codegen/passes/choose_unroll.h"
#include "codegen/passes/clear_in_products.h"
#include "codegen/passes/expand_tiles.h"
#include "codegen/passes/fence_proxies.h"
#include "codegen/passes/finish_maps.h"
#include "codegen/passes/inline_loads.h"
#include "codegen/passes/insert_barriers.h"
#include "codegen/passes/insert_cluster_exit_barrier.h"
#include "codegen/passes/lower_bulk_copies.h"
#include "codegen/passes/lower_rings.h"
#include "codegen/passes/lower_tiles.h"
#include "codegen/passes/pipeline_loops.h"
#include "codegen/passes/place_arena.h"
#include "codegen/passes/place_declarations.h"
#include "codegen/passes/remove_dead.h"
#include "codegen/passes/solve_layouts.h"
#include "codegen/passes/split_roles.h"
#include "codegen/tile_ir/effects.h"
#include "codegen/verify/layouts.h"
#include "codegen/verify/thread_ir.h"
#include "codegen/verify/tile_ir.h"
#include "codegen/waits/place_waits.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

#ifdef NDEBUG
std::atomic<bool> verifies = false;
#else
std::atomic<bool> verifies = true;
#endif

/// The state that passes hand on: the kernel in the tile IR, then the program in the thread IR.
struct Lowering {
  ir::Kernel kernel;
  Target target;
  LayoutSolution layouts;
  Program program;
  std::vector<VarRef> uniform;  // the same for the whole block by construction
  struct Notes {                // for explain()
    std::vector<std::string> products, pipelines, copies, accesses, arena, roles, rings, barriers;
  } notes;
};

/// The kernel as the passes get it: with the marks of one block, among them those of the waits for rings, or with none.
ir::Kernel prepared(ir::Kernel kernel) {
  if (kernel.marked_block) {
    kernel.marks.emplace_back(kWaitMark);
  } else {
    ir::drop_marks(kernel.body);
    kernel.marks.clear();
  }
  return kernel;
}

void run_lower_tiles(Lowering& l) {
  LoweredTiles tiles = lower_tiles(l.kernel, l.layouts);
  l.program = std::move(tiles.program);
  l.program.target = l.target;
  l.program.marks = l.kernel.marks;
  l.program.marked_block = l.kernel.marked_block;
  l.uniform = std::move(tiles.uniform);
  l.notes.accesses = std::move(tiles.notes);
  l.notes.roles = std::move(tiles.roles);
  l.notes.rings = std::move(tiles.rings);
}

struct Pass {
  std::string_view name;
  void (*run)(Lowering&);
  /// Properties that hold from here on, first of the kernel, then of the program.
  std::variant<TileExpectations, Expectations> expected;
};

constexpr TileExpectations kRecorded = {};
constexpr TileExpectations kSplit = {.are_roles_split = true};
constexpr TileExpectations kSerial = {.are_loops_serial = true};
constexpr TileExpectations kExpanded = {.are_loops_serial = true, .are_tiles_expanded = true};
constexpr TileExpectations kSolved = {
    .are_loops_serial = true, .are_tiles_expanded = true, .are_layouts_solved = true};
constexpr Expectations kLowered = {};
constexpr Expectations kPlaced = {.is_shared_placed = true};
constexpr Expectations kBulkLowered = {.is_shared_placed = true, .are_bulk_copies_lowered = true};
constexpr Expectations kDeclared = {
    .is_shared_placed = true, .are_bulk_copies_lowered = true, .are_registers_declared = true};

/// The pass list.
constexpr Pass kPasses[] = {
    {"split_roles",
     [](Lowering& l) { l.kernel = split_roles(l.kernel, l.target, l.notes.pipelines); }, kSplit},
    {"check_roles", [](Lowering& l) { check_roles(l.kernel); }, kSplit},
    {"choose_products", [](Lowering& l) { choose_products(l.kernel, l.target, l.notes.products); },
     kSplit},
    {"pipeline_loops", [](Lowering& l) { l.kernel = pipeline_loops(l.kernel, l.notes.pipelines); },
     kSerial},
    {"lower_rings", [](Lowering& l) { lower_rings(l.kernel); }, kSerial},
    {"choose_copies", [](Lowering& l) { choose_copies(l.kernel, l.target, l.notes.copies); },
     kSerial},
    {"expand_tiles", [](Lowering& l) { l.kernel = expand_tiles(l.kernel); }, kExpanded},
    {"check_iterations", [](Lowering& l) { check_iterations(l.kernel); }, kExpanded},
    {"solve_layouts",
     [](Lowering& l) {
       l.layouts = solve_layouts(l.kernel);
       check_sums(l.kernel, l.layouts);
     },
     kSolved},
    {"lower_tiles", run_lower_tiles, kLowered},
    {"number_groups", [](Lowering& l) { number_groups(l.program); }, kLowered},
    {"clear_in_products", [](Lowering& l) { clear_in_products(l.program); }, kLowered},
    {"add_mbarriers", [](Lowering& l) { add_mbarriers(l.program); }, kLowered},
    {"arrange_shared", [](Lowering& l) { arrange_shared(l.program); }, kLowered},
    {"place_arena", [](Lowering& l) { l.notes.arena = place_arena(l.program); }, kPlaced},
    {"place_store_waits", [](Lowering& l) { place_store_waits(l.program); }, kPlaced},
    {"insert_barriers",
     [](Lowering& l) { l.notes.barriers = insert_barriers(l.program, l.uniform); }, kPlaced},
    {"place_product_waits", [](Lowering& l) { place_product_waits(l.program, l.notes.products); },
     kPlaced},
    {"fence_proxies", [](Lowering& l) { fence_proxies(l.program); }, kPlaced},
    {"insert_cluster_exit_barrier", [](Lowering& l) { insert_cluster_exit_barrier(l.program); },
     kPlaced},
    {"check_convergence", [](Lowering& l) { check_convergence(l.program, l.uniform); }, kPlaced},
    {"lower_bulk_copies", [](Lowering& l) { lower_bulk_copies(l.program); }, kBulkLowered},
    {"finish_maps", [](Lowering& l) { finish_maps(l.program); }, kBulkLowered},
    {"place_declarations", [](Lowering& l) { place_declarations(l.program); }, kDeclared},
};

/// From the program that the checked executor runs to the one that the GPU runs.
constexpr Pass kFinishingPasses[] = {
    {"drop_checks", [](Lowering& l) { drop_checks(l.program); }, kDeclared},
    {"remove_dead", [](Lowering& l) { remove_dead(l.program); }, kDeclared},
    {"inline_loads", [](Lowering& l) { inline_loads(l.program); }, kDeclared},
    {"choose_unroll", [](Lowering& l) { choose_unroll(l.program); }, kDeclared},
    {"choose_access_forms", [](Lowering& l) { choose_access_forms(l.program); }, kDeclared},
    {"choose_conversions", [](Lowering& l) { choose_conversions(l.program); }, kDeclared},
};

void verify_after(const Pass& pass, const Lowering& state) {
  if (const auto* expected = std::get_if<TileExpectations>(&pass.expected)) {
    verify(state.kernel, *expected, pass.name);
    if (expected->are_layouts_solved) verify_layouts(state.kernel, state.layouts, pass.name);
  } else {
    verify(state.program, state.uniform, std::get<Expectations>(pass.expected), pass.name);
  }
}

std::string text_of(const Lowering& state) {
  return state.program.name.empty() ? ir::to_string(state.kernel) : to_string(state.program);
}

/// Runs the passes up to `last`, all of them if there is none. True if it is among them. `ran` is told
/// each one's name.
bool run(std::span<const Pass> passes, Lowering& state, std::string_view last = {},
         const std::function<void(std::string_view)>& ran = nullptr) {
  for (const Pass& pass : passes) {
    pass.run(state);
    if (ran) ran(pass.name);
    if (verifies) verify_after(pass, state);
    if (pass.name == last) return true;
  }
  return false;
}

Lowering run_passes(const ir::Kernel& kernel, Target target) {
  Lowering result;
  result.kernel = prepared(kernel);
  result.target = target;
  if (verifies) verify(result.kernel, kRecorded, "recording");
  run(kPasses, result);
  return result;
}

std::vector<ir::BufferRef> find_fragments(const ir::Body& body) {
  std::vector<ir::BufferRef> result;
  std::set<int> known;
  for_each_use(body, [&](const ir::BufferRef& buffer, bool) {
    if (buffer->space != ir::Space::fragment) return;
    if (known.insert(buffer->id).second) result.push_back(buffer);
  });
  return result;
}

void append(std::string& text, const char* title, const std::vector<std::string>& notes) {
  if (notes.empty()) return;
  text += fmt::format("{}\n", title);
  for (const std::string& note : notes) text += "  " + note + "\n";
}

}  // namespace

void verify_passes(bool on) {
  verifies = on;
}

Program lower(const ir::Kernel& kernel, Target target) {
  return run_passes(kernel, target).program;
}

Program finish(Program program) {
  Lowering state;
  state.program = std::move(program);
  // Not verified: what is uniform by construction is known to lower() alone. text_after() verifies.
  for (const Pass& pass : kFinishingPasses) pass.run(state);
  return std::move(state.program);
}

std::vector<std::string_view> pass_names() {
  std::vector<std::string_view> names;
  for (const Pass& pass : kPasses) names.push_back(pass.name);
  for (const Pass& pass : kFinishingPasses) names.push_back(pass.name);
  return names;
}

void for_each_pass(const ir::Kernel& kernel, const SeePass& see, Target target) {
  Lowering state;
  state.kernel = prepared(kernel);
  state.target = target;
  see(0, "recorded", ir::to_string(kernel));
  int number = 0;
  const auto see_after = [&](std::string_view name) { see(++number, name, text_of(state)); };
  run(kPasses, state, {}, see_after);
  run(kFinishingPasses, state, {}, see_after);
}

std::string text_after(const ir::Kernel& kernel, std::string_view pass, Target target) {
  const std::vector<std::string_view> names = pass_names();
  if (std::find(names.begin(), names.end(), pass) == names.end()) {
    throw Error({.kind = ErrorKind::argument,
                 .what = "no such pass",
                 .expected = fmt::format("one of {}", fmt::join(names, ", ")),
                 .got = std::string(pass),
                 .code = "UNKNOWN_PASS"});
  }
  Lowering state;
  state.kernel = prepared(kernel);
  state.target = target;
  if (!run(kPasses, state, pass)) run(kFinishingPasses, state, pass);
  return text_of(state);
}

std::string explain(const ir::Kernel& kernel, Target target) {
  const Lowering lowered = run_passes(kernel, target);
  std::string text;
  append(text, "products", lowered.notes.products);
  append(text, "pipelines", lowered.notes.pipelines);
  append(text, "copies", lowered.notes.copies);
  append(text, "layout candidates (cost: memory requests and their sectors, shuffles, registers)",
         lowered.layouts.notes);
  append(text, "warnings: uncoalesced accesses", lowered.layouts.uncoalesced);
  append(text, "relayouts", lowered.layouts.relayouts);
  std::vector<std::string> layouts;
  for (const ir::BufferRef& fragment : find_fragments(lowered.kernel.body)) {
    layouts.push_back(fmt::format("{}: {}", fragment->name,
                                  to_string(lowered.layouts.fragments.at(fragment->id))));
  }
  append(text, "fragments", layouts);
  append(text, "accesses", lowered.notes.accesses);
  append(text, "shared memory", lowered.notes.arena);
  append(text, "roles", lowered.notes.roles);
  append(text, "rings", lowered.notes.rings);
  append(text, "barriers", lowered.notes.barriers);
  append(text, "conversions", conversion_notes(finish(lowered.program)));
  return text;
}

std::string draw_layouts(const ir::Kernel& kernel, Target target) {
  const Lowering lowered = run_passes(kernel, target);
  std::string text;
  for (const ir::BufferRef& fragment : find_fragments(lowered.kernel.body)) {
    const layout::Layout& layout = lowered.layouts.fragments.at(fragment->id);
    text += fmt::format("{} ({}): {}\n{}\n", fragment->name, to_string(fragment->loc),
                        to_string(layout), layout::draw(layout));
  }
  return text.empty() ? "no fragments\n" : text;
}

}  // namespace tessera::codegen
