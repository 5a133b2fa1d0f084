#pragma once
// The numbers of a benchmark run, read back from a file that `tessera bench` wrote.

#include <optional>
#include <string>
#include <vector>

#include "tools/lib/bench/bench.h"

namespace tessera::tools {

struct BenchFile {
  BenchMachine machine;
  std::vector<BenchResult> results;
  std::vector<LaunchCost> launches;
};

/// Reads a file of --json; or one of --record, whose lines hold times: bytes come from our cases, and
/// rates of copies, which older records lack, are 0. Lines that are no case of ours are left out.
/// Throws Error (argument) naming the file and what it lacks.
BenchFile read_bench(const std::string& path);

/// The result that a run of bench would have: the recorded time of a case and the rates that follow from it. Nothing for a case
/// without a time or without bytes.
std::optional<BenchResult> recorded_result(const kernels::OpInfo& op, const kernels::BenchCase& one,
                                           const PeerTimes& times);

/// Gives every case that the peer has its times, in place of those recorded with the run. Cases are
/// found by op and label; those of other versions of the library keep what they have.
void set_peer_times(BenchFile& file, const PeerTimes& peer);

/// Ours over the peer's time, as bent to our copy rate. Needs peer_scaled_us.
double peer_ratio(const BenchResult& result);
/// Not slower than the peer: 2 % of leeway, and 0.15 us below 10 us.
bool keeps_up(const BenchResult& result);

/// An op against the peer: the geometric mean of the ratios of its cases.
struct OpRatio {
  std::string op;
  double ratio = 0;
  std::vector<const BenchResult*> cases;  // those with a peer time
};
/// In the order of the file; ops without a peer time are left out. Points into `file`.
std::vector<OpRatio> op_ratios(const BenchFile& file);
/// The geometric mean of the ops; 0 of none.
double mean_ratio(const std::vector<OpRatio>& ratios);

}  // namespace tessera::tools
