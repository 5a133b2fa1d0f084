#pragma once
// Rotation of neighbouring channels (2j, 2j + 1) by the angles of a position: ROT, as apply_rotary with interleaved pairs has
// it, for kernels in which each thread has a run of channels.

#include <cstdint>
#include <optional>
#include <string>

#include "dsl/builder.h"
#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

inline constexpr int64_t kRotated = 64;  // channels

/// Reported for a position without a row of cos_sin; its angle is 0.
inline constexpr const char* kNoAngle = "argument 'cos_sin' has too few rows";

/// The table of angles of a call; plain bytes, for Specs.
struct AngleSpec {
  bool halves;    // cosines of all pairs, then sines; else they alternate
  uint8_t width;  // elements per access
};
/// For runs of `run` channels.
AngleSpec angle_spec(const Call& c, int64_t run);

/// Requires a row of cos_sin for each position of the call; -1 is padding.
void require_positions(const Call& c);

/// Tensor: cos_sin f32 [cos_sin_rows, 64].
class PairAngles {
 public:
  /// Threads have `run` channels each, a multiple of 4.
  PairAngles(dsl::Builder& k, const AngleSpec& s, int64_t run);

  /// Loads the angles of a run that begins at channel `first` of the rotated ones; angle 0 where it does not rotate. Angle 0 and a
  /// report, the text `reported`, for a position without a row.
  void load(const dsl::Value& position, const dsl::Value& first, const dsl::Value& rotates,
            const std::string& reported);
  /// Rotates the run, f32, in place.
  void rotate(const dsl::Ref& values) const;

 private:
  dsl::Builder& k_;
  const AngleSpec s_;
  const int64_t run_;
  std::optional<dsl::Ref> table_, angles_;  // of a run: in the order of the table
  std::optional<dsl::Value> positions_;
};

/// HAD of the 128 channels of a warp, `values` f32 [4] of each lane, in place.
void hadamard_of_warp(dsl::Builder& k, const dsl::Ref& values);

}  // namespace tessera::kernels::serving
