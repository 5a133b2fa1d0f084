#pragma once
// The part of a launch that every block gets.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "codegen/cpu/executor.h"
#include "codegen/cpu/races/block_order.h"
#include "codegen/cpu/races/grid_shadow.h"

namespace tessera::codegen::cpu {

/// The checked arguments of one launch, shared by all workers.
struct Launch {
  struct Memory {
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  std::vector<Memory> memory;     // by parameter
  std::vector<uint64_t> scalars;  // by parameter, native storage
  bool count = false;
  bool count_accesses = false;                                   // each by itself, too
  const std::function<void(std::string_view)>* print = nullptr;  // null = standard output
  std::atomic<int>* reported = nullptr;                          // null = nobody asks
  std::vector<WarpMarks>* marks = nullptr;                       // the same
  Arithmetic arithmetic = Arithmetic::exact;
  uint32_t schedule = 0;              // see Options
  GridShadow* grid_shadow = nullptr;  // null = what other blocks do is not looked at
  BlockOrder* block_order = nullptr;  // null = no atomics order blocks
};

}  // namespace tessera::codegen::cpu
