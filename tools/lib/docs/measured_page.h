#pragma once
// The parts of pages that the records in tools/measured decide.

#include <optional>
#include <string>
#include <vector>

#include "tools/lib/bench/measured.h"
#include "tools/lib/bench/peer_times.h"

namespace tessera::tools {

/// All records of tools/measured.
struct Records {
  RecordedRun h100_run, h200_run;
  PeerTimes h100, h200;           // ours
  std::vector<PeerRecord> peers;  // on an H200
  LanguageRecord languages;

  /// Throws the argument errors of reading them.
  static Records load(const std::string& root);
  /// The peer's time of a case; of ours in the same run if it was recorded.
  std::optional<PeerCase> find(const std::string& peer, const kernels::OpInfo& op,
                               const kernels::BenchCase& one) const;
  /// The peers that have a case of the op, in the order of the records.
  std::vector<std::string> peers_of(const kernels::OpInfo& op) const;
};

/// A row per case of an op: bytes or floating-point operations, our times, those of peers. Empty without cases.
std::string times_table(const Records& records, const kernels::OpInfo& op);
/// The means over all cases, in a sentence: for the first screen of README.
std::string speed_text(const Records& records);
/// Chosen cases against the peer, and what the run was: for README.
std::string ratios_text(const Records& records);
/// Per family and op its longest case: time, rate, share of a copy's rate or TFLOP/s, peer.
std::string measured_text(const Records& records);
/// The kernels that were written in several languages. Lines of ours are counted in examples.
std::string languages_text(const std::string& root, const Records& records);

/// The roofline of the H200's record as a picture that stands alone: an SVG file.
std::string roofline_picture(const Records& records);

}  // namespace tessera::tools
