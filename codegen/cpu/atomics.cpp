// Atomics, one thread after the other, in thread order. Blocks that run concurrently on several CPU
// threads see each other's atomics as indivisible. A program whose result depends on the order of
// blocks runs them sequentially (Bytecode::in_block_order).

#include <atomic>
#include <bit>
#include <cstring>

#include "codegen/cpu/machine.h"

namespace tessera::codegen::cpu {
namespace {

/// f32 sums in global memory: the instruction flushes subnormals.
float flushed(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool subnormal = (bits & 0x7F800000u) == 0;
  return subnormal ? std::bit_cast<float>(bits & 0x80000000u) : value;
}

template <class T>
T next(const AtomicStep& step, T old, T operand, T compare) {
  switch (step.op) {
    case ir::AtomicOp::exchange:
      return operand;
    case ir::AtomicOp::compare_exchange:
      return old == compare ? operand : old;
    default:
      break;
  }
  T result{};
  if constexpr (sizeof(T) == sizeof(float)) {
    if (step.flushes) {
      const float a = flushed(std::bit_cast<float>(old));
      const float b = flushed(std::bit_cast<float>(operand));
      float sum = 0;
      step.combine(&sum, &a, &b, nullptr, 1);
      return std::bit_cast<T>(flushed(sum));
    }
  }
  step.combine(&result, &old, &operand, nullptr, 1);
  return result;
}

}  // namespace

template <class T>
void Machine::atomic_lanes(const Instr& instr, const Transfer& transfer, std::byte* base) {
  const AtomicStep& step = code_.atomics[static_cast<size_t>(transfer.atomic)];
  const int64_t* offsets = column<int64_t>(transfer.offset);
  const bool is_run = transfer.width > 1;
  const Columns from =
      is_run ? columns(instr, step.from, transfer.width) : Columns{at(step.operand), 0};
  const T* compares =
      step.compare ? column<T>(step.compare) : reinterpret_cast<const T*>(from.data);
  T* found = column<T>(transfer.value);
  for_each_lane(mask(), [&](int lane) {
    for (int i = 0; i < transfer.width; ++i) {
      const T operand = reinterpret_cast<const T*>(from.data + i * from.stride)[lane];
      std::atomic_ref<T> element(reinterpret_cast<T*>(base)[offsets[lane] + i]);
      T old = element.load(std::memory_order_relaxed);
      while (!element.compare_exchange_weak(old, next(step, old, operand, compares[lane]),
                                            std::memory_order_relaxed)) {
      }
      found[lane] = old;
    }
    if (launch_.block_order != nullptr && step.releases) {
      const bool wrote = step.op != ir::AtomicOp::compare_exchange || found[lane] == compares[lane];
      launch_.block_order->atomic(block_number_, lane, base + offsets[lane] * int64_t{sizeof(T)},
                                  step.acquires, wrote);
    }
  });
}

void Machine::atomic(const Instr& instr) {
  const Transfer& transfer = code_.transfers[static_cast<size_t>(instr.index)];
  const Array& array = *storage(transfer.storage).array;
  std::byte* base = memory_of(instr, transfer);
  if (code_.checked) check_transfer(instr, transfer, base);
  if (launch_.count) counts_.atomics += active_warps();
  switch (bytes(array.dtype)) {
    case 2:
      return atomic_lanes<uint16_t>(instr, transfer, base);
    case 4:
      return atomic_lanes<uint32_t>(instr, transfer, base);
    default:
      return atomic_lanes<uint64_t>(instr, transfer, base);
  }
}

}  // namespace tessera::codegen::cpu
