#pragma once
// The facts of each target that decide which program a kernel becomes: the limits of a block and of a
// multiprocessor, and the instructions that exist. This table is their only place: the language, the
// passes, the printer, the executor, the host's choices and the runtime ask it. Another file that
// compares capabilities is an error of tools/check_includes.
//
// A row holds from its capability up to the next row. Instructions of the columns behind `letter` exist
// for targets with a letter only: sm_90a has wgmma, sm_90 has not. A new GPU is a row; a new instruction
// is a column, and a question in the pass that chooses it.

#include <cstdint>

#include "dsl/base/target.h"

namespace tessera {

struct TargetFacts {
  int64_t shared_memory = 0;    // bytes of a block at most
  int threads = 0, blocks = 0;  // of a multiprocessor at once
  int registers = 65536;        // of a multiprocessor
  int max_cluster = 1;          // blocks; 1: there are no clusters
  bool has_fp8 = false;         // conversions and mma.sync of 8-bit floats
  bool has_fp4 = false;         // conversions of 4-bit floats; only for targets with the letter a
  bool has_bf16_arithmetic = false;    // add, sub, mul and atomics of bf16, not only fma
  bool has_vector_reductions = false;  // red of several elements at once
  bool has_pdl = false;                // a kernel may begin before the one before it has ended
  bool has_bulk_copies = false;        // to and from shared memory, awaited at an mbarrier
  bool has_tensor_copies = false;
  // Only for targets with a letter:
  bool writes_maps = false;      // tensor maps on the device
  bool has_multicast = false;    // without a letter ptxas takes it and warns that it may be slow
  bool has_wgmma = false;        // matrix products of four warps
  bool moves_registers = false;  // setmaxnreg, from one group of four warps to another
  // The executor adds products as the tensor cores do, to the bit; else each sum is rounded once.
  bool has_known_sums = false;
};

/// Limits that hold on every target, and the largest cluster of any target.
inline constexpr int kMaxRegisters = 255;        // of a thread
inline constexpr int kMaxLaunchRegisters = 248;  // where roles move them: a multiple of 8
inline constexpr int kMaxCluster = 16;

namespace target_table {

struct Row {
  int number;   // compute capability times 10
  int64_t kib;  // shared memory
  int threads, blocks, max_cluster;
  int generation;               // 80, 89, 90: of the instructions for all targets
  bool maps, multicast, wgmma;  // letter
};

// A cluster of more than 8 blocks is not portable: the driver may have no place for it.
inline constexpr Row kRows[] = {
    // capability, KiB, threads, blocks, cluster, generation, maps, multicast, wgmma
    {80, 163, 2048, 32, 1, 80, false, false, false},  // A100
    {86, 99, 1536, 16, 1, 80, false, false, false},   // RTX 30
    {87, 163, 1536, 16, 1, 80, false, false, false},  // Orin
    {88, 99, 1536, 16, 1, 80, false, false, false},   // sm_88
    {89, 99, 1536, 24, 1, 89, false, false, false},   // L40, RTX 40
    {90, 227, 2048, 32, 16, 90, true, true, true},    // H100, H200
    {100, 227, 2048, 32, 16, 90, true, true, false},  // B200
    {101, 227, 1536, 24, 16, 90, true, true, false},  // sm_101
    {103, 227, 2048, 32, 16, 90, true, true, false},  // B300
    {110, 227, 1536, 24, 8, 90, true, false, false},  // Thor
    {120, 99, 1536, 24, 8, 90, true, false, false},   // RTX 50
};

}  // namespace target_table

constexpr TargetFacts facts_of(Target target) {
  const target_table::Row* row = target_table::kRows;
  for (const target_table::Row& one : target_table::kRows) {
    if (one.number <= target.number()) row = &one;
  }
  const bool is_hopper_on = row->generation >= 90, has_letter = target.letter != 0;
  TargetFacts facts;
  facts.shared_memory = row->kib * 1024;
  facts.threads = row->threads;
  facts.blocks = row->blocks;
  facts.max_cluster = row->max_cluster;
  facts.has_fp8 = row->generation >= 89;
  facts.has_fp4 = row->number >= 100 && target.letter == 'a';
  facts.has_bf16_arithmetic = facts.has_vector_reductions = facts.has_pdl = is_hopper_on;
  facts.has_bulk_copies = facts.has_tensor_copies = is_hopper_on;
  facts.writes_maps = row->maps && has_letter;
  facts.has_multicast = row->multicast && has_letter;
  facts.has_wgmma = facts.moves_registers = row->wgmma && has_letter;
  facts.has_known_sums = row->number == 90;  // measured on an H200
  return facts;
}

/// Registers of each thread at launch, of a block that has a multiprocessor to itself.
///
///   registers_at_launch(384);  // 168
constexpr int registers_at_launch(int threads) {
  const int each = TargetFacts().registers / threads / 8 * 8;
  return each < kMaxLaunchRegisters ? each : kMaxLaunchRegisters;
}

}  // namespace tessera
