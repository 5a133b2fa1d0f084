#include "dsl/base/target.h"

#include <fmt/format.h>

#include <charconv>

namespace tessera {

std::string to_string(Target target) {
  std::string text = fmt::format("sm_{}", target.number());
  if (target.letter) text += target.letter;
  return text;
}

std::optional<Target> parse_target(std::string_view word) {
  constexpr std::string_view kPrefix = "sm_";
  if (word.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  word.remove_prefix(kPrefix.size());
  Target target;
  if (!word.empty() && (word.back() == 'a' || word.back() == 'f')) {
    target.letter = word.back();
    word.remove_suffix(1);
  }
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size() || word.front() == '0' ||
      number < 50 || number > 999) {
    return std::nullopt;
  }
  target.major = number / 10;
  target.minor = number % 10;
  return target;
}

}  // namespace tessera
