#include "dsl/base/printable.h"

#include <fmt/format.h>

#include <cstdint>

namespace tessera {
namespace {

/// A character and its size in bytes; 0 bytes if the text does not begin with valid UTF-8.
struct Character {
  uint32_t code = 0;
  size_t bytes = 0;
};

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  uint32_t code = lead & (0xFFU >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(text[i])) return {};
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast[bytes] || code > 0x10FFFF || is_surrogate) return {};
  return {code, bytes};
}

bool acts_on_terminals(uint32_t code) {
  const bool is_control = code < 0x20 || (code >= 0x7F && code < 0xA0);
  const bool is_separator = code == 0x2028 || code == 0x2029;
  const bool is_direction = code == 0x061C || code == 0x200E || code == 0x200F ||
                            (code >= 0x202A && code <= 0x202E) ||
                            (code >= 0x2066 && code <= 0x2069);
  return is_control || is_separator || is_direction || code == 0xFEFF;
}

std::string escaped(std::string_view text, bool one_line) {
  std::string result;
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    if (bytes == 0 || (bytes == 1 && code != '\n' && code != '\t' && acts_on_terminals(code))) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    } else if (bytes > 1 && acts_on_terminals(code)) {
      result += fmt::format("\\u{:04x}", code);
    } else if (code == '\n' && one_line) {
      result += "\\n";
    } else {
      result += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return result;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = first_character(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  return escaped(text, false);
}

std::string printable_line(std::string_view text, size_t most) {
  if (text.size() <= most) return escaped(text, true);
  size_t head = most / 2, tail = text.size() - most / 2;
  while (head > 0 && is_continuation(text[head])) --head;
  while (tail < text.size() && is_continuation(text[tail])) ++tail;
  return fmt::format("{} ... {} bytes left out ... {}", escaped(text.substr(0, head), true),
                     tail - head, escaped(text.substr(tail), true));
}

}  // namespace tessera
