#include "dsl/base/target.h"

#include <fmt/format.h>

#include <charconv>

namespace tessera {

Target::Target() : Target(9, 0, 'a') {}

std::string to_string(Target target) {
  std::string text = fmt::format("sm_{}", target.number());
  if (target.letter) text += target.letter;
  return text;
}

std::optional<Target> parse_target(std::string_view word) {
  constexpr std::string_view kPrefix = "sm_";
  if (word.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  word.remove_prefix(kPrefix.size());
  char letter = 0;
  if (!word.empty() && (word.back() == 'a' || word.back() == 'f')) {
    letter = word.back();
    word.remove_suffix(1);
  }
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size() || word.front() == '0' ||
      number < 50 || number > 999) {
    return std::nullopt;
  }
  return Target(number / 10, number % 10, letter);
}

bool exists(Target target) {
  const int oldest = target.letter == 'f' ? 100 : target.letter == 'a' ? 90 : 80;
  return target.number() >= oldest;
}

std::vector<Target> targets_that_run_on(int major, int minor) {
  std::vector<Target> targets;
  if (major >= 9) targets.emplace_back(major, minor, 'a');
  for (int lower = minor; major >= 10 && lower >= 0; --lower)
    targets.emplace_back(major, lower, 'f');
  for (int lower = minor; lower >= 0; --lower) targets.emplace_back(major, lower, '\0');
  return targets;
}

bool runs_on(Target target, int major, int minor) {
  if (target.letter == 'a') return target.major == major && target.minor == minor;
  return target.major == major && target.minor <= minor;
}

}  // namespace tessera
