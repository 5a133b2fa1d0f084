#include "dsl/base/nearest_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tessera {

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the optimal string alignment table: a swap looks two rows back.
  std::vector<int> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replace = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({replace, previous[j] + 1, current[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before[j - 2] + 1);
      }
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

namespace {

/// True if the name has the letters of the word in their order and begins alike: "fmt" for "format".
bool is_short_for(std::string_view word, std::string_view name) {
  constexpr size_t kLeast = 3;
  if (word.size() < kLeast || name.empty() || word[0] != name[0]) return false;
  size_t found = 0;
  for (const char letter : name) found += found < word.size() && letter == word[found] ? 1 : 0;
  return found == word.size();
}

/// The only candidate that the word is short for, or "".
std::string only_long_form(std::string_view word, std::span<const std::string> candidates) {
  std::string result;
  for (const std::string& candidate : candidates) {
    if (!is_short_for(word, candidate)) continue;
    if (!result.empty()) return "";
    result = candidate;
  }
  return result;
}

}  // namespace

std::string nearest_name(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  int best_distance = -1;
  bool is_best_part = false;  // one of the two names contains the other
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    const auto [shorter, longer] = std::minmax({word.size(), candidate.size()});
    const int allowed =
        std::min(std::max(1, static_cast<int>(longer) / 3), static_cast<int>(shorter) - 1);
    const bool is_part =
        word.find(candidate) != std::string_view::npos || candidate.find(word) != std::string::npos;
    const bool is_nearer = best_distance < 0 || distance < best_distance ||
                           (distance == best_distance && is_part && !is_best_part);
    if (distance > allowed || !is_nearer) continue;
    best = candidate;
    best_distance = distance;
    is_best_part = is_part;
  }
  return best.empty() ? only_long_form(word, candidates) : best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string near = nearest_name(word, candidates);
  return near.empty() ? "" : fmt::format("did you mean '{}'?", near);
}

}  // namespace tessera
