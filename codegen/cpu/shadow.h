#pragma once
// Who touched each byte of shared memory: finds races and reads of bytes
// never written; and races on elements of global tensors that a kernel reads and writes. Threads are
// numbered through the cluster, kThreadsPerBlock for each block.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "codegen/cpu/warp_clocks.h"

namespace tessera::codegen::cpu {

/// The access that conflicts with the one being recorded.
struct Conflict {
  int thread = 0;
  int statement = 0;
  const char* how = "";  // "read", "written" or "changed atomically"
};

/// Shadow of one block's shared memory. Two accesses of different threads to a byte race if at
/// least one writes and none comes before the other, by what the clocks know of barriers.
///
/// Atomics do not race with atomics, but with every other access.
///
/// Per byte it keeps the last write and one read of each of two warps. Where only whole blocks meet,
/// that is enough: with reads of two warps recorded, a write of any thread is unordered with one of
/// them, until a barrier of their block; reads of two blocks stay so until the next cluster barrier.
/// Where parts of a block meet, the reads of further warps are kept beside them.
class SharedShadow {
 public:
  /// `granule`: what every access is a multiple of and aligned to, in bytes, a power of two. The bytes of
  /// a granule have one state: an access passes the first byte of each. `parts_meet`: there are other
  /// barriers than those of warps, blocks and the cluster.
  SharedShadow(int64_t bytes, const WarpClocks& clocks, bool parts_meet, int granule = 1);

  int granule() const { return 1 << shift_; }

  void start_block();

  /// Records an access of one byte by `thread`, made by `statement`; the conflict, if there is one.
  std::optional<Conflict> read(int64_t byte, int thread, int statement);
  /// `lanes`: of the warp that write the byte, from `thread` on; nobody knows which of them.
  std::optional<Conflict> write(int64_t byte, int thread, int statement, int lanes = 1);
  std::optional<Conflict> atomic(int64_t byte, int thread, int statement);
  /// Marks a byte as the destination of an asynchronous copy that `statement` started; 0 = landed.
  void set_in_flight(int64_t byte, int32_t statement) { in_flight_[place(byte)] = statement; }
  /// The statement whose copy into the byte has not landed; 0 = none.
  int32_t in_flight(int64_t byte) const { return in_flight_[place(byte)]; }
  /// Whether this block has written the byte.
  bool initialised(int64_t byte) const;
  int64_t bytes() const { return static_cast<int64_t>(cells_.size()) << shift_; }
  /// One more granule, which nobody has touched: its first byte.
  int64_t append();
  void clear();

 private:
  static constexpr int kWarp = 32;
  struct Mark {
    uint32_t time = 0;  // of the thread's warp at the access, 0 = none
    uint32_t lanes_time = 0;
    int16_t thread = 0;
    int16_t other = -1;  // another thread of this warp that did the same since its last barrier
    int32_t statement = 0;
  };
  struct Cell {
    Mark write;
    std::array<Mark, 2> reads;  // of different warps
  };
  size_t place(int64_t byte) const { return static_cast<size_t>(byte >> shift_); }
  static bool same_block(const Mark& mark, int thread) {
    return mark.thread / kThreadsPerBlock == thread / kThreadsPerBlock;
  }
  /// Whether `mark` is by another thread and not ordered before an access of `thread`, or of as many
  /// lanes from it on, now.
  bool races(const Mark& mark, int thread, int lanes = 1) const;
  Mark mark(int thread, int statement, int lanes = 1) const;
  /// The conflict of an access by `thread` with what `mark` records.
  static Conflict conflict(const Mark& mark, int thread, const char* how);
  using WarpMarks = std::array<Mark, 2>;                            // of different warps
  using MoreMarks = std::unordered_map<size_t, std::vector<Mark>>;  // by place: of further warps
  /// Adds an access that does not race with others of its kind.
  void note(WarpMarks& marks, MoreMarks& more, size_t place, int thread, int statement);
  std::optional<Conflict> find(const WarpMarks& marks, const MoreMarks& more, size_t place,
                               int thread, const char* how, int lanes = 1) const;

  int shift_;  // log2 of the granule
  std::vector<Cell> cells_;
  std::vector<WarpMarks> atomics_;  // empty until there is one
  MoreMarks more_reads_, more_atomics_;
  std::vector<int32_t> in_flight_;
  const WarpClocks& clocks_;
  bool parts_meet_;
  uint32_t start_ = 1;  // of this block
};

/// The same for the global elements that one block reads, writes or changes atomically; GridShadow
/// knows what other blocks do.
class GlobalShadow {
 public:
  GlobalShadow(const WarpClocks& clocks, bool parts_meet) : shadow_(0, clocks, parts_meet) {}

  void start_block();
  std::optional<Conflict> read(const std::byte* element, int thread, int statement) {
    return shadow_.read(place(element), thread, statement);
  }
  std::optional<Conflict> write(const std::byte* element, int thread, int statement) {
    return shadow_.write(place(element), thread, statement);
  }
  std::optional<Conflict> atomic(const std::byte* element, int thread, int statement) {
    return shadow_.atomic(place(element), thread, statement);
  }

 private:
  int64_t place(const std::byte* element);

  SharedShadow shadow_;  // a byte stands for an element
  std::unordered_map<const std::byte*, int64_t> places_;
};

}  // namespace tessera::codegen::cpu
