#pragma once
// Finds the word that a mistyped name probably means.

#include <span>
#include <string>
#include <string_view>

namespace tessera {

/// The number of edits (insert, delete, replace, swap of two neighbours) between two words.
int edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate with the fewest edits; of equals one that contains the word or is contained in
/// it, else the first. It may differ by one edit or by a third of the longer word, but by fewer edits
/// than the shorter word has letters. Else returns the only candidate that the word abbreviates, as "fmt"
/// does "format", or "".
/// Example: nearest_name("num_topks", names) == "num_topk".
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);
/// The hint of an error: "did you mean 'num_topk'?", or "".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace tessera
