#pragma once
// Order among threads, as statements of both IRs make or need it.

#include <cstdint>
#include <string_view>

namespace tessera::codegen {

/// Threads that act together. A role is whole warps of a block with a body of their own.
enum class Group : uint8_t { thread, warp, role, block, cluster, grid };

/// Work that goes on after its statement, in groups: each kind has its own, which complete in the order of their
/// commits.
enum class Work : uint8_t {
  copies,    // from global to shared memory, each thread's
  stores,    // of tensors from shared memory, of the thread that starts them
  products,  // of the tensor cores, of four warps; their order is that of their registers
};

std::string_view name(Work work);

/// An order that a statement makes or needs, apart from its own accesses.
struct Order {
  enum class Kind : uint8_t {
    converge,     // all threads of the group take part; memory is not ordered
    exchange,     // the same, and threads exchange values
    barrier,      // all threads of the group meet: accesses before it come before those after it
    arrive,       // first half of a barrier; of one thread: an arrival at an mbarrier
    wait,         // second half
    fence,        // orders the accesses of this thread alone (acquire and release)
    proxy_fence,  // orders the generic accesses of this thread before those of the async proxy
    commit,       // closes the group of `work` in flight
    await,        // until at most `pending` groups of `work` are in flight
    previous_kernel,  // the previous kernel's writes are visible from here on
    next_kernel,      // the next kernel of the stream may start
    leave,            // threads leave the kernel
  };
  Kind kind;
  Group group = Group::thread;
  int pending = 0;           // await
  Work work = Work::copies;  // commit, await

  bool operator==(const Order&) const = default;
};

}  // namespace tessera::codegen
