#include "tests/support/ops/mutations.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::test {
namespace {

int64_t last_extent(const HostTensor& tensor) {
  const int rank = tensor.shape().rank;
  return rank == 0 ? 1 : tensor.shape()[rank - 1];
}

// ---- places

// Each holds what stands before it: its neighbour, or, in a single column, the row above.
void last_column(HostTensors& outputs, const std::string& name, const CompareRule&) {
  HostTensor& out = outputs.at(name);
  for (int64_t i = out.size() - 1; i > 0; i -= last_extent(out)) out.set_bits(i, out.bits(i - 1));
}

// The end of the last row that does not end in zeros.
void dropped_group(HostTensors& outputs, const std::string& name, const CompareRule&) {
  HostTensor& out = outputs.at(name);
  const int64_t columns = last_extent(out), group = std::min<int64_t>(32, (columns + 3) / 4);
  bool dropped = false;
  for (int64_t end = out.size(); end > 0 && !dropped; end -= columns) {
    for (int64_t i = end - group; i < end; ++i) {
      dropped = dropped || out.bits(i) != 0;
      out.set_bits(i, 0);
    }
  }
}

void swapped_rows(HostTensors& outputs, const std::string& name, const CompareRule&) {
  HostTensor& out = outputs.at(name);
  const int64_t columns = out.shape().rank < 2 ? 1 : last_extent(out);
  const auto differs = [&](int64_t row) {
    for (int64_t c = 0; c < columns; ++c) {
      if (out.bits(row * columns + c) != out.bits(c)) return true;
    }
    return false;
  };
  int64_t row = out.size() == 0 ? 0 : out.size() / columns - 1;
  while (row > 0 && !differs(row)) --row;
  for (int64_t c = 0; c < columns && row > 0; ++c) {
    const uint64_t first = out.bits(c);
    out.set_bits(c, out.bits(row * columns + c));
    out.set_bits(row * columns + c, first);
  }
}

// With the first output after it that could be taken for it.
void exchanged(HostTensors& outputs, const std::string& name, const CompareRule&) {
  HostTensor& out = outputs.at(name);
  for (auto other = outputs.upper_bound(name); other != outputs.end(); ++other) {
    const TensorView a = out.view(), b = other->second.view();
    if (a.dtype != b.dtype || !(a.shape == b.shape) || !(a.strides == b.strides)) continue;
    return std::swap(out, other->second);
  }
}

// The element furthest from zero: beside a large tolerance the others might be as good.
void stale_element(HostTensors& outputs, const std::string& name, const CompareRule&) {
  HostTensor& out = outputs.at(name);
  int64_t furthest = 0;
  for (int64_t i = 1; i < out.size(); ++i) {
    if (std::fabs(out.value(i)) > std::fabs(out.value(furthest))) furthest = i;
  }
  if (out.size() > 0) out.set_bits(furthest, 0xABABABABABABABAB);
}

// ---- the smallest change that the rule refuses

// `steps` codes further, or back where the bits of `mask` hold no more.
uint64_t stepped(uint64_t bits, uint64_t mask, uint64_t steps) {
  const uint64_t code = bits & mask;
  return (bits & ~mask) | (mask - code >= steps ? code + steps : code - steps);
}

// The relative and absolute change, or one ulp where the dtype is too coarse for them.
void nudge(HostTensor& out, int64_t element, double relative, double absolute) {
  const double value = out.value(element);
  const uint64_t bits = out.bits(element);
  if (!std::isfinite(value)) return;
  out.set_value(element, value * (1 + relative) + std::copysign(absolute, value));
  if (out.bits(element) == bits) out.set_bits(element, stepped(bits, ~uint64_t{0}, 1));
}

void smallest_change(HostTensors& outputs, const std::string& name, const CompareRule& rule) {
  HostTensor& out = outputs.at(name);
  const int64_t size = out.size(), middle = size / 2;
  if (size == 0) return;
  if (rule.tolerance) {
    const auto [rtol, atol, calc_diff] = *rule.tolerance;
    const int64_t changed = calc_diff > 0 ? size : last_extent(out);
    const double relative = calc_diff > 0 ? 4 * std::sqrt(calc_diff) : 4 * rtol;
    for (int64_t i = size - changed; i < size; ++i) nudge(out, i, relative, 4 * atol);
    return;
  }
  const uint64_t bits = out.bits(middle);
  if (!rule.quantised) {
    out.set_bits(middle, stepped(bits, out.dtype() == DType::boolean ? 1 : ~uint64_t{0}, 1));
  } else if (out.dtype() == DType::f32) {  // scales
    nudge(out, middle, 4e-6, 0);
  } else if (out.dtype() == DType::i64) {  // counts
    out.set_bits(middle, stepped(bits, ~uint64_t{0}, 1));
  } else {  // codes: one step is allowed
    const uint64_t mask = out.dtype() == DType::e4m3 ? 0x7F : out.dtype() == DType::i8 ? 7 : 0xFF;
    out.set_bits(middle, stepped(bits, mask, 2));
  }
}

// ---- the tensor as such

// As if every second element belonged to another tensor.
void other_strides(HostTensors& outputs, const std::string& name, const CompareRule&) {
  HostTensor& out = outputs.at(name);
  if (out.size() == 0) return;
  Dims strides = out.strides();
  for (int d = 0; d < strides.rank; ++d) strides[d] *= 2;
  HostTensor copy(out.dtype(), out.shape(), strides);
  for (int64_t i = 0; i < out.size(); ++i) copy.set_bits(i, out.bits(i));
  out = copy;
}

void wrong_dtype(HostTensors& outputs, const std::string& name, const CompareRule&) {
  HostTensor& out = outputs.at(name);
  const DType other = out.dtype() == DType::f32 ? DType::bf16 : DType::f32;
  out = HostTensor(other, out.shape());
}

void missing(HostTensors& outputs, const std::string& name, const CompareRule&) {
  outputs.erase(name);
}

}  // namespace

const std::vector<Mutation>& mutations() {
  static const std::vector<Mutation> list = {{"last column", last_column},
                                             {"dropped group", dropped_group},
                                             {"swapped rows", swapped_rows},
                                             {"exchanged", exchanged},
                                             {"stale element", stale_element},
                                             {"smallest change", smallest_change},
                                             {"other strides", other_strides},
                                             {"wrong dtype", wrong_dtype},
                                             {"missing", missing}};
  return list;
}

bool differ(const HostTensors& a, const HostTensors& b) {
  return !std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    const HostTensor &left = x.second, &right = y.second;
    return x.first == y.first && left.dtype() == right.dtype() && left.shape() == right.shape() &&
           left.strides() == right.strides() && left.raw() == right.raw();
  });
}

}  // namespace tessera::test
