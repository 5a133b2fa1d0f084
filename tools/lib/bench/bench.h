#pragma once
// `tessera bench`: op times against what the memory of the same machine can do and against the peer.

#include <optional>
#include <string>
#include <vector>

#include "kernels/op.h"
#include "runtime/driver/device_timer.h"
#include "tools/lib/bench/copy_rate.h"
#include "tools/lib/bench/peer_times.h"
#include "tools/lib/bench/stream_time.h"

namespace tessera::tools {

struct BenchResult {
  std::string op;
  std::string label;
  int64_t bytes = 0;    // least traffic of the op
  int64_t written = 0;  // of it: outputs and in-place tensors
  runtime::Timing timing;
  double gbs = 0;
  double copy_gbs = 0;                   // of a copy with as many bytes
  double stream_us = 0;                  // of a kernel that reads and writes as many bytes
  std::optional<double> peer_us;         // as recorded
  std::optional<double> peer_scaled_us;  // times (its machine's copy rate / ours)
  std::optional<double> before_us;       // of an earlier run of ours

  double percent_of_copy() const { return copy_gbs > 0 ? 100 * gbs / copy_gbs : 0; }
  /// By more than 2 % and by more than 0.15 us, the margins that targets leave.
  bool is_slower() const {
    return before_us && timing.us > *before_us * 1.02 && timing.us > *before_us + 0.15;
  }
  double percent_of_stream() const { return timing.us > 0 ? 100 * stream_us / timing.us : 0; }
};

/// Measures one case on the timer's device.
BenchResult bench_case(const kernels::OpInfo& op, const kernels::BenchCase& bench_case,
                       runtime::DeviceTimer& timer, CopyRate& copy, StreamTime& stream,
                       const PeerTimes& peer);
/// Enters the peer's time, as recorded and for a machine that copies as fast as ours.
void scale_peer(BenchResult& result, double peer_us, const PeerTimes& peer);

/// Host time of a call on small tensors, nothing waiting for the GPU: medians over batches of
/// launches, the three ways in turn.
struct LaunchCost {
  std::string op;
  std::string label;
  size_t num_tensors = 0, num_kernels = 0;
  double bare_ns = 0;  // cuLaunchKernelEx of the same kernels, everything filled in before
  double plan_ns = 0;  // jit::LaunchPlan
  double call_ns = 0;  // the op's C++ function, with its checks
};
LaunchCost launch_cost(const kernels::OpInfo& op, const kernels::BenchCase& example, int device);

/// The machine and the build when the numbers were taken.
struct BenchMachine {
  std::string device, driver, nvrtc, method;
  std::string date;  // "2026-11-29", of the run
  std::string code;  // version, and the first digits of the stamp of the kernels' sources
};
BenchMachine bench_machine(const runtime::DeviceTimer& timer);

std::string bench_table(const std::vector<BenchResult>& results);
std::string launch_table(const std::vector<LaunchCost>& costs);
/// A line of JSON per case, {"op", "case", "time_us"}: what PeerTimes and read_bench() read, behind run_line().
std::string bench_record(const std::vector<BenchResult>& results);
/// The cases that are slower than their earlier times, and how many have none.
std::string slower_text(const std::vector<BenchResult>& results);
/// {"machine": {...}, "cases": [...], "launch": [...]}
std::string bench_json(const BenchMachine& machine, const std::vector<BenchResult>& results,
                       const std::vector<LaunchCost>& costs);

}  // namespace tessera::tools
