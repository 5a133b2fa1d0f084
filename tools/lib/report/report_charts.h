#pragma once
// The two drawings of a report.

#include <string>

#include "tools/lib/bench/bench_file.h"

namespace tessera::tools {

/// The family of an op, or "other": class names of what the charts draw.
std::string family_of(const std::string& op);

/// Ours over the peer's time: a bar per op, the fastest first, a dot per case, the mean over ops.
/// Empty if no case has a peer time.
std::string draw_peer_ratios(const BenchFile& file);

/// Bytes against bandwidth, both logarithmic: a dot per case below the copy rate of its size.
/// Empty without cases.
std::string draw_roofline(const BenchFile& file);

}  // namespace tessera::tools
