// Writes a bf16 tensor x [rows, cols] of activation-like numbers to a safetensors file, something
// to try the ops on.
//
//   make_tensor [FILE = x.safetensors] [ROWS = 128] [COLS = 512]

#include <fmt/format.h>
#include <tessera/dsl/base/dtype.h>
#include <tessera/tools/lib/safetensors.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <random>

namespace {

// The upper half of a float, rounded to nearest even; the values here are never NaN.
uint16_t to_bf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string path = argc > 1 ? argv[1] : "x.safetensors";
  const int64_t rows = argc > 2 ? std::atoll(argv[2]) : 128;
  const int64_t cols = argc > 3 ? std::atoll(argv[3]) : 512;
  if (rows < 0 || cols < 0 || argc > 4) {
    fmt::print(stderr, "usage: make_tensor [FILE] [ROWS] [COLS]\n");
    return 2;
  }

  tessera::tools::StoredTensor x;
  x.name = "x";
  x.dtype = tessera::DType::bf16;
  x.shape = {rows, cols};
  x.data = tessera::tools::HostBuffer(rows * cols * 2);
  auto* elements = reinterpret_cast<uint16_t*>(x.data.data());
  std::minstd_rand random(1);
  for (int64_t i = 0; i < rows * cols; ++i) {
    // Three draws of [-1, 1) make a bell; a few columns are outliers, as in real activations.
    float value = 0;
    for (int draw = 0; draw < 3; ++draw) value += static_cast<float>(random() % 20000) / 1e4F - 1;
    elements[i] = to_bf16(i % cols % 97 == 0 ? 30 * value : value);
  }

  tessera::tools::Safetensors file;
  file.tensors.push_back(std::move(x));
  tessera::tools::write_safetensors(path, file);
  fmt::print("wrote {}: x bf16 [{}, {}]\n", path, rows, cols);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
