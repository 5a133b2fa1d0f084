#pragma once
// Runs a thread-IR program on the CPU: each statement for all threads of a block under an active
// mask. With traps on it is the checked twin of the GPU; what it accepts is what the GPU will run.

#include <cstdint>
#include <memory>
#include <span>

#include "codegen/thread_ir.h"
#include "dsl/base/tensor_view.h"

namespace tessera::codegen::cpu {

/// One kernel argument, in the order of Program::params. Pointers: `tensor`, whose memory span is
/// what may be touched. Integer, boolean dims and scalars: `integer`; float scalars: `number`.
struct Argument {
  TensorView tensor;
  int64_t integer = 0;
  double number = 0;
};

/// What a run did, exact and repeatable. Requests count warps with at least one active lane.
struct Counts {
  int64_t global_load_requests = 0, global_load_sectors = 0,
          global_load_bytes = 0;  // sectors of 32 bytes
  int64_t global_store_requests = 0, global_store_sectors = 0,
          global_store_bytes = 0;                      // bytes: asked for
  int64_t shared_requests = 0, shared_wavefronts = 0;  // wavefronts over the ideal = bank conflicts
  int64_t shared_ideal_wavefronts = 0;
  int64_t barriers = 0, warp_barriers = 0, shuffles = 0, guards = 0;
};

struct Options {
  bool traps =
      false;  // out of bounds, misaligned, uninitialised, race, divergent barrier, index overflow
  int workers = 0;           // blocks run in parallel on this many CPU threads; 0 = all cores
  Counts* counts = nullptr;  // filled when given
};

/// A program prepared for execution. Immutable; run() may be called from several threads.
class Executable {
 public:
  explicit Executable(Program program);
  ~Executable();
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;

  const Program& program() const;

  /// Throws Error of kind trap (with code, the author's line, thread, block and, for races, the
  /// other line).
  void run(std::span<const Argument> arguments, const Options& options = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::codegen::cpu
