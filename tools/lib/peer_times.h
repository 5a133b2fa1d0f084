#pragma once
// Times of the peer library, recorded on another machine by the protocol of `tessera bench`,
// matched to our cases.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/op.h"

namespace tessera::tools {

/// What identifies a case, as text: shape symbols ("T" = "8001"), parameters ("format" = "e4m3",
/// "x_block_size" = "128,128" or "none"), "dtype", the dtype of the op's first input, and for every
/// optional input whether it is there ("x_sf given" = "true").
using CaseFacts = std::map<std::string, std::string>;
CaseFacts facts_of(const kernels::OpInfo& op, const kernels::BenchCase& bench_case);

class PeerTimes {
 public:
  /// No times at all.
  PeerTimes() = default;
  /// A file of JSON lines, or a folder: all its *.jsonl files and the copy rates of its README.md.
  /// A line is
  /// {"op", "params", "time_us"} in our names, or {"kernel", "params", "time_us"} in the peer's,
  /// which are translated. Lines about ops that we do not know are ignored. Throws Error (argument)
  /// if a file cannot be read or is no JSON.
  static PeerTimes load(const std::string& path);

  /// Microseconds recorded for a case; nothing if the peer has no such case.
  std::optional<double> find(const kernels::OpInfo& op, const kernels::BenchCase& bench_case) const;

  /// The peer machine's copy rate in GB/s (read plus write) at `one_side` bytes, interpolated over
  /// the logarithm of the size; nothing below the smallest size recorded: there latency rules, not
  /// the copy rate.
  std::optional<double> copy_gbs(int64_t one_side) const;

  bool empty() const { return lines_.empty(); }

 private:
  struct Line {
    std::string op;
    CaseFacts facts;
    double us = 0;
  };
  void load_file(const std::string& path);
  void load_copy_rates(const std::string& readme);

  std::vector<Line> lines_;
  std::map<int64_t, double> copy_rates_;  // bytes of one side -> GB/s
};

}  // namespace tessera::tools
