// Counts each warp's memory requests. Addresses count from the start of the tensor or array, which
// is aligned on the GPU, so counts do not depend on the host's addresses.

#include <algorithm>
#include <array>

#include "codegen/cpu/machine/machine.h"

namespace tessera::codegen::cpu {
namespace {

constexpr int kBanks = 32;
constexpr int kBankBytes = 4;

/// Calls f(lanes, n) with the active lanes of each warp that has any.
template <class F>
void for_each_warp(const Mask& mask, const F& f) {
  std::array<int, kWarpSize> lanes{};
  for (int warp = mask.begin / kWarpSize; warp * kWarpSize < mask.end; ++warp) {
    int count = 0;
    const int last = std::min(mask.end, (warp + 1) * kWarpSize);
    for (int lane = std::max(mask.begin, warp * kWarpSize); lane < last; ++lane) {
      if (mask.lanes[lane] != 0) lanes[static_cast<size_t>(count++)] = lane;
    }
    if (count > 0) f(lanes.data(), count);
  }
}

/// The number of distinct values in [first, last). Reorders them.
int64_t count_distinct(int64_t* first, int64_t* last) {
  if (!std::is_sorted(first, last)) std::sort(first, last);
  return std::unique(first, last) - first;
}

/// Wavefronts of one phase: lanes that access different words of one bank serialise.
int64_t wavefronts(int64_t* words, int count) {
  int64_t* end = words + count;
  std::sort(words, end);
  end = std::unique(words, end);
  std::array<int64_t, kBanks> load{};
  for (const int64_t* word = words; word != end; ++word)
    ++load[static_cast<size_t>(*word % kBanks)];
  return *std::max_element(load.begin(), load.end());
}

}  // namespace

void Machine::count_transfer(const Instr& instr, const Transfer& transfer) {
  const Counts before = counts_;
  const Array& array = *storage(transfer.storage).array;
  if (array.space == ArraySpace::global) {
    count_global(transfer, bits(array.dtype));
  } else if (array.space == ArraySpace::cluster) {
    count_cluster(transfer, bits(array.dtype));
  } else {
    count_shared(transfer, bits(array.dtype));
  }
  note_access(instr, transfer, before);
}

/// Gives the access all that was counted after `before`.
void Machine::note_access(const Instr& instr, const Transfer& transfer, const Counts& before) {
  if (!launch_.count_accesses) return;
  Counts& sum = accesses_[{instr.statement, &transfer}];
  for (const auto& [name, count] : kCountNames) sum.*count += counts_.*count - before.*count;
}

void Machine::count_global(const Transfer& transfer, int64_t element_bits) {
  const int64_t* offsets = column<int64_t>(transfer.offset);
  const int64_t access_bits = transfer.width * element_bits;
  int64_t requests = 0, sectors = 0, least_sectors = 0, lanes_active = 0;
  for_each_warp(mask(), [&](const int* lanes, int count) {
    std::array<int64_t, kWarpSize> places{};
    for (int i = 0; i < count; ++i) places[static_cast<size_t>(i)] = offsets[lanes[i]];
    const int64_t distinct_bits =
        access_bits * count_distinct(places.data(), places.data() + count);
    least_sectors += (distinct_bits + 8 * kSectorBytes - 1) / (8 * kSectorBytes);
    // An access is aligned to its size, so up to 32 bytes touch one sector. First and last cover
    // wider accesses.
    std::array<int64_t, kWarpSize * 4> touched{};
    size_t n = 0;
    for (int i = 0; i < count; ++i) {
      const int64_t first_bit = offsets[lanes[i]] * element_bits;
      const int64_t first = first_bit / 8 / kSectorBytes;
      const int64_t last = (first_bit + access_bits - 1) / 8 / kSectorBytes;
      if (transfer.is_bulk) {  // too wide for the table; no two lanes share one
        sectors += last - first + 1;
        continue;
      }
      for (int64_t sector = first; sector <= last && n < touched.size(); ++sector) {
        touched[n++] = sector;
      }
    }
    sectors += count_distinct(touched.data(), touched.data() + n);
    lanes_active += count;
    ++requests;
  });
  const int64_t asked = lanes_active * ((access_bits + 7) / 8);
  (transfer.is_load ? counts_.global_load_requests : counts_.global_store_requests) += requests;
  (transfer.is_load ? counts_.global_load_sectors : counts_.global_store_sectors) += sectors;
  (transfer.is_load ? counts_.global_load_least_sectors : counts_.global_store_least_sectors) +=
      least_sectors;
  (transfer.is_load ? counts_.global_load_bytes : counts_.global_store_bytes) += asked;
}

void Machine::count_cluster(const Transfer& transfer, int64_t element_bits) {
  counts_.cluster_requests += active_warps();
  counts_.cluster_bytes += mask().count * ((transfer.width * element_bits + 7) / 8);
}

/// Shared memory serves 32 banks of 4 bytes per wavefront: accesses of 8 bytes take two phases of
/// half a warp, 16 bytes four phases of a quarter.
void Machine::count_shared(const Transfer& transfer, int64_t element_bits) {
  const Array& array = *storage(transfer.storage).array;
  const int64_t* offsets = column<int64_t>(transfer.offset);
  const int64_t access_bytes = (transfer.width * element_bits + 7) / 8;
  if (transfer.is_bulk) {
    const int64_t phases = active_warps() * ((access_bytes / kBankBytes + kBanks - 1) / kBanks);
    counts_.shared_requests += active_warps();
    counts_.shared_wavefronts += phases;
    counts_.shared_ideal_wavefronts += phases;
    return;
  }
  const int words_per_lane = static_cast<int>((access_bytes + kBankBytes - 1) / kBankBytes);
  const int lanes_per_phase = std::max(1, kWarpSize / words_per_lane);
  for_each_warp(mask(), [&](const int* lanes, int count) {
    ++counts_.shared_requests;
    std::vector<int64_t> words;
    for (int i = 0; i < count; ++i) {
      const int64_t byte = array.shared_offset + offsets[lanes[i]] * element_bits / 8;
      for (int word = 0; word < words_per_lane; ++word) {
        words.push_back(byte / kBankBytes + word);
      }
      const int phase = lanes[i] % kWarpSize / lanes_per_phase;
      const bool phase_ends = i + 1 == count || lanes[i + 1] % kWarpSize / lanes_per_phase != phase;
      if (!phase_ends) continue;
      counts_.shared_wavefronts += wavefronts(words.data(), static_cast<int>(words.size()));
      ++counts_.shared_ideal_wavefronts;
      words.clear();
    }
  });
}

}  // namespace tessera::codegen::cpu
