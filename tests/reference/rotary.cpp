#include "tests/reference/rotary.h"

#include <cmath>

#include "tests/reference/numeric.h"

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;

int64_t integer_at(const HostTensor& tensor, int64_t element) {
  const uint64_t bits = tensor.bits(element);
  return tensor.dtype() == DType::i64 ? static_cast<int64_t>(bits)
                                      : static_cast<int32_t>(static_cast<uint32_t>(bits));
}

void rotate(HostTensor& x, const HostTensors& in, const RotaryOptions& o) {
  const HostTensor& table = in.at("cos_sin");
  const int64_t angles = table.shape()[0], channels = table.shape()[1], half = channels / 2;
  const int rank = x.shape().rank;
  const int64_t heads = x.shape()[rank - 2], length = x.shape()[rank - 3];
  const auto positions = in.find("positions");
  for (int64_t row = 0; row < x.size() / channels; ++row) {
    const int64_t token = row / heads;
    const int64_t given =
        positions == in.end() ? token % length : integer_at(positions->second, token);
    // Unsigned, since any i64 may be given.
    const auto position = static_cast<int64_t>(static_cast<uint64_t>(given) +
                                               static_cast<uint64_t>(o.position_offset));
    const bool known = position >= 0 && position < angles;
    for (int64_t j = 0; j < half; ++j) {
      float cos = 1, sin = 0;
      if (known) {
        const int64_t first = position * channels;
        cos = static_cast<float>(table.value(first + (o.halves ? j : 2 * j)));
        sin = static_cast<float>(table.value(first + (o.halves ? half + j : 2 * j + 1)));
      }
      if (o.conjugate) sin = -sin;
      const int64_t low = row * channels + (o.interleaved ? 2 * j : j);
      const int64_t high = o.interleaved ? low + 1 : low + half;
      const auto a = static_cast<float>(x.value(low)), b = static_cast<float>(x.value(high));
      const float minus = -(b * sin), plus = b * cos;
      x.set_bits(low, encode(x.dtype(), static_cast<double>(std::fma(a, cos, minus))));
      x.set_bits(high, encode(x.dtype(), static_cast<double>(std::fma(a, sin, plus))));
    }
  }
}

}  // namespace

HostTensors apply_rotary(const HostTensors& tensors, const RotaryOptions& options) {
  HostTensors result;
  for (const char* name : {"query", "key"}) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) continue;
    HostTensor& x = result.emplace(name, found->second).first->second;
    if (x.size() > 0) rotate(x, tensors, options);
  }
  return result;
}

}  // namespace tessera::reference
