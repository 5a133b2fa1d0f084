// 04_dlpack: an op behind a C interface that takes DLPack tensors, the way a Python extension
// (torch's stable ABI, tvm-ffi, ctypes) or another framework calls it. Four steps: validate,
// device, stream, launch. No framework is linked: a DLTensor* of dlpack.h may be cast to DlTensor*.
#include <tessera/kernels/ops.h>
#include <tessera/runtime/dlpack.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

namespace ts = tessera;
using ts::runtime::Access;
using ts::runtime::DlTensor;

/// Casts x to e4m3 with one scale per 128 columns on `stream`, the framework's current one for x's
/// device (torch: torch.cuda.current_stream(x.device).cuda_stream; DLPack: current_work_stream of
/// the exchange interface, which costs less than converting through Python). Returns 0, or 1 and
/// the reason in `message`.
extern "C" int example_cast(const DlTensor* x, const DlTensor* out, const DlTensor* out_sf,
                            void* stream, char* message, size_t message_size) {
  try {
    // 1. validate what DLPack says of each tensor; the op checks how they belong together
    const ts::TensorView views[] = {view_of(*x, "x"), view_of(*out, "out", Access::write),
                                    view_of(*out_sf, "out_sf", Access::write)};
    // 2. device: the tensors name it; the library makes its context current and restores the caller's
    // 3. stream: the caller's; nothing is waited for
    // 4. launch
    ts::kernels::per_token_cast({.x = views[0],
                                 .out = views[1],
                                 .out_sf = views[2],
                                 .format = ts::DType::e4m3,
                                 .num_per_channels = 128},
                                stream);
    return 0;
  } catch (const std::exception& error) {  // no exception crosses a C interface
    const size_t size = std::min(message_size - 1, std::strlen(error.what()));
    std::memcpy(message, error.what(), size);
    message[size] = '\0';
    return 1;
  }
}

int main() {
  int64_t wide[] = {4, 256};
  int64_t narrow[] = {4, 2};
  std::vector<float> x(4 * 256, 448.0f), scales(4 * 2);
  std::vector<unsigned char> codes(4 * 256);
  // data, device (1 = CPU) and its number, rank, type code, bits, lanes, extents, strides
  // (row-major), offset
  const DlTensor x_tensor{x.data(), 1, 0, 2, 2, 32, 1, wide, nullptr, 0};
  const DlTensor codes_tensor{codes.data(), 1, 0, 2, 10, 8, 1, wide, nullptr, 0};
  DlTensor scales_tensor{scales.data(), 1, 0, 2, 2, 32, 1, narrow, nullptr, 0};
  char message[1000];
  if (example_cast(&x_tensor, &codes_tensor, &scales_tensor, nullptr, message, sizeof(message)) !=
      0) {
    std::printf("%s\n", message);
    return 1;
  }
  std::printf("every code is 0x%02x, every scale %g\n", codes[0], static_cast<double>(scales[0]));
  const bool right =
      std::all_of(codes.begin(), codes.end(), [](unsigned char c) { return c == 0x7E; }) &&
      std::all_of(scales.begin(), scales.end(), [](float s) { return s == 1.0f; });
  narrow[1] = 3;  // one scale too many
  const bool refused = example_cast(&x_tensor, &codes_tensor, &scales_tensor, nullptr, message,
                                    sizeof(message)) == 1;
  std::printf("%s\n", message);
  return right && refused ? 0 : 1;
}
