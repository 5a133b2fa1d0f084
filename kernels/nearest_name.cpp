#include "kernels/nearest_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tessera::kernels {

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
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string near = nearest_name(word, candidates);
  return near.empty() ? "" : fmt::format("did you mean '{}'?", near);
}

}  // namespace tessera::kernels
