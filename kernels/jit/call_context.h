#pragma once
// The context of a thread's calls says what they do besides what their arguments say: whether kernels run or are only
// compiled, for which target, with which traps. Each thread has one. The scopes of this room (TrapScope, TargetScope,
// TuneScope, ..) set a field of it while they live; run_kernel (jit.cpp) takes it at its start and hands it down.
//
// Work that a thread gives to other threads does not see its context.

#include <functional>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "dsl/base/target.h"
#include "kernels/jit/target.h"

namespace tessera::kernels::jit {

class CallTimer;
class CountScope;
class PlanBuilder;
class TimelineScope;
class TuneScope;
struct DryLaunch;
struct NotedLaunch;

/// How far calls go, and who hears of their launches.
struct CallMode {
  enum class Until {
    done,      // run
    prepared,  // compile and load, launch nothing
    named      // only list the launches
  } until = Until::done;
  std::vector<DryLaunch>* named = nullptr;                 // gets the list
  PlanBuilder* plan = nullptr;                             // gets the launches, for a LaunchPlan
  const std::function<void(NotedLaunch)>* note = nullptr;  // called before each launch
  std::stop_token stop = {};                               // cancels compiles
};

struct CallContext {
  CallMode mode;
  std::optional<bool> traps;     // TrapScope; none: as the options of the process say
  std::optional<Target> target;  // TargetScope: of calls without a GPU; none: Options::cpu_target
  GpuModel model;                // TargetScope: of calls that only list their kernels
  CountScope* counts = nullptr;  // innermost; gets what the executor counts
  TimelineScope* timeline = nullptr;  // innermost; gets the marks of warps
  TuneScope* tuning = nullptr;        // innermost; is asked for tile sizes first
  CallTimer* timer = nullptr;         // TimerScope: measures what is tuned; null: the GPU's
  bool takes_any_values = false;      // UncheckedValues: values of CPU tensors are not looked at
};

/// The context of this thread, for the scopes and for entries of this room.
CallContext& call_context();

/// Sets the mode of this thread while it lives.
class CallModeScope {
 public:
  explicit CallModeScope(CallMode mode)
      : before_(std::exchange(call_context().mode, std::move(mode))) {}
  ~CallModeScope() { call_context().mode = std::move(before_); }
  CallModeScope(const CallModeScope&) = delete;
  CallModeScope& operator=(const CallModeScope&) = delete;

 private:
  CallMode before_;
};

}  // namespace tessera::kernels::jit
