#pragma once
// Order among threads, as statements of both IRs make or need it.

#include <cstdint>

namespace tessera::codegen {

/// Threads that act together. A role is whole warps of a block with a body of their own.
enum class Group : uint8_t { thread, warp, role, block, cluster, grid };

/// An order that a statement makes or needs, apart from its own accesses.
struct Order {
  enum class Kind : uint8_t {
    converge,       // all threads of the group take part; memory is not ordered
    exchange,       // the same, and threads exchange values
    barrier,        // all threads of the group meet: accesses before it come before those after it
    arrive,         // first half of a barrier; of one thread: an arrival at an mbarrier
    wait,           // second half
    fence,          // orders the accesses of this thread alone (acquire and release)
    proxy_fence,    // orders the generic accesses of this thread before those of the async proxy
    commit,         // closes the group of accesses in flight
    await,          // until at most `pending` groups are in flight
    commit_stores,  // the same of tensor stores
    await_stores,
    previous_kernel,  // the previous kernel's writes are visible from here on
    next_kernel,      // the next kernel of the stream may start
    leave,            // threads leave the kernel
  };
  Kind kind;
  Group group = Group::thread;
  int pending = 0;  // await, await_stores

  bool operator==(const Order&) const = default;
};

}  // namespace tessera::codegen
