#include "kernels/serving/parts/cache_rows.h"

#include <algorithm>
#include <limits>
#include <string>

namespace tessera::kernels::serving {

using namespace dsl;

/// The scale of a lane's group. By e4m3 scales codes are quotients, else products with the inverse.
struct CacheRows::GroupScale {
  Value stored;   // in the dtype of the scales
  Value factor;   // divisor of the values, or its inverse
  Value is_sane;  // e4m3: the group is finite
};

EntryPart entry_part(Builder& k, const EntryWarps& warps, const Value& block) {
  const bool is_one = warps.entries == 1;
  auto entry =
      k.let("entry", block * warps.entries + (is_one ? i32(0) : k.warp() / warps.per_entry));
  auto pass = k.let("pass", k.warp() % warps.per_entry);
  return {entry, pass, k.let("column", pass * kWarpChannels + k.lane() * kLaneChannels)};
}

void load_lane(Builder& k, const Ref& row, int64_t channels, int64_t width, const Value& column,
               const Ref& values) {
  auto held = k.local(row.dtype(), {kLaneChannels}, "row_held");
  const auto load = [&] {
    k.unrolled(kLaneChannels / width, [&](Value piece) {
      k.vectorized(width, [&](Value i) {
        auto at = piece * width + i;
        held(at) = row(column + at).unchecked();
      });
    });
  };
  if (channels % kWarpChannels == 0) {
    load();
  } else {
    k.unrolled(kLaneChannels, [&](Value i) { held(i) = cast(row.dtype(), 0.0f); });
    k.if_(column < channels, load);
  }
  k.unrolled(kLaneChannels, [&](Value i) { values(i) = f32(held(i)); });
}

CacheRows::CacheRows(Builder& k, CacheKind kind, int64_t channels, bool is_output)
    : k_(k),
      bytes_(k, kind, {.is_output = is_output}),
      layout_(bytes_.layout()),
      channels_(channels) {}

void CacheRows::by_part(const Value& column, const std::function<void()>& coded,
                        const std::function<void()>& plain) const {
  const auto inside = [&](const std::function<void()>& body) {
    if (channels_ % kWarpChannels == 0) return body();
    k_.if_(column < channels_, body);
  };
  if (layout_.bf16_bytes() == 0) return inside(coded);
  k_.if_else(column < layout_.coded, coded, [&] { inside(plain); });
}

void CacheRows::store(const Ref& values, const Value& column, const Slot& slot, bool rounds) const {
  k_.if_(slot.exists, [&] {
    if (layout_.scale_bytes > 0) {
      if (!rounds) return store_codes(values, column, slot);
      auto rounded = k_.local(DType::f32, {kLaneChannels}, "rounded");
      k_.unrolled(kLaneChannels, [&](Value i) { rounded(i) = f32(cast(DType::bf16, values(i))); });
      return store_codes(rounded, column, slot);
    }
    by_part(
        column,
        [&] {
          k_.vectorized(kLaneChannels, [&](Value i) {
            bytes_.code(slot, column + i) = cast(DType::bf16, values(i));
          });
        },
        nullptr);
  });
}

CacheRows::GroupScale CacheRows::scale_of(const Ref& values) const {
  const auto exchange = [&](const Ref& largest) {
    for (int64_t lanes = 1; lanes < layout_.group / kLaneChannels; lanes *= 2) {
      const Value other = k_.shuffle_xor(largest, static_cast<int>(lanes));
      largest = max(largest, other);
    }
  };
  if (layout_.scale != DType::e4m3) {
    auto largest = k_.var(DType::f32, 0.0f, "largest");
    k_.unrolled(kLaneChannels, [&](Value i) { largest = max(largest, abs(values(i))); });
    exchange(largest);
    const ScaleFactor scale = scale_factor(k_, layout_.quant, largest, layout_.rounds);
    const bool is_byte = layout_.scale == DType::u8;
    return {is_byte ? scale.exponent : scale.scale, k_.let("inverse_scale", scale.inverse), {}};
  }
  // Bits of magnitudes ascend with them, and those of infinity and NaN are the largest.
  constexpr uint32_t kMagnitude = 0x7FFFFFFF, kInfinity = 0x7F800000;
  auto largest = k_.var(DType::u32, uint32_t{0}, "largest");
  k_.unrolled(kLaneChannels, [&](Value i) {
    largest = max(largest, reinterpret(DType::u32, values(i)) & kMagnitude);
  });
  exchange(largest);
  auto is_sane = k_.let("is_finite", largest < kInfinity);
  auto quotient =
      max(reinterpret(DType::f32, largest), layout_.quant.amax_floor) / layout_.quant.max;
  auto scale =
      k_.let("scale",
             cast(DType::e4m3, select(is_sane, quotient, std::numeric_limits<float>::quiet_NaN())));
  return {scale, k_.let("divisor", f32(scale)), is_sane};
}

Value CacheRows::code_of(const Value& value, const GroupScale& scale) const {
  if (layout_.scale != DType::e4m3) return cast(layout_.codes, value * scale.factor);
  return cast(layout_.codes, select(scale.is_sane, value / scale.factor, 0.0f));
}

void CacheRows::store_codes(const Ref& values, const Value& column, const Slot& slot) const {
  const GroupScale scale = scale_of(values);
  by_part(
      column,
      [&] {
        k_.vectorized(kLaneChannels,
                      [&](Value i) { bytes_.code(slot, column + i) = code_of(values(i), scale); });
      },
      [&] {
        k_.vectorized(kLaneChannels, [&](Value i) {
          bytes_.rotated(slot, column + i) = cast(DType::bf16, values(i));
        });
      });
  auto group = k_.let("group", column / i32(layout_.group));
  auto is_first = k_.lane() % i32(layout_.group / kLaneChannels) == 0;
  const bool has_more = layout_.scales() * layout_.group < channels_;
  k_.if_(has_more ? is_first && group < i32(layout_.scales()) : is_first, [&] {
    Value stored = scale.stored;
    // Scales of channels without a code are 0.
    if (layout_.scales() * layout_.group > layout_.coded) {
      stored = select(group < i32(layout_.coded / layout_.group), stored, cast(DType::u32, 0));
    }
    bytes_.scale(slot, group) = cast(layout_.scale, stored);
  });
}

void CacheRows::load(const Ref& values, const Value& column, const Slot& slot) const {
  const auto load_bf16 = [&](const std::function<Ref(const Value&)>& element) {
    auto held = k_.local(DType::bf16, {kLaneChannels}, "held");
    k_.vectorized(kLaneChannels, [&](Value i) { held(i) = element(column + i); });
    k_.unrolled(kLaneChannels, [&](Value i) { values(i) = f32(held(i)); });
  };
  by_part(
      column,
      [&] {
        if (layout_.scale_bytes == 0) {
          return load_bf16([&](const Value& channel) { return bytes_.code(slot, channel); });
        }
        auto held = k_.local(layout_.codes, {kLaneChannels}, "held");
        k_.vectorized(kLaneChannels, [&](Value i) { held(i) = bytes_.code(slot, column + i); });
        auto stored = k_.let("stored", bytes_.scale(slot, column / i32(layout_.group)));
        auto scale = k_.let("scale", bytes_.scale_value(stored));
        k_.unrolled(kLaneChannels,
                    [&](Value i) { values(i) = f32(bytes_.value_of(held(i), scale)); });
      },
      [&] { load_bf16([&](const Value& channel) { return bytes_.rotated(slot, channel); }); });
}

}  // namespace tessera::kernels::serving
