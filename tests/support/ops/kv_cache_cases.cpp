// Cases of the ops of KV caches: every format in its orders of bytes, pages of any size, slots that are not there,
// padding, values at the edges of the quantisers.

#include "tests/support/ops/kv_cache_cases.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "tests/reference/cache_entry.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr int64_t kAngles = 40;

bool is_plain(const CacheSetup& s) {
  return s.format == "bf16";
}

int64_t channels_of(const CacheSetup& s) {
  return is_plain(s) ? s.channels : reference::channels_of_format(s.format);
}

/// Two slots for each token, in any order.
std::vector<double> slots_of(const CacheSetup& s, Random& random) {
  std::vector<double> slots(static_cast<size_t>(2 * s.tokens + 1));
  std::iota(slots.begin(), slots.end(), 0.0);
  for (size_t i = slots.size() - 1; i > 0; --i) {
    std::swap(slots[i], slots[static_cast<size_t>(random.below(static_cast<int64_t>(i) + 1))]);
  }
  slots.resize(static_cast<size_t>(s.tokens));
  if (slots.size() > 3) slots[2] = -1;
  return slots;
}

HostTensor cache_of(const CacheSetup& s, uint64_t seed) {
  const int64_t slots = 2 * s.tokens + 1;
  if (is_plain(s)) {
    return random_tensor(DType::bf16, {slots, s.channels}, {s.channels + 8, 1}, Values::bits, seed);
  }
  const int64_t bytes = reference::bytes_of_block(s.format, s.page_size);
  const int64_t apart = (bytes + 15) / 16 * 16 + (s.format == "v32_fp8" ? 8 : 16);
  return random_tensor(DType::u8, {(slots + s.page_size - 1) / s.page_size, bytes}, {apart, 1},
                       Values::bits, seed);
}

/// A case without tensors of its own op.
OpCase cached_case(const CacheSetup& s) {
  OpCase test;
  test.label = fmt::format("{} {} page={} T={} d={} x={} loc={}", s.format, s.order, s.page_size,
                           s.tokens, channels_of(s), name(s.x), name(s.loc));
  Random random(s.seed);
  const std::vector<double> slots = slots_of(s, random);
  test.inputs["loc"] =
      tensor_by(s.loc, {s.tokens}, [&](int64_t i) { return slots[static_cast<size_t>(i)]; });
  test.inputs["cache"] = cache_of(s, random.next());
  test.params["format"] = s.format;
  test.params["page_size"] = s.page_size;
  test.params["cache_order"] = s.order;
  return test;
}

HostTensor positions_of(int64_t tokens, DType dtype) {
  Random random(77);
  HostTensor positions = tensor_by(dtype, {tokens}, [&](int64_t) { return random.below(kAngles); });
  if (tokens > 4) {
    for (const int64_t first : {0, 1}) positions.set_value(first, static_cast<double>(first));
    positions.set_value(4, -1);
  }
  return positions;
}

/// Every format in its orders.
std::vector<CacheSetup> all_setups() {
  std::vector<CacheSetup> setups = {{"v32_fp8", "planes", 5},   {"v4_fp8", "planes", 5},
                                    {"v41_fp8", "planes", 5},   {"v41_fp8", "rows", 3},
                                    {"v41_fp4", "planes", 3},   {"v41_fp4", "rows", 5},
                                    {"index_fp8", "planes", 4}, {"index_fp4", "planes", 5},
                                    {"index_fp4", "rows", 3},   {"bf16", "planes", 64}};
  uint64_t seed = 100;
  for (CacheSetup& s : setups) {
    s.seed = ++seed;
    s.x = seed % 2 == 0 ? DType::f32 : DType::bf16;
    s.loc = seed % 3 == 0 ? DType::i64 : DType::i32;
    if (is_plain(s)) s.channels = 576;
  }
  return setups;
}

CacheSetup with(CacheSetup s, int64_t tokens, int64_t page_size, DType x) {
  s.tokens = tokens;
  s.page_size = page_size;
  s.x = x;
  s.seed += 50;
  return s;
}

/// Some slots beyond the cache, some below 0.
OpCase astray(OpCase test) {
  HostTensor& loc = test.inputs.at("loc");
  for (int64_t i = 0; i < loc.size(); i += 3) {
    loc.set_value(i, i % 2 == 0 ? static_cast<double>(100000 + i) : static_cast<double>(-7 - i));
  }
  if (loc.dtype() == DType::i64) loc.set_value(1, 8589934592.0);  // 0 in 32 bits
  test.label += " astray";
  return test;
}

/// Rows whose groups are at the edges of the quantisers.
OpCase edges(CacheSetup s) {
  s.tokens = 12;
  s.x = DType::f32;
  OpCase test = kv_store_case(s);
  HostTensor& x = test.inputs.at("x");
  const float least = 6 * 0x1p-9F;  // of v41_fp4
  const std::vector<float> largest = {0,
                                      448,
                                      6,
                                      2688,
                                      2689,
                                      3.4028235e38F,
                                      least,
                                      std::nextafter(least, 0.0F),
                                      std::nextafter(least, 1.0F),
                                      1e-40F,
                                      NAN,
                                      INFINITY};
  const int64_t channels = x.shape()[1];
  for (int64_t i = 0; i < x.size(); ++i) {
    const float most = largest[static_cast<size_t>(i / channels)];
    const auto part = static_cast<float>(i % 16 - 8) / 8;
    const bool is_odd_group = i / 16 % 2 == 1;  // NaN and infinity beside finite groups
    const bool is_special = !std::isfinite(most) && (is_odd_group || i % 16 != 3);
    x.set_value(i, is_special ? static_cast<double>(part)
                              : static_cast<double>(most * (i % 16 == 0 ? 1.0F : part)));
  }
  test.label += " edges";
  return test;
}

/// Ties of e2m1 and e4m3 codes: the largest value of a group gives the scale 1.
OpCase ties(CacheSetup s) {
  s.x = DType::f32;
  OpCase test = kv_store_case(s);
  HostTensor& x = test.inputs.at("x");
  const bool is_fp4 = s.format.ends_with("fp4");
  const std::vector<double> fp4 = {6,    0.25, 0.75,  1.25,  1.75,  2.5,   3.5,  5,
                                   -0.0, 0.0,  -0.25, -0.75, -1.25, -1.75, -2.5, -5};
  const std::vector<double> fp8 = {448,      17,   19,  1.0625, 1.1875, 0x1p-10, 0x3p-10, 0x1p-9,
                                   -0x1p-10, -0.0, 432, 416,    -17,    -19,     0x5p-10, 33};
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set_value(i, (is_fp4 ? fp4 : fp8)[static_cast<size_t>(i % 16)]);
  }
  test.label += " ties";
  return test;
}

OpCase query_case(int64_t tokens, int64_t heads, int64_t channels, DType positions,
                  const std::string& layout, Values values = Values::normal) {
  OpCase test;
  test.label = fmt::format("T={} h={} d={} positions={} {}", tokens, heads, channels,
                           name(positions), layout);
  test.inputs["q"] = random_tensor(DType::bf16, {tokens, heads, channels}, values, 41);
  test.inputs["cos_sin"] = angle_table(kAngles);
  test.inputs["positions"] = positions_of(tokens, positions);
  test.params["cos_sin_layout"] = layout;
  return test;
}

OpCase index_query_case(int64_t tokens, int64_t heads, DType weight, const std::string& layout,
                        bool hadamard, bool rope_first, Values values = Values::normal) {
  OpCase test =
      query_case(tokens, heads, 128, heads % 2 == 0 ? DType::i32 : DType::i64, layout, values);
  test.inputs["weight"] = random_tensor(weight, {tokens, heads}, Values::normal, 43);
  test.params["weight_scale"] = 0.0883883461356163;
  test.params["hadamard"] = hadamard;
  test.params["rope_first"] = rope_first;
  test.label += fmt::format(" weight={} hadamard={} first={}", name(weight), hadamard, rope_first);
  return test;
}

/// Positions without an angle.
OpCase far(OpCase test) {
  HostTensor& positions = test.inputs.at("positions");
  positions.set_value(0, kAngles);
  positions.set_value(1, -2);
  if (positions.dtype() == DType::i64) positions.set_value(2, 4294967296.0);
  test.label += " without angles";
  return test;
}

/// NaN in a row of padding.
OpCase poisoned(OpCase test, const std::string& tensor) {
  HostTensor& rows = test.inputs.at(tensor);
  const int64_t tokens = rows.shape()[0], size = rows.size() / tokens;
  for (int64_t i = 0; i < size; ++i) rows.set_value(4 * size + i, NAN);
  test.label += " NaN in padding";
  return test;
}

}  // namespace

HostTensor angle_table(int64_t positions) {
  return tensor_by(DType::f32, {positions, 64}, [&](int64_t i) {
    const double angle = static_cast<double>(i / 64) / static_cast<double>(1 + i % 64 / 2);
    return i % 2 == 0 ? std::cos(angle) : std::sin(angle);
  });
}

OpCase kv_store_case(const CacheSetup& s) {
  OpCase test = cached_case(s);
  test.inputs["x"] = random_tensor(s.x, {s.tokens, channels_of(s)}, Values::normal, s.seed + 7);
  return test;
}

OpCase kv_load_case(const CacheSetup& s) {
  OpCase test = cached_case(s);
  test.params["out_dtype"] = std::string(s.x == DType::f32 ? "f32" : "bf16");
  return test;
}

OpCase kv_norm_rope_store_case(const CacheSetup& s) {
  OpCase test = kv_store_case(s);
  test.inputs["norm_weight"] = random_tensor(s.seed % 2 == 0 ? DType::bf16 : DType::f32,
                                             {channels_of(s)}, Values::normal, s.seed + 8);
  test.inputs["cos_sin"] = angle_table(kAngles);
  test.inputs["positions"] = positions_of(s.tokens, s.seed % 3 == 0 ? DType::i32 : DType::i64);
  test.params["norm_eps"] = 1e-3;
  test.params["hadamard"] = channels_of(s) == 128 && s.seed % 2 == 1;
  test.params["round_before"] = s.seed % 4 != 1;
  test.params["cos_sin_layout"] = std::string(s.seed % 5 < 2 ? "halves" : "pairs");
  return test;
}

std::vector<OpCase> kv_store_cases() {
  std::vector<OpCase> cases;
  for (const CacheSetup& s : all_setups()) {
    cases.push_back(kv_store_case(s));
    cases.push_back(astray(kv_store_case(with(s, 7, 4, DType::f32))));
    cases.push_back(kv_store_case(with(s, 1, 1, DType::bf16)));
    OpCase nasty = kv_store_case(with(s, 6, 7, DType::f32));
    fill_random(nasty.inputs.at("x"), Values::nasty, s.seed);
    nasty.label += " nasty";
    cases.push_back(std::move(nasty));
    if (is_plain(s)) continue;
    cases.push_back(edges(s));
    cases.push_back(ties(s));
  }
  for (const int64_t channels : {64, 192, 1024}) {
    CacheSetup s{"bf16", "planes", 64, 5};
    s.channels = channels;
    cases.push_back(kv_store_case(s));
  }
  const CacheSetup wide{"v4_fp8", "planes", 64, 9};
  for (const int64_t apart : {520, 514, 513}) {
    cases.push_back(strided(kv_store_case(wide), "x", {apart, 1}));
  }
  cases.push_back(kv_store_case({"v41_fp8", "planes", 64, 0}));
  return cases;
}

std::vector<OpCase> kv_load_cases() {
  std::vector<OpCase> cases;
  for (const CacheSetup& s : all_setups()) {
    cases.push_back(kv_load_case(s));
    cases.push_back(kv_load_case(with(s, 6, 7, s.x == DType::f32 ? DType::bf16 : DType::f32)));
    cases.push_back(astray(kv_load_case(with(s, 7, 4, DType::bf16))));
    OpCase twice = kv_load_case(with(s, 5, 2, DType::bf16));
    twice.inputs.at("loc").set_value(0, twice.inputs.at("loc").value(1));
    twice.label += " a slot twice";
    cases.push_back(std::move(twice));
  }
  cases.push_back(kv_load_case({"v41_fp8", "planes", 64, 0}));
  return cases;
}

std::vector<OpCase> kv_norm_rope_store_cases() {
  std::vector<OpCase> cases;
  for (const CacheSetup& s : all_setups()) {
    cases.push_back(kv_norm_rope_store_case(s));
    cases.push_back(far(astray(kv_norm_rope_store_case(with(s, 7, 4, DType::f32)))));
    cases.push_back(poisoned(kv_norm_rope_store_case(with(s, 5, 3, DType::bf16)), "x"));
  }
  for (const int64_t channels : {128, 640, 1024}) {
    CacheSetup s{"bf16", "planes", 64, 6};
    s.channels = channels;
    s.seed = static_cast<uint64_t>(channels);
    cases.push_back(kv_norm_rope_store_case(s));
  }
  for (const uint64_t seed : {1U, 2U, 3U, 4U}) {
    CacheSetup s{"index_fp8", "planes", 4};
    s.seed = seed;
    cases.push_back(kv_norm_rope_store_case(s));
  }
  const CacheSetup wide{"v4_fp8", "planes", 64, 9};
  for (const int64_t apart : {520, 513}) {
    cases.push_back(strided(kv_norm_rope_store_case(wide), "x", {apart, 1}));
  }
  OpCase zeros = kv_norm_rope_store_case({"v4_fp8", "planes", 64, 5});
  zeros.inputs.at("x").fill_bytes(std::byte{0});
  zeros.label += " zeros";
  cases.push_back(std::move(zeros));
  cases.push_back(kv_norm_rope_store_case({"v41_fp8", "planes", 64, 0}));
  return cases;
}

std::vector<OpCase> q_norm_rope_cases() {
  std::vector<OpCase> cases;
  for (const char* layout : {"pairs", "halves"}) {
    cases.push_back(query_case(7, 3, 512, DType::i32, layout));
    cases.push_back(query_case(5, 2, 128, DType::i64, layout));
    cases.push_back(far(query_case(6, 1, 192, DType::i64, layout)));
    cases.push_back(query_case(6, 2, 256, DType::i32, layout, Values::nasty));
  }
  cases.push_back(query_case(5, 1, 64, DType::i32, "pairs"));
  cases.push_back(query_case(5, 2, 4096, DType::i32, "halves"));
  cases.push_back(query_case(0, 4, 512, DType::i32, "pairs"));
  cases.push_back(poisoned(query_case(7, 3, 512, DType::i32, "pairs"), "q"));
  cases.push_back(strided(query_case(7, 3, 512, DType::i32, "pairs"), "q", {2048, 576, 1}));
  cases.push_back(strided(query_case(7, 3, 512, DType::i32, "pairs"), "q", {2051, 517, 1}));
  for (OpCase& test : cases) test.params["norm_eps"] = 1e-3;
  OpCase zeros = query_case(6, 2, 512, DType::i32, "pairs");
  zeros.inputs.at("q").fill_bytes(std::byte{0});
  zeros.params["norm_eps"] = 0.0;
  zeros.label += " zeros";
  cases.push_back(std::move(zeros));
  return cases;
}

std::vector<OpCase> index_q_store_cases() {
  std::vector<OpCase> cases;
  for (const int options : {0, 1, 2, 3, 4, 5, 6, 7}) {
    cases.push_back(index_query_case(
        6, 2 + options % 3, options % 2 == 0 ? DType::f32 : DType::bf16,
        (options & 1) != 0 ? "halves" : "pairs", (options & 2) != 0, (options & 4) != 0));
  }
  cases.push_back(far(index_query_case(7, 3, DType::f32, "pairs", true, false)));
  cases.push_back(index_query_case(6, 2, DType::f32, "pairs", true, false, Values::nasty));
  cases.push_back(index_query_case(6, 2, DType::f32, "pairs", false, false, Values::nasty));
  cases.push_back(poisoned(index_query_case(6, 2, DType::f32, "pairs", true, false), "q"));
  cases.push_back(poisoned(index_query_case(6, 2, DType::f32, "pairs", true, false), "weight"));
  cases.push_back(index_query_case(0, 4, DType::f32, "pairs", true, false));
  cases.push_back(
      strided(index_query_case(7, 3, DType::bf16, "pairs", true, false), "weight", {5, 1}));
  OpCase zeros = index_query_case(6, 2, DType::f32, "pairs", true, false);
  zeros.inputs.at("q").fill_bytes(std::byte{0});
  zeros.label += " zeros";
  cases.push_back(std::move(zeros));
  return cases;
}

}  // namespace tessera::test
