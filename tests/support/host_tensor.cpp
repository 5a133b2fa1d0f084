#include "tests/support/host_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/reference/numeric.h"

namespace tessera::test {
namespace {

int64_t offset_of(const Dims& shape, const Dims& strides, int64_t element) {
  int64_t offset = 0;
  for (int d = shape.rank - 1; d >= 0; --d) {
    offset += element % shape[d] * strides[d];
    element /= shape[d];
  }
  return offset;
}

uint64_t load(const std::byte* from, int num_bytes) {
  uint64_t bits = 0;  // x86-64 is little-endian
  std::memcpy(&bits, from, static_cast<size_t>(num_bytes));
  return bits;
}

int64_t sign_extend(uint64_t bits, int num_bytes) {
  const int unused = 64 - 8 * num_bytes;
  return static_cast<int64_t>(bits << unused) >> unused;
}

}  // namespace

HostTensor::HostTensor(DType dtype, Dims shape)
    : HostTensor(dtype, shape, row_major_strides(shape)) {}

HostTensor::HostTensor(DType dtype, Dims shape, Dims strides, int64_t storage_elements)
    : dtype_(dtype), shape_(shape), strides_(strides) {
  const int64_t reach = TensorView(nullptr, dtype, shape, strides, {}).span_bytes();
  const int64_t storage = std::max(reach, storage_elements * bytes(dtype));
  raw_.assign(static_cast<size_t>(storage + 2 * kGuardBytes), kUnset);
}

TensorView HostTensor::view() const {
  auto* data = const_cast<std::byte*>(raw_.data()) + kGuardBytes;
  return {data, dtype_, shape_, strides_, Device::cpu()};
}

int64_t HostTensor::element_offset(int64_t element) const {
  return kGuardBytes + offset_of(shape_, strides_, element) * bytes(dtype_);
}

uint64_t HostTensor::bits(int64_t element) const {
  return load(raw_.data() + element_offset(element), bytes(dtype_));
}

void HostTensor::set_bits(int64_t element, uint64_t bits) {
  std::memcpy(raw_.data() + element_offset(element), &bits, static_cast<size_t>(bytes(dtype_)));
}

double HostTensor::value(int64_t element) const {
  return value_of(dtype_, bits(element));
}

void HostTensor::set_value(int64_t element, double value) {
  if (dtype_ == DType::f64) return set_bits(element, std::bit_cast<uint64_t>(value));
  set_bits(element, is_float(dtype_) ? reference::encode(dtype_, value)
                                     : static_cast<uint64_t>(static_cast<int64_t>(value)));
}

void HostTensor::fill_bytes(std::byte byte) {
  std::fill(raw_.begin() + kGuardBytes, raw_.end() - kGuardBytes, byte);
}

std::string HostTensor::damage() const {
  const auto changed = [](std::byte byte) { return byte != kUnset; };
  const auto before = std::find_if(raw_.begin(), raw_.begin() + kGuardBytes, changed);
  if (before != raw_.begin() + kGuardBytes) {
    return fmt::format("byte {} before the tensor was written",
                       kGuardBytes - (before - raw_.begin()));
  }
  const auto after = std::find_if(raw_.end() - kGuardBytes, raw_.end(), changed);
  if (after == raw_.end()) return {};
  return fmt::format("byte {} after the tensor was written", after - (raw_.end() - kGuardBytes));
}

std::string HostTensor::padding_other_than(std::byte byte) const {
  const int width = bytes(dtype_);
  if (size() * width == storage_bytes()) return {};
  std::vector<bool> is_element(raw_.size());
  for (int64_t i = 0; i < size(); ++i) {
    const auto begin = is_element.begin() + element_offset(i);
    std::fill(begin, begin + width, true);
  }
  for (int64_t i = kGuardBytes; i < kGuardBytes + storage_bytes(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (!is_element[at] && raw_[at] != byte) {
      return fmt::format("padding byte {} of the storage is {:#04x}, not {:#04x}", i - kGuardBytes,
                         std::to_integer<int>(raw_[at]), std::to_integer<int>(byte));
    }
  }
  return {};
}

uint64_t HostTensor::checksum() const {
  uint64_t sum = 0xCBF29CE484222325;  // FNV-1a over 8-byte words, then over the rest
  const auto mix = [&](uint64_t word) { sum = (sum ^ word) * 0x100000001B3; };
  size_t at = 0;
  for (; at + 8 <= raw_.size(); at += 8) mix(load(raw_.data() + at, 8));
  for (; at < raw_.size(); ++at) mix(load(raw_.data() + at, 1));
  return sum;
}

uint64_t element_bits(const TensorView& view, int64_t element) {
  const auto* data = static_cast<const std::byte*>(view.data);
  const int64_t offset = offset_of(view.shape, view.strides, element);
  return load(data + offset * bytes(view.dtype), bytes(view.dtype));
}

double value_of(DType dtype, uint64_t bits) {
  if (dtype == DType::f64) return std::bit_cast<double>(bits);
  if (is_float(dtype)) return reference::decode(dtype, static_cast<uint32_t>(bits));
  if (is_signed(dtype)) return static_cast<double>(sign_extend(bits, bytes(dtype)));
  return static_cast<double>(bits);
}

}  // namespace tessera::test
