#pragma once
// The word that a mistyped name was probably meant to be.

#include <span>
#include <string>
#include <string_view>

namespace tessera::kernels {

/// Edits (insert, delete, replace or swap of two neighbours) between two words.
int edit_distance(std::string_view a, std::string_view b);

/// The candidate with the fewest edits, the first of equals; empty if all are further away than a
/// third of the longer word (one edit is allowed if a letter of either is left). Example:
/// nearest_name("num_topks", names) == "num_topk".
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);
/// The hint of an error: "did you mean 'num_topk'?", or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace tessera::kernels
