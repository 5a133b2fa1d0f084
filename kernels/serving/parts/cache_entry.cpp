#include "kernels/serving/parts/cache_entry.h"

#include <numeric>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/quant/parts/scale_factor.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

constexpr QuantFormat kIndexFp4 = {6.0f, 1e-4f};
constexpr int64_t kMostTokens = 1 << 20;  // tokens per block of the cache
constexpr int64_t kToken = 576;           // bytes of a token in v4_fp8: codes and rotated channels
constexpr float kHadamard = 0x1.6a09e6p-4f;  // 1 / sqrt(128)

struct Codes {
  DType dtype;
  int64_t group, rounds;  // channels of a scale; to powers of two
};

Codes codes_of(CacheFormat format) {
  switch (format) {
    case CacheFormat::v4_fp8:
      return {DType::e4m3, 64, 1};
    case CacheFormat::index_fp8:
      return {DType::e4m3, 128, 0};
    case CacheFormat::index_fp4:
      return {DType::e2m1, 32, 1};
    default:
      return {DType::bf16, 0, 0};
  }
}

/// Views the cache with elements of another dtype.
TensorView seen_as(const TensorView& cache, DType dtype) {
  const auto elements = [&](int64_t count) { return count * bits(cache.dtype) / bits(dtype); };
  return {cache.data, dtype, Dims{cache.shape[0], elements(cache.shape[1])},
          Dims{elements(step(cache, 0)), 1}, cache.device};
}

}  // namespace

CacheFormat cache_format(std::string_view word) {
  if (word == "bf16") return CacheFormat::bf16;
  if (word == "v4_fp8") return CacheFormat::v4_fp8;
  return word == "index_fp8" ? CacheFormat::index_fp8 : CacheFormat::index_fp4;
}

int64_t block_bytes(CacheFormat format, int64_t channels, int64_t page_size) {
  switch (format) {
    case CacheFormat::v4_fp8:
      return (584 * page_size + kToken - 1) / kToken * kToken;
    case CacheFormat::index_fp8:
      return 132 * page_size;
    case CacheFormat::index_fp4:
      return 68 * page_size;
    default:
      return channels;
  }
}

void require_cache(const Call& c) {
  const std::string word(c.word("format"));
  const CacheFormat format = cache_format(word);
  const bool is_plain = format == CacheFormat::bf16;
  const int64_t channels = c["D"], block = c["page_size"];
  const TensorView& cache = c.given("cache");
  const int64_t wanted = format == CacheFormat::v4_fp8 ? 512 : is_plain ? channels : 128;
  c.need(channels == wanted, "format", "parameter 'format' does not go with the channels",
         std::to_string(wanted) + " channels for " + word, std::to_string(channels));
  c.need(!c.flag("hadamard") || channels == 128, "hadamard",
         "parameter 'hadamard' does not go with the channels", "128 channels",
         std::to_string(channels));
  c.need(block >= 1 && block <= kMostTokens, "page_size", "parameter 'page_size' is out of range",
         "1 .. " + std::to_string(kMostTokens), std::to_string(block));
  c.need(cache.dtype == (is_plain ? DType::bf16 : DType::u8), "cache",
         "argument 'cache' has the wrong dtype", (is_plain ? "bf16 for " : "u8 for ") + word,
         to_string(cache));
  const int64_t bytes = block_bytes(format, channels, block);
  c.need(cache.shape[1] == bytes, "cache", "argument 'cache' has the wrong shape",
         "[.., " + std::to_string(bytes) + "] for " + word, to_string(cache));
  const int64_t multiple = is_plain ? 8 : 16;
  c.need(cache.shape[0] <= 1 || cache.strides[0] % multiple == 0, "cache",
         "argument 'cache' has the wrong strides",
         "a row stride that is a multiple of " + std::to_string(multiple), to_string(cache));
}

EntrySpec entry_spec(const Call& c) {
  EntrySpec s{};
  s.format = cache_format(c.word("format"));
  s.weight = c.dtype("norm_weight");
  s.hadamard = c.flag("hadamard");
  s.halves = c.word("cos_sin_layout") == "halves";
  s.weight_width = static_cast<uint8_t>(common_vector(c.given("norm_weight"), kLaneChannels));
  s.cos_sin_width =
      static_cast<uint8_t>(common_vector(c.given("cos_sin"), s.halves ? 2 : kLaneChannels));
  return s;
}

std::vector<Args::Tensor> cache_tensors(const Call& c) {
  const TensorView& cache = c.given("cache");
  const CacheFormat format = cache_format(c.word("format"));
  std::vector<Args::Tensor> tensors = {{"cache", seen_as(cache, codes_of(format).dtype)}};
  if (format == CacheFormat::v4_fp8) {
    tensors.push_back({"cache_rotated", seen_as(cache, DType::bf16)});
  }
  if (format != CacheFormat::bf16) {
    const bool is_float = format == CacheFormat::index_fp8;
    tensors.push_back({"cache_scales", seen_as(cache, is_float ? DType::f32 : DType::u8)});
  }
  return tensors;
}

CacheEntry::CacheEntry(Builder& k, const EntrySpec& s, int64_t channels)
    : k_(k), s_(s), channels_(channels) {
  weight_ = k.input("norm_weight", s.weight, {channels},
                    {.align = int64_t{bytes(s.weight)} * s.weight_width});
  positions_ = k.dim("cos_sin_rows");
  cos_sin_ =
      k.input("cos_sin", DType::f32, {*positions_, kRotated}, {.align = 4 * s.cos_sin_width});
  blocks_ = k.dim("cache_blocks");
  const auto view = [&](const std::string& name, DType dtype, int64_t run) {
    const DimOptions apart{.multiple_of = 128 / bits(dtype)};
    const Value columns = k.dim(name + "_columns", {.multiple_of = run});
    return k.output(name, dtype, {*blocks_, columns},
                    {.strides = {k.stride(name + "_stride", apart), 1},
                     .align = run * bits(dtype) / 8,
                     .may_alias = true});
  };
  const DType codes = codes_of(s.format).dtype;
  codes_ = view("cache", codes, kLaneChannels);
  if (s.format == CacheFormat::v4_fp8) rotated_ = view("cache_rotated", DType::bf16, kLaneChannels);
  if (s.format == CacheFormat::index_fp8) scales_ = view("cache_scales", DType::f32, 1);
  if (s.format == CacheFormat::v4_fp8 || s.format == CacheFormat::index_fp4) {
    scales_ = view("cache_scales", DType::u8, 1);
  }
  eps_ = k.scalar("norm_eps", DType::f32);
  page_size_ = k.scalar("page_size", DType::i32);
}

Value CacheEntry::sum_of_squares(const Ref& values) const {
  auto sum = k_.var(DType::f32, 0.0f, "squares");
  k_.unrolled(kLaneChannels, [&](Value i) { sum = fma(values(i), values(i), sum); });
  for (const int distance : {1, 2, 4, 8, 16}) sum += k_.shuffle_xor(sum, distance);
  return k_.let("sum_of_squares", sum);
}

void CacheEntry::prefetch(const Place& place) {
  held_weight_ = k_.local(s_.weight, {kLaneChannels}, "weight");
  k_.unrolled(kLaneChannels / s_.weight_width, [&](Value piece) {
    k_.vectorized(s_.weight_width, [&](Value i) {
      auto at = piece * s_.weight_width + i;
      (*held_weight_)(at) = (*weight_)(place.column + at).unchecked();
    });
  });
  // cos and sin of the two pairs, in the order of the table
  angles_ = k_.local(DType::f32, {kLaneChannels}, "angles");
  k_.unrolled(kLaneChannels, [&](Value i) {
    (*angles_)(i) = s_.halves ? select(i < 2, 1.0f, 0.0f) : select(i % 2 == 0, 1.0f, 0.0f);
  });
  auto first = k_.let("first_rotated", place.column - (channels_ - kRotated));
  auto known = k_.let("known_position", place.position < *positions_);
  k_.report_unless(known, kNoAngle);
  k_.if_(first >= 0 && known, [&] {
    const int64_t run = s_.halves ? 2 : kLaneChannels, width = s_.cos_sin_width;
    auto row = (*cos_sin_)(place.position);
    k_.unrolled(kLaneChannels / run, [&](Value part) {
      auto column = s_.halves ? part * (kRotated / 2) + first / 2 : first;
      k_.unrolled(run / width, [&](Value piece) {
        k_.vectorized(width, [&](Value i) {
          auto at = piece * width + i;
          (*angles_)(part * run + at) = row(column + at).unchecked();
        });
      });
    });
  });
}

void CacheEntry::normalize(const Ref& values, const Value& total, const Place& place) const {
  const auto count = static_cast<float>(channels_);
  auto inverse = k_.let("inverse", 1.0f / sqrt(total / count + *eps_));
  k_.unrolled(kLaneChannels, [&](Value i) {
    Value value = values(i);
    values(i) = value * inverse * f32((*held_weight_)(i));
  });
  k_.if_(place.column >= channels_ - kRotated, [&] {
    k_.unrolled(2, [&](Value pair) {
      Value a = values(2 * pair), b = values(2 * pair + 1);
      Value cos = s_.halves ? (*angles_)(pair) : (*angles_)(2 * pair);
      Value sin = s_.halves ? (*angles_)(2 + pair) : (*angles_)(2 * pair + 1);
      values(2 * pair) = fma(a, cos, -(b * sin));
      values(2 * pair + 1) = fma(a, sin, b * cos);
    });
  });
  if (s_.hadamard) transform(values);
}

void CacheEntry::transform(const Ref& values) const {
  for (const int64_t distance : {1, 2}) {
    for (int64_t i = 0; i < kLaneChannels; ++i) {
      if ((i & distance) != 0) continue;
      Value low = values(i), high = values(i + distance);
      values(i) = low + high;
      values(i + distance) = low - high;
    }
  }
  for (const int lanes : {1, 2, 4, 8, 16}) {
    auto is_upper = k_.let("is_upper", (k_.lane() & lanes) != 0);
    k_.unrolled(kLaneChannels, [&](Value i) {
      Value mine = values(i);
      auto other = k_.let("other", k_.shuffle_xor(mine, lanes));
      values(i) = select(is_upper, other - mine, mine + other);
    });
  }
  k_.unrolled(kLaneChannels, [&](Value i) {
    Value value = values(i);
    values(i) = value * kHadamard;
  });
}

void CacheEntry::store(const Ref& values, const Place& place) const {
  if (s_.format == CacheFormat::bf16) {
    auto fits = k_.let("fits", place.location < *blocks_);
    k_.report_unless(fits, out_of_range("plan"));
    k_.if_(place.location >= 0 && fits, [&] {
      k_.vectorized(kLaneChannels, [&](Value i) {
        (*codes_)(place.location, place.column + i).unchecked() = cast(DType::bf16, values(i));
      });
    });
    return;
  }
  auto block = k_.let("block", place.location / *page_size_);
  auto fits = k_.let("fits", block < *blocks_);
  k_.report_unless(fits, out_of_range("plan"));
  auto offset = k_.let("offset", place.location - block * *page_size_);
  k_.if_(place.location >= 0 && fits, [&] { store_codes(values, place, block, offset); });
}

void CacheEntry::store_codes(const Ref& values, const Place& place, const Value& block,
                             const Value& offset) const {
  const Codes codes = codes_of(s_.format);
  const bool is_v4 = s_.format == CacheFormat::v4_fp8;
  const int64_t token = is_v4 ? kToken : kWarpChannels;  // distance between the codes of two tokens
  auto rounded = k_.local(DType::bf16, {kLaneChannels}, "rounded");
  auto largest = k_.var(DType::f32, 0.0f, "largest");
  k_.unrolled(kLaneChannels, [&](Value i) {
    rounded(i) = cast(DType::bf16, values(i));
    largest = max(largest, abs(f32(rounded(i))));
  });
  for (int64_t lanes = 1; lanes < codes.group / kLaneChannels; lanes *= 2) {
    const Value other = k_.shuffle_xor(largest, static_cast<int>(lanes));
    largest = max(largest, other);
  }
  const QuantFormat& format = codes.dtype == DType::e2m1 ? kIndexFp4 : kE4m3;
  const ScaleFactor scale = scale_factor(k_, format, largest, codes.rounds != 0);
  auto inverse = k_.let("inverse_scale", scale.inverse);
  const auto store_quantised = [&] {
    k_.vectorized(kLaneChannels, [&](Value i) {
      (*codes_)(block, i64(offset) * token + place.column + i).unchecked() =
          cast(codes.dtype, f32(rounded(i)) * inverse);
    });
  };
  if (is_v4) {
    k_.if_else(place.column < channels_ - kRotated, store_quantised, [&] {
      k_.vectorized(kLaneChannels, [&](Value i) {
        (*rotated_)(block, i64(offset) * (kToken / 2) + (place.column - 224) + i).unchecked() =
            rounded(i);
      });
    });
  } else {
    store_quantised();
  }
  k_.if_(k_.lane() % i32(codes.group / kLaneChannels) == 0, [&] {
    auto group = place.column / i32(codes.group);
    if (s_.format == CacheFormat::index_fp8) {
      (*scales_)(block, 32 * *page_size_ + offset).unchecked() = scale.scale;
      return;
    }
    const int64_t scales = is_v4 ? 8 : 4;
    auto at = (is_v4 ? kToken : 64) * *page_size_ + scales * offset + group;
    auto byte = is_v4 ? select(group < 7, scale.exponent, cast(DType::u32, 0)) : scale.exponent;
    (*scales_)(block, at).unchecked() = cast(DType::u8, byte);
  });
}

}  // namespace tessera::kernels::serving
