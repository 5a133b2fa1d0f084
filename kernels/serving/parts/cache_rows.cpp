#include "kernels/serving/parts/cache_rows.h"

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/checks/value_check.h"

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
    : k_(k), kind_(kind), layout_(cache_layout(kind)), channels_(channels) {
  blocks_ = k.dim("cache_blocks");
  const auto view = [&](const std::string& name, DType dtype, int64_t run) {
    const DimOptions apart{.multiple_of = 8 * layout_.stride_multiple / bits(dtype)};
    const Value columns = k.dim(name + "_columns", {.multiple_of = run});
    const TensorOptions options{.strides = {k.stride(name + "_stride", apart), 1},
                                .align = std::max<int64_t>(run * bits(dtype) / 8, 1),
                                .may_alias = is_output};
    return is_output ? k.output(name, dtype, {*blocks_, columns}, options)
                     : k.input(name, dtype, {*blocks_, columns}, options);
  };
  codes_ = view("cache", layout_.codes, kLaneChannels);
  if (layout_.bf16_bytes() > 0) rotated_ = view("cache_rotated", DType::bf16, kLaneChannels);
  if (layout_.scale_bytes > 0) scales_ = view("cache_scales", layout_.scale, 1);
  page_size_ = k.scalar("page_size", DType::i32);
}

CacheRows::Slot CacheRows::slot(const Value& location, const char* tensor) const {
  const bool is_plain = kind_.format == CacheFormat::bf16;
  auto block = k_.let("block", is_plain ? location : location / *page_size_);
  auto fits = k_.let("fits", block < *blocks_);
  k_.report_unless(fits, out_of_range(tensor));
  auto offset = is_plain ? i32(0) : k_.let("offset", i32(location - block * *page_size_));
  return {k_.let("exists", location >= 0 && fits), i32(block), offset};
}

Value CacheRows::code_column(const Slot& slot) const {
  return i64(slot.offset) * (layout_.pitch() * 8 / bits(layout_.codes));
}
Value CacheRows::bf16_column(const Slot& slot, const Value& column) const {
  return i64(slot.offset) * (layout_.pitch() / 2) +
         (column + (layout_.bf16_at() / 2 - layout_.coded));
}
Value CacheRows::scale_column(const Slot& slot, const Value& group) const {
  const int64_t size = bytes(layout_.scale);
  if (layout_.in_rows()) {
    return i64(slot.offset) * (layout_.pitch() / size) + (layout_.code_bytes() / size + group);
  }
  return layout_.pitch() / size * *page_size_ + layout_.scales() * slot.offset + group;
}

void CacheRows::by_part(const Value& column, const std::function<void()>& coded,
                        const std::function<void()>& plain) const {
  const auto inside = [&](const std::function<void()>& body) {
    if (channels_ % kWarpChannels == 0) return body();
    k_.if_(column < channels_, body);
  };
  if (!rotated_) return inside(coded);
  k_.if_else(column < layout_.coded, coded, [&] { inside(plain); });
}

void CacheRows::store(const Ref& values, const Value& column, const Slot& slot, bool rounds) const {
  k_.if_(slot.exists, [&] {
    if (kind_.format != CacheFormat::bf16) {
      if (!rounds) return store_codes(values, column, slot);
      auto rounded = k_.local(DType::f32, {kLaneChannels}, "rounded");
      k_.unrolled(kLaneChannels, [&](Value i) { rounded(i) = f32(cast(DType::bf16, values(i))); });
      return store_codes(rounded, column, slot);
    }
    by_part(
        column,
        [&] {
          k_.vectorized(kLaneChannels, [&](Value i) {
            (*codes_)(slot.block, column + i).unchecked() = cast(DType::bf16, values(i));
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
        k_.vectorized(kLaneChannels, [&](Value i) {
          (*codes_)(slot.block, code_column(slot) + column + i).unchecked() =
              code_of(values(i), scale);
        });
      },
      [&] {
        k_.vectorized(kLaneChannels, [&](Value i) {
          (*rotated_)(slot.block, bf16_column(slot, column) + i).unchecked() =
              cast(DType::bf16, values(i));
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
    (*scales_)(slot.block, scale_column(slot, group)).unchecked() = cast(layout_.scale, stored);
  });
}

void CacheRows::load(const Ref& values, const Value& column, const Slot& slot) const {
  const bool is_plain = kind_.format == CacheFormat::bf16;
  const auto load_bf16 = [&](const Ref& from, const Value& first) {
    auto held = k_.local(DType::bf16, {kLaneChannels}, "held");
    k_.vectorized(kLaneChannels,
                  [&](Value i) { held(i) = from(slot.block, first + i).unchecked(); });
    k_.unrolled(kLaneChannels, [&](Value i) { values(i) = f32(held(i)); });
  };
  by_part(
      column,
      [&] {
        if (is_plain) return load_bf16(*codes_, column);
        auto held = k_.local(layout_.codes, {kLaneChannels}, "held");
        k_.vectorized(kLaneChannels, [&](Value i) {
          held(i) = (*codes_)(slot.block, code_column(slot) + column + i).unchecked();
        });
        auto stored = k_.let(
            "stored",
            (*scales_)(slot.block, scale_column(slot, column / i32(layout_.group))).unchecked());
        const bool is_byte = layout_.scale == DType::u8;
        auto scale =
            k_.let("scale",
                   is_byte ? reinterpret(DType::f32, cast(DType::u32, stored) << 23) : f32(stored));
        k_.unrolled(kLaneChannels, [&](Value i) {
          const Value product = f32(held(i)) * scale;
          const bool is_exact = kind_.format == CacheFormat::index_fp8;
          values(i) = is_exact ? product : f32(cast(DType::bf16, product));
        });
      },
      [&] { load_bf16(*rotated_, bf16_column(slot, column)); });
}

}  // namespace tessera::kernels::serving
