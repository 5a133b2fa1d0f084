#pragma once
// A kernel on a device, and its launch.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsl/base/api.h"
#include "runtime/driver/device.h"
#include "runtime/driver/grid_barriers.h"
#include "runtime/driver/memory.h"
#include "runtime/image.h"

namespace tessera::runtime {

/// Immutable once loaded; never unloaded, graphs may hold it.
struct TESSERA_API LoadedKernel {
  /// What every launch reads, in two lines of the cache: between two launches the driver has used
  /// the rest of it for its own work, and what is read anew costs more than what is computed.
  struct alignas(64) Hot {
    cu::LaunchConfig config = {};  // all but the grid, the stream and the attributes
    cu::Kernel handle = nullptr;
    decltype(cu::Functions::launch_kernel_ex) launch_kernel_ex = nullptr;
    decltype(cu::Functions::ctx_get_current) ctx_get_current = nullptr;
    decltype(cu::Functions::stream_get_ctx) stream_get_ctx = nullptr;
    cu::Context primary = nullptr;  // of the device
    int64_t cluster = 1;            // blocks, along x
    bool cooperative = false;
  } hot;
  std::vector<cu::LaunchAttribute> attributes;
  std::shared_ptr<const Image> image;
  cu::Library code = nullptr;
  std::string spec;  // as messages show it
  const Driver* driver = nullptr;
  int device = 0;
  int registers = 0;                       // per thread, as loaded
  int64_t local_bytes = 0;                 // per thread: stack and spills
  int64_t l2_bytes = 0, window_bytes = 0;  // of the device
  // Of a cooperative kernel: how many blocks the device runs at once, and where they meet.
  int64_t max_blocks = 0;
  std::shared_ptr<GridBarriers> barriers;

  /// Launches may begin before the previous kernel of their stream has ended; the kernel waits.
  void begin_early();
};

/// Loads an image and sets its attributes on one device. Nothing, and the driver's words in
/// `refusal`, if the driver refuses the image itself. Throws unsupported errors (target, shared
/// memory or cluster does not fit the device) and driver errors.
TESSERA_API std::optional<LoadedKernel> load_image(const Driver& driver,
                                                   std::shared_ptr<const Image> image,
                                                   const DeviceInfo& device, std::string& refusal);

/// Throws an unsupported error if a block cannot have that much shared memory.
TESSERA_API void check_shared_memory(const std::string& op, int64_t bytes,
                                     const DeviceInfo& device);

/// Blocks along x, y, z.
struct Grid {
  int64_t x = 1, y = 1, z = 1;
};

/// An argument that points to memory which the launch reads once.
struct Streamed {
  int argument = -1;  // none
  int64_t bytes = 0;
};

/// Puts one launch into the stream and returns. `arguments` points to one value per kernel
/// parameter, in order. A grid with a zero is a no-op. Memory that is `streamed` leaves L2 before what
/// others have there, if it is more than L2 holds (else it may stay for the next reader) and no more
/// than one window of the device (of a part the rest would not profit).
///
/// Errors: argument, if the grid is negative, beyond the device's limits (x 2^31-1, y and z 65535) or
///         along x no multiple of the cluster, if the stream belongs to another device, or if the
///         blocks of a cooperative kernel do not run at once;
///         driver, if the launch fails or an earlier kernel has already broken the context.
/// Example: void* arguments[] = {&x_pointer, &y_pointer, &count};
///          launch(kernel, {.x = blocks}, arguments, stream);
TESSERA_API void launch(const LoadedKernel& kernel, Grid grid, void** arguments,
                        StreamHandle stream, Streamed streamed = {});

/// The value of a 32-bit variable of the kernel's text (__device__, extern "C") on its device when the
/// work of `stream` is done; it is 0 afterwards. Throws driver errors.
TESSERA_API uint32_t take_variable(const LoadedKernel& kernel, const char* name,
                                   StreamHandle stream);

/// Throws an argument error naming the axis unless every extent is within the device's limits.
TESSERA_API void check_grid(const std::string& op, Grid grid);

}  // namespace tessera::runtime
