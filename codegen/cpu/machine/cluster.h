#pragma once
// Runs clusters sequentially on one thread. The blocks of a cluster take turns from one cluster
// barrier to the next. Without clusters each block runs alone.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "codegen/cpu/machine/machine.h"

namespace tessera::codegen::cpu {

class Cluster {
 public:
  Cluster(const Program& program, const Bytecode& bytecode, const Launch& launch);

  std::array<int64_t, 3> grid() const { return machines_.front()->grid(); }
  /// Goes to the start of cluster `index`, counted with x fastest.
  void start(int64_t index);
  /// Where a cluster stops: `signal`: some of its blocks wait for signals, and no other can go on.
  enum class Halt : uint8_t { end, grid_barrier, signal };
  /// Runs the cluster as far as it can go. Throws Error of kind trap.
  Halt resume();
  /// True if the last resume() did more than look for signals.
  bool went_on() const { return went_on_; }
  /// Adds the blocks that wait for signals.
  void add_waiting(std::vector<SignalWait>& waits) const;
  /// The counts of all clusters so far.
  Counts counts() const;
  Machine::Accesses accesses() const;

 private:
  const Launch& launch_;
  int64_t first_block_ = 0;  // its number
  bool went_on_ = false;
  Neighbours neighbours_;
  std::vector<std::unique_ptr<Machine>> machines_;  // by rank
};

void add(Counts& sum, const Counts& part);
void add(Machine::Accesses& sum, const Machine::Accesses& part);

}  // namespace tessera::codegen::cpu
