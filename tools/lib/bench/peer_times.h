#pragma once
// Times of the peer library, recorded on another machine by the protocol of `tessera bench`,
// matched to our cases.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/op.h"

namespace tessera::tools {

/// The same text for all texts of one case of a shipped op. Errors: argument, of the case and for another op.
std::string case_key(std::string_view op, const std::string& text);

class PeerTimes {
 public:
  /// No times at all.
  PeerTimes() = default;
  /// A file of JSON lines, {"op", "case", "time_us"} with the case in the words of our own cases (a first line
  /// {"run": ..} says where they are from), or a folder: all its *.jsonl files of such lines. In a file with
  /// "peer_us", which tools/peers writes, that is the peer's time, and the fastest peer counts. The copy rates
  /// come from the run ("copy_gbs": pairs of bytes and GB/s) or from the README.md beside the files. Ops that
  /// we do not have are left out.
  ///
  /// Errors: argument, naming file and line, if a file cannot be read or a line is not of that form.
  ///         Files of a folder whose first line has no case as text are left out.
  static PeerTimes load(const std::string& path);

  /// Microseconds recorded for a case; nothing if the peer has no such case.
  std::optional<double> find(const kernels::OpInfo& op, const kernels::BenchCase& bench_case) const;

  /// The peer machine's copy rate in GB/s (read plus write) at `one_side` bytes, interpolated over
  /// the logarithm of the size; nothing below the smallest size recorded: there latency rules, not
  /// the copy rate.
  std::optional<double> copy_gbs(int64_t one_side) const;

  /// The lines whose case is none of our op, with the reason.
  const std::vector<std::string>& unread() const { return unread_; }

  bool empty() const { return times_.empty(); }

 private:
  void load_file(const std::string& path);
  void load_copy_rates(const std::string& readme);

  std::map<std::string, double> times_;  // by op and case
  std::vector<std::string> unread_;
  std::map<int64_t, double> copy_rates_;  // bytes of one side -> GB/s
};

}  // namespace tessera::tools
