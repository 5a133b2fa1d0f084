#pragma once
// Records who touched each byte of shared memory, to find races and reads of unwritten bytes. Threads are
// numbered through the cluster, kThreadsPerBlock per block.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "codegen/cpu/races/warp_clocks.h"
#include "codegen/thread_ir/array.h"

namespace tessera::codegen::cpu {

/// The access that conflicts with the one being recorded.
struct Conflict {
  int thread = 0;
  int statement = 0;
  const char* how = "";  // "read", "written" or "changed atomically"
};

/// Shadow of one block's shared memory. Two accesses of different threads to a byte race if at
/// least one writes and the clocks order neither before the other.
///
/// Atomics do not race with atomics, but with every other access.
///
/// Per byte it keeps the last write and one read of each of two warps. If only whole blocks
/// synchronise, that is enough: with reads of two warps recorded, a write of any thread is unordered
/// with one of them until a barrier of their block; reads of two blocks stay so until the next
/// cluster barrier. If parts of a block synchronise, it also keeps the reads of further warps.
class SharedShadow {
 public:
  /// Every access is aligned to `granule` bytes, a power of two, and a multiple of it. The bytes of a
  /// granule share one state; an access passes the first byte of each. `parts_meet`: barriers other than
  /// those of warps, blocks and the cluster exist.
  SharedShadow(int64_t bytes, const WarpClocks& clocks, bool parts_meet, int granule = 1);

  int granule() const { return 1 << shift_; }

  void start_block();

  /// Records an access to one byte by `thread`, made by `statement`; returns the conflict, if any.
  std::optional<Conflict> read(int64_t byte, int thread, int statement);
  /// `lanes`: any of that many lanes of the warp, from `thread` on, writes the byte. `is_same`: the byte has this
  /// value already. Then the write does not race with earlier ones, but a later write of another value races with
  /// each of them.
  std::optional<Conflict> write(int64_t byte, int thread, int statement, int lanes = 1,
                                bool is_same = false);
  std::optional<Conflict> atomic(int64_t byte, int thread, int statement);
  /// Records that a copy completed on mbarrier kFirstSignal + n has written the byte at `time`.
  void land(int64_t byte, int signal, uint32_t time, int statement) {
    Mark& write = writes_[place(byte)];
    write = Mark();
    write.time = time;
    write.thread = static_cast<int16_t>(signal * kWarp);
    write.statement = statement;
  }
  /// Marks a byte as the destination of an asynchronous copy by `statement`; 0 = complete.
  void set_in_flight(int64_t byte, int32_t statement) { in_flight_[place(byte)] = statement; }
  /// The statement of the copy in flight to the byte; 0 = none.
  int32_t in_flight(int64_t byte) const { return in_flight_[place(byte)]; }
  /// True if this block has written the byte, for `array` if arrays share it.
  bool initialised(int64_t byte, const Array& array) const;
  /// Notes for which array a byte is written. Before it is called, arrays share no bytes.
  void write_for(int64_t byte, const Array& array);
  int64_t bytes() const { return static_cast<int64_t>(writes_.size()) << shift_; }
  /// Appends untouched granules.
  void append(int64_t granules);
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
  size_t place(int64_t byte) const { return static_cast<size_t>(byte >> shift_); }
  static bool same_block(const Mark& mark, int thread) {
    return mark.thread / kThreadsPerBlock == thread / kThreadsPerBlock;
  }
  /// True if `mark` is by another thread and not ordered before an access now by `thread`, or by
  /// `lanes` lanes from it on.
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
  std::vector<Mark> writes_;
  std::vector<WarpMarks> reads_, atomics_;  // empty until there is one
  MoreMarks more_reads_, more_atomics_, more_writes_;
  std::vector<int32_t> in_flight_;         // of the bytes that are there from the beginning
  std::vector<const Array*> written_for_;  // empty: nobody asked
  const WarpClocks& clocks_;
  bool parts_meet_;
  uint32_t start_ = 1;  // of this block
};

}  // namespace tessera::codegen::cpu
