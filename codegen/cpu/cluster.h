#pragma once
// Runs one cluster after the other on one thread: its blocks take turns, each from one cluster
// barrier to the next. Without clusters that is one block after the other.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "codegen/cpu/machine.h"

namespace tessera::codegen::cpu {

class Cluster {
 public:
  Cluster(const Program& program, const Bytecode& bytecode, const Launch& launch);

  std::array<int64_t, 3> grid() const { return machines_.front()->grid(); }
  /// Goes to the beginning of cluster `index`; they are counted with x fastest.
  void start(int64_t index);
  /// Runs it to its end (true) or to its next barrier of the grid. Throws Error of kind trap.
  bool resume();
  /// Of all that ran.
  Counts counts() const;
  Machine::Accesses accesses() const;

 private:
  const Launch& launch_;
  int64_t first_block_ = 0;  // its number
  Neighbours neighbours_;
  std::vector<std::unique_ptr<Machine>> machines_;  // by rank
};

void add(Counts& sum, const Counts& part);
void add(Machine::Accesses& sum, const Machine::Accesses& part);

}  // namespace tessera::codegen::cpu
