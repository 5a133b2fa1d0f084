#include "kernels/serving/parts/select_call.h"

#include <algorithm>

#include "kernels/jit/target.h"

namespace tessera::kernels::serving {
namespace {

/// Number of blocks that fill a large device, one per SM.
constexpr int64_t kManyBlocks = 128;
constexpr int kLargestCluster = 16;
constexpr int64_t kShortRow = 16384;   // up to here a second block would cost more than it saves
constexpr int64_t kShareOfRow = 8192;  // scores that a small block loads at once

/// The largest room up to `wanted` whose block needs at most `limit` bytes of shared memory.
int32_t room_within(SelectSpec s, int64_t wanted, int64_t limit) {
  s.room = static_cast<int32_t>(s.least_room());
  const int64_t more = (limit - s.shared_bytes()) / 8;
  return static_cast<int32_t>(
      std::clamp(wanted, s.least_room(), s.least_room() + std::max<int64_t>(more, 0)));
}

/// The shape of blocks where `cluster` blocks share a row, each with up to `limit` bytes of shared
/// memory.
SelectSpec shaped(SelectSpec s, int cluster, int64_t columns, int64_t rows, int64_t limit) {
  s.cluster = cluster;
  const bool is_small = rows > kManyBlocks || columns <= cluster * kShareOfRow;
  s.threads = is_small ? 512 : 1024;
  s.blocks_per_sm = rows > kManyBlocks ? 2 : 1;
  s.keys = 16;
  s.has_one_chunk = columns <= cluster * s.chunk();
  // The first chunk of a block fills the room if its scores cannot be filtered. If they can, up to topk
  // scores of each later chunk may pass until a selection.
  // Where there is no later chunk, room for a whole one makes the kernel shorter.
  int64_t wanted =
      s.topk > s.chunk() / 8 ? s.topk + s.chunk() : std::max<int64_t>(4096, int64_t{16} * s.topk);
  if (s.has_one_chunk) wanted = std::max(wanted, s.chunk());
  s.room = room_within(s, wanted, limit / s.blocks_per_sm - 1024);
  return s;
}

}  // namespace

void add_select(const Call& c, Launches& go, const SelectSpec& spec, int64_t rows, int64_t columns,
                const Args& args, std::string_view kind) {
  go.in_clusters([&](int largest) {
    const int64_t limit = jit::shared_memory_limit(c.device());
    SelectSpec s = shaped(spec, 1, columns, rows, limit);
    for (int blocks = 2; blocks <= std::min(largest, kLargestCluster); blocks *= 2) {
      const bool is_short = columns <= std::max(kShortRow, s.cluster * kShareOfRow);
      const auto next = shaped(spec, blocks, columns, rows, limit);
      if (is_short || blocks * rows > kManyBlocks || next.shared_bytes() > limit) break;
      s = next;
    }
    go.add(build_select, s, args, kind);
  });
}

}  // namespace tessera::kernels::serving
