#include "kernels/jit/host_copy.h"

#include <cstring>

#include "kernels/jit/call_context.h"
#include "runtime/driver/memory.h"

namespace tessera::kernels::jit {

std::vector<std::byte> bytes_to_host(const TensorView& tensor, Stream stream) {
  if (call_context().mode.until != CallMode::Until::done) return {};
  std::vector<std::byte> raw(static_cast<size_t>(tensor.span_bytes()));
  if (raw.empty()) return raw;
  if (!tensor.device.is_cuda()) {
    std::memcpy(raw.data(), tensor.data, raw.size());
    return raw;
  }
  runtime::copy_async(tensor.device.ordinal, raw.data(), tensor.data, tensor.span_bytes(), stream);
  runtime::synchronize(tensor.device.ordinal, stream);
  return raw;
}

}  // namespace tessera::kernels::jit
