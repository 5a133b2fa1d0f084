#pragma once
// Propagates known layouts through parallel loops, reductions and views.

#include <map>
#include <optional>
#include <string>

#include "codegen/layouts/layout_participants.h"

namespace tessera::codegen {

struct KnownLayouts {
  std::map<int, layout::Layout> fragments;  // by Buffer::id, views included
  std::map<int, layout::Layout> loops;      // by loop_id
};

/// Why layouts conflict, and the use that could go through shared memory instead.
struct LayoutConflict {
  std::string what;
  SourceLoc loc, related;
  const Participant* participant = nullptr;
  const FragmentUse* use = nullptr;  // null = none
};

/// Extends `layout` to all threads of a group: threads beyond its own hold further replicas, so that
/// every thread of the group owns elements.
layout::Layout for_all(const layout::Layout& layout, const ThreadGroup& threads);

/// Adds the layouts that the program determines: the author's, those of matrix instructions, and
/// full replicas for reads by every thread.
std::optional<LayoutConflict> add_given_layouts(const Participants& participants,
                                                KnownLayouts& known);

/// Propagates layouts through a component until nothing changes.
std::optional<LayoutConflict> propagate_layouts(const Participants& participants, int component,
                                                KnownLayouts& known);

}  // namespace tessera::codegen
