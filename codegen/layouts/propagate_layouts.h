#pragma once
// From layouts that are known to those that follow from them, through parallel loops, reductions and
// views.

#include <map>
#include <optional>
#include <string>

#include "codegen/layouts/layout_participants.h"

namespace tessera::codegen {

struct KnownLayouts {
  std::map<int, layout::Layout> fragments;  // by Buffer::id, views included
  std::map<int, layout::Layout> loops;      // by loop_id
};

/// Why layouts do not fit together, and the use that could go through shared memory instead.
struct LayoutConflict {
  std::string what;
  SourceLoc loc, related;
  const Participant* participant = nullptr;
  const FragmentUse* use = nullptr;  // null = none
};

/// `layout` for all threads of a group: those beyond its own hold further copies, so that every thread
/// of the group owns something.
layout::Layout for_all(const layout::Layout& layout, const ThreadGroup& threads);

/// Adds the layouts that the program decides itself: the author's, those of matrix instructions, and
/// full copies for reads by every thread.
std::optional<LayoutConflict> add_given_layouts(const Participants& participants,
                                                KnownLayouts& known);

/// Carries what is known through a component until nothing changes.
std::optional<LayoutConflict> propagate_layouts(const Participants& participants, int component,
                                                KnownLayouts& known);

}  // namespace tessera::codegen
