#include "kernels/serving/parts/pair_angles.h"

#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

constexpr float kHadamard = 0x1.6a09e6p-4f;  // 1 / sqrt(128)

}  // namespace

AngleSpec angle_spec(const Call& c, int64_t run) {
  const bool halves = c.word("cos_sin_layout") == "halves";
  const int64_t most = std::min<int64_t>(halves ? run / 2 : run, 4);
  return {halves, static_cast<uint8_t>(common_vector(c.given("cos_sin"), most))};
}

void require_positions(const Call& c) {
  require_values(c.check(), "positions", c.given("positions"), -1, c["angles"] - 1);
}

PairAngles::PairAngles(Builder& k, const AngleSpec& s, int64_t run) : k_(k), s_(s), run_(run) {
  positions_ = k.dim("cos_sin_rows");
  table_ = k.input("cos_sin", DType::f32, {*positions_, kRotated}, {.align = 4 * s.width});
}

void PairAngles::load(const Value& position, const Value& first, const Value& rotates,
                      const std::string& reported) {
  // Cosines and sines of the pairs, in the order of the table.
  angles_.emplace(k_.local(DType::f32, {run_}, "angles"));
  k_.unrolled(run_, [&](Value i) {
    (*angles_)(i) = s_.halves ? select(i < run_ / 2, 1.0f, 0.0f) : select(i % 2 == 0, 1.0f, 0.0f);
  });
  auto known = k_.let("known_position", position >= 0 && position < *positions_);
  k_.report_unless(known, reported);
  k_.if_(rotates && known, [&] {
    const int64_t part = s_.halves ? run_ / 2 : run_, width = s_.width;
    auto row = (*table_)(i32(position));
    k_.unrolled(run_ / part, [&](Value nth) {
      auto column = s_.halves ? nth * (kRotated / 2) + first / 2 : first;
      k_.unrolled(part / width, [&](Value piece) {
        k_.vectorized(width, [&](Value i) {
          auto at = piece * width + i;
          (*angles_)(nth * part + at) = row(column + at).unchecked();
        });
      });
    });
  });
}

void PairAngles::rotate(const Ref& values) const {
  k_.unrolled(run_ / 2, [&](Value pair) {
    Value a = values(2 * pair), b = values(2 * pair + 1);
    Value cos = s_.halves ? (*angles_)(pair) : (*angles_)(2 * pair);
    Value sin = s_.halves ? (*angles_)(run_ / 2 + pair) : (*angles_)(2 * pair + 1);
    values(2 * pair) = fma(a, cos, -(b * sin));
    values(2 * pair + 1) = fma(a, sin, b * cos);
  });
}

void hadamard_of_warp(Builder& k, const Ref& values) {
  constexpr int64_t kChannels = 4;  // of a lane
  for (const int64_t distance : {1, 2}) {
    for (int64_t i = 0; i < kChannels; ++i) {
      if ((i & distance) != 0) continue;
      Value low = values(i), high = values(i + distance);
      values(i) = low + high;
      values(i + distance) = low - high;
    }
  }
  for (const int lanes : {1, 2, 4, 8, 16}) {
    auto is_upper = k.let("is_upper", (k.lane() & lanes) != 0);
    k.unrolled(kChannels, [&](Value i) {
      Value mine = values(i);
      auto other = k.let("other", k.shuffle_xor(mine, lanes));
      values(i) = select(is_upper, other - mine, mine + other);
    });
  }
  k.unrolled(kChannels, [&](Value i) {
    Value value = values(i);
    values(i) = value * kHadamard;
  });
}

}  // namespace tessera::kernels::serving
