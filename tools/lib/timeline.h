#pragma once
// Pictures of kernels::jit::Timeline.

#include <string>

#include "kernels/jit/timeline.h"

namespace tessera::tools {

/// An SVG file that stands by itself, on a light or a dark page: a row per warp, by roles; a box per mark, in the colour
/// that the legend gives; marks inside others are flatter.
///
///   jit::TimelineScope scope;
///   own_kernel(tensors, {}, nullptr);
///   std::ofstream("own_kernel.svg") << tools::timeline_picture(scope.timelines().front());
std::string timeline_picture(const kernels::jit::Timeline& timeline);

/// The same for a terminal: a line per warp, a letter per mark; then how long each role was in each of them.
std::string timeline_text(const kernels::jit::Timeline& timeline);

}  // namespace tessera::tools
