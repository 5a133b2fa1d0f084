#pragma once
// Parts of signatures that the ops of dense attention share.

#include <algorithm>
#include <array>
#include <string_view>

namespace tessera::kernels::attention {

/// Scale, masks and cap.
inline constexpr std::string_view kMaskParams = R"(
      param  scale float = none
      param  causal bool = false
      param  window_left, window_right int >= -1 = -1
      param  softcap float >= 0 = 0
    )";
/// Parameters of the forward ops alone.
inline constexpr std::string_view kForwardParams = R"(
      param  split_len int >= 0 = 0
    )";
inline constexpr std::string_view kMaskNeeds = R"(
      need   h % g = 0 on q "the heads of 'q' are no multiple of those of 'k'"
      need   window_right <= 0 if causal on window_right "parameter 'window_right' goes without causal"
    )";

template <const std::string_view&... kParts>
inline constexpr auto kJoinedChars = [] {
  std::array<char, (kParts.size() + ...)> all{};
  auto to = all.begin();
  ((to = std::copy(kParts.begin(), kParts.end(), to)), ...);
  return all;
}();
/// The parts, one behind the other: joined by the compiler, so an Op stays a constant.
///
///   .signature = attention::kJoined<kTensors, attention::kMaskParams, attention::kMaskNeeds, kLimits>
template <const std::string_view&... kParts>
inline constexpr std::string_view kJoined{kJoinedChars<kParts...>.data(),
                                          kJoinedChars<kParts...>.size()};

}  // namespace tessera::kernels::attention
