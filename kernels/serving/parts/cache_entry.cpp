#include "kernels/serving/parts/cache_entry.h"

#include <string>

#include "kernels/views/alignment.h"

namespace tessera::kernels::serving {

using namespace dsl;

int64_t normed_channels(int64_t channels) {
  return channels == 576 ? 512 : channels;
}

void require_entry(const Call& c, int64_t channels) {
  require_cache(c, channels);
  c.need(!c.flag("hadamard") || channels == kWarpChannels, "hadamard",
         "parameter 'hadamard' does not go with the channels", "128 channels",
         std::to_string(channels));
}

EntrySpec entry_spec(const Call& c) {
  EntrySpec s{};
  s.kind = cache_kind(c);
  s.angles = angle_spec(c, kLaneChannels);
  s.weight = c.dtype("norm_weight");
  s.weight_width = static_cast<uint8_t>(common_vector(c.given("norm_weight"), kLaneChannels));
  s.hadamard = c.flag("hadamard");
  s.rounds = !c.find("round_before") || c.flag("round_before");
  return s;
}

CacheEntry::CacheEntry(Builder& k, const EntrySpec& s, int64_t channels)
    : k_(k), s_(s), channels_(channels), normed_(normed_channels(channels)) {
  weight_ = k.input("norm_weight", s.weight, {channels},
                    {.align = int64_t{bytes(s.weight)} * s.weight_width});
  angles_.emplace(k, s.angles, kLaneChannels);
  rows_.emplace(k, s.kind, channels, true);
  eps_ = k.scalar("norm_eps", DType::f32);
}

Value CacheEntry::sum_of_squares(const Ref& values, const Value& pass) const {
  // Lanes add in pairs at distance 1, 2, 4, 8, 16, warps in the order of their channels.
  auto sum = k_.var(DType::f32, 0.0f, "squares");
  k_.unrolled(kLaneChannels, [&](Value i) { sum = fma(values(i), values(i), sum); });
  for (const int distance : {1, 2, 4, 8, 16}) sum += k_.shuffle_xor(sum, distance);
  auto total = k_.var(DType::f32, sum, "total");
  const EntryWarps warps(channels_);
  if (warps.per_entry > 1) {
    auto sums = k_.shared(DType::f32, {warps.warps()}, "sums");
    k_.if_(k_.lane() == 0, [&] { sums(k_.warp()) = total; });
    auto first = k_.let("first_warp", k_.warp() - pass);
    total = sums(first);
    k_.unrolled(normed_ / kWarpChannels - 1, [&](Value i) { total += sums(first + (i + 1)); });
  }
  return k_.let("sum_of_squares", total);
}

void CacheEntry::prefetch(const Place& place, const std::string& reported) {
  held_weight_ = k_.local(s_.weight, {kLaneChannels}, "weight");
  const auto load_weight = [&] {
    k_.unrolled(kLaneChannels / s_.weight_width, [&](Value piece) {
      k_.vectorized(s_.weight_width, [&](Value i) {
        auto at = piece * s_.weight_width + i;
        (*held_weight_)(at) = (*weight_)(place.column + at).unchecked();
      });
    });
  };
  if (normed_ == channels_) {
    load_weight();
  } else {
    k_.unrolled(kLaneChannels, [&](Value i) { (*held_weight_)(i) = cast(s_.weight, 0.0f); });
    k_.if_(place.column < normed_, load_weight);
  }
  auto first = k_.let("first_rotated", place.column - (channels_ - kRotated));
  auto rotates = k_.let("rotates", first >= 0 && place.column < channels_);
  angles_->load(place.position, first, rotates, reported);
}

void CacheEntry::normalize(const Ref& values, const Value& total, const Place& place) const {
  auto inverse = k_.let("inverse", 1.0f / sqrt(total / static_cast<float>(normed_) + *eps_));
  const auto weigh = [&] {
    k_.unrolled(kLaneChannels, [&](Value i) {
      Value value = values(i);
      values(i) = value * inverse * f32((*held_weight_)(i));
    });
  };
  if (normed_ == channels_) {
    weigh();
  } else {
    k_.if_(place.column < normed_, weigh);
  }
  k_.if_(place.column >= channels_ - kRotated, [&] { angles_->rotate(values); });
  if (s_.hadamard) hadamard_of_warp(k_, values);
}

void CacheEntry::store(const Ref& values, const Place& place, const char* tensor) const {
  rows_->store(values, place.column, rows_->slot(place.location, tensor), s_.rounds);
}

}  // namespace tessera::kernels::serving
