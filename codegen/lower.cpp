#include "codegen/lower.h"

#include <fmt/format.h>

#include <set>

#include "codegen/passes/check_iterations.h"
#include "codegen/passes/check_reached.h"
#include "codegen/passes/count_async_groups.h"
#include "codegen/passes/drain_rows.h"
#include "codegen/passes/expand_tiles.h"
#include "codegen/passes/insert_barriers.h"
#include "codegen/passes/keep_blocks.h"
#include "codegen/passes/lower_tiles.h"
#include "codegen/passes/pipeline_loops.h"
#include "codegen/passes/place_declarations.h"
#include "codegen/passes/place_shared.h"
#include "codegen/passes/solve_layouts.h"
#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

struct Lowered {
  Program program;
  LayoutPlan layouts;
  std::vector<ir::BufferRef> fragments;
  std::vector<std::string> pipelines, accesses, arena, barriers;
};

std::vector<ir::BufferRef> find_fragments(const ir::Body& body) {
  std::vector<ir::BufferRef> result;
  std::set<int> known;
  for_each_use(body, [&](const ir::BufferRef& buffer, bool) {
    if (buffer->space != ir::Space::fragment) return;
    if (known.insert(buffer->id).second) result.push_back(buffer);
  });
  return result;
}

/// The pass list.
Lowered lower_all(const ir::Kernel& kernel) {
  Lowered result;
  ir::Kernel serial = pipeline_loops(kernel, result.pipelines);
  count_async_groups(serial.body);
  drain_rows(serial.body);
  ir::Kernel loops = expand_tiles(serial);
  check_iterations(loops);
  result.layouts = solve_layouts(loops);
  result.fragments = find_fragments(loops.body);
  LoweredTiles tiles = lower_tiles(loops, result.layouts);
  result.program = std::move(tiles.program);
  result.accesses = std::move(tiles.notes);
  result.pipelines.insert(result.pipelines.end(), tiles.synchronous.begin(),
                          tiles.synchronous.end());
  result.arena = place_shared(result.program);
  result.barriers = insert_barriers(result.program, tiles.uniform);
  keep_blocks(result.program);
  check_reached(result.program, tiles.uniform);
  place_declarations(result.program);
  return result;
}

void append(std::string& text, const char* title, const std::vector<std::string>& notes) {
  if (notes.empty()) return;
  text += fmt::format("{}\n", title);
  for (const std::string& note : notes) text += "  " + note + "\n";
}

}  // namespace

Program lower(const ir::Kernel& kernel) {
  return lower_all(kernel).program;
}

std::string explain(const ir::Kernel& kernel) {
  const Lowered lowered = lower_all(kernel);
  std::string text;
  append(text, "pipelines", lowered.pipelines);
  append(text, "layout candidates (cost: memory requests and their sectors, shuffles, registers)",
         lowered.layouts.notes);
  append(text, "warnings: uncoalesced accesses", lowered.layouts.uncoalesced);
  append(text, "relayouts", lowered.layouts.relayouts);
  std::vector<std::string> layouts;
  for (const ir::BufferRef& fragment : lowered.fragments) {
    layouts.push_back(fmt::format("{}: {}", fragment->name,
                                  to_string(lowered.layouts.fragments.at(fragment->id))));
  }
  append(text, "fragments", layouts);
  append(text, "accesses", lowered.accesses);
  append(text, "shared memory", lowered.arena);
  append(text, "barriers", lowered.barriers);
  return text;
}

std::string draw_layouts(const ir::Kernel& kernel) {
  const Lowered lowered = lower_all(kernel);
  std::string text;
  for (const ir::BufferRef& fragment : lowered.fragments) {
    const layout::Layout& layout = lowered.layouts.fragments.at(fragment->id);
    text += fmt::format("{} ({}): {}\n{}\n", fragment->name, to_string(fragment->loc),
                        to_string(layout), layout::draw(layout));
  }
  return text.empty() ? "no fragments\n" : text;
}

}  // namespace tessera::codegen
