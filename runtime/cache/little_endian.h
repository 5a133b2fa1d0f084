#pragma once
// Reads and writes integers in files: little-endian on every host.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::runtime {

template <class Integer>
void append_integer(std::string& bytes, Integer value) {
  for (size_t i = 0; i < sizeof(Integer); ++i) {
    bytes += static_cast<char>((value >> (8 * i)) & 0xFF);
  }
}

/// `bytes` holds at least sizeof(Integer) bytes from `offset` on.
template <class Integer>
Integer read_integer(std::string_view bytes, size_t offset) {
  Integer value = 0;
  for (size_t i = 0; i < sizeof(Integer); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[offset + i]);
    value = static_cast<Integer>(value | (static_cast<Integer>(byte) << (8 * i)));
  }
  return value;
}

}  // namespace tessera::runtime
