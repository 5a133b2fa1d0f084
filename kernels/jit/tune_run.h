#pragma once
// Measures the tile sizes that a call leaves open (tune.h), and stores the fastest.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/base/tensor_view.h"
#include "kernels/jit/tune.h"
#include "kernels/op_arguments.h"
#include "runtime/cache/tuned.h"

namespace tessera::kernels::jit {

/// The choices that the kernels of a call leave open, each once, in order. Makes the call with the standard ones.
TESSERA_API std::vector<TuneAsk> open_choices(const std::function<void()>& call);

struct TuneOptions {
  double budget_s = 60;  // per choice: no round of samples begins later
  bool store = true;     // in the user's database; from then on calls use the result
  /// Why a candidate need not be measured; "" if it must. Not asked of the standard choice. Null: all must.
  std::function<std::string(const TuneAsk&, const TuneChoice&)> skip = {};
  std::vector<TensorView> workspaces = {};  // memory whose contents are no result
};

/// The result of tune::run.
struct TuneReport {
  std::vector<runtime::TunedEntry> entries;  // one per open choice: the winner and all times
  std::vector<std::string>
      differing;  // candidates that change a result, which is a bug of the kernel
  std::vector<std::string> not_stored;  // why an entry is not in the user's database
};

namespace tune {

/// Tunes the kernels of `call`: a call of an op, or of your own kernel whose Spec holds what choose() returned.
/// Compiles all candidates, drops those that fail, spill or change a bit of a result, and measures the others in
/// turn, on copies of the call's tensors and in a stream of its own: nothing that `call` would launch is launched
/// on its own tensors, and they may hold anything. `call` is made once and more per candidate; it must use memory
/// of the same sizes each time. Another choice than the standard one wins only if it is clearly faster.
/// Waits for the device, now and then. Without an open choice the report is empty.
///
/// Errors:  those of the call with the standard choices; unsupported, for a call on the CPU without a TimerScope;
///          driver, if the device has too little memory for the copies and 256 MiB.
/// Example: const TuneReport report = jit::tune::run([&] { transpose({.x = x, .out = out}, stream); });
TESSERA_API TuneReport run(const std::function<void()>& call, const TuneOptions& options = {});

}  // namespace tune

/// Where times come from: a GPU, or the script of a test.
class CallTimer {
 public:
  virtual ~CallTimer() = default;
  /// Makes `call`, which puts its work into `stream`, once and returns its time. What it throws drops the candidate.
  virtual double us(const std::function<void()>& call, Stream stream) = 0;
  /// How it measures: "CUPTI".
  virtual std::string method() const = 0;
};

/// Times of a GPU: its activity by CUPTI, after an L2 flush; CUDA events where CUPTI cannot be used, and method()
/// says so. Best made before the context of the device, which CUPTI wants to see being made.
///
/// Errors: driver, without 256 MiB of free memory.
TESSERA_API std::unique_ptr<CallTimer> gpu_timer(int device);

/// While it lives, the tuning of this thread takes its times from `timer`.
class TESSERA_API TimerScope {
 public:
  explicit TimerScope(CallTimer& timer);
  ~TimerScope();
  TimerScope(const TimerScope&) = delete;
  TimerScope& operator=(const TimerScope&) = delete;

 private:
  CallTimer* before_;
};

/// True if calls on the device tune what the databases lack (TESSERA_TUNE=on) and this one is not itself made by
/// the tuner or for its kernels alone.
bool tunes_first_calls(Device device);

/// Tunes what the databases lack for a call. Leaves it, with one warning, while `stream` is being captured, after
/// Runtime::seal(), without a compiler, and where tuning fails: no error of it is one of the call.
void tune_first_call(const std::string& op, Device device, Stream stream,
                     const std::vector<TensorView>& workspaces, const std::function<void()>& call);

}  // namespace tessera::kernels::jit
