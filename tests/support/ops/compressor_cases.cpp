// Cases of the KV compressor: both ratios and pools, windows that begin in the state, rows of padding,
// slots and locations that are not there. What no window reads is NaN.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/reference/cache_entry.h"
#include "tests/reference/kv_compress.h"
#include "tests/support/ops/compressor_variants.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

/// Entries are sums of values up to 3.5 with weights that are exponentials: two units in the last place
/// of each.
constexpr Tolerance kOfExp = {1e-6, 3e-6}, kOfExpInBf16 = {4e-3, 3e-6};

struct Setup {
  int64_t ratio, ring, max_rollback = 0, state_page_size = 0;
  int64_t channels = 128;
  DType x = DType::f32, state = DType::f32;
  int64_t requests = 3, most_tokens = 0;  // 0: some windows
  std::string format = {};                // of the cache; then exponentials are 1 or 0
  int64_t page_size = 4;
  std::string order = "planes";
  uint64_t seed = 1;
};

const std::vector<Setup> kSetups = {
    {4, 8},
    {4, 16, 9, 0, 512, DType::bf16, DType::bf16},
    {4, 8, 1, 16, 256, DType::bf16, DType::f32},
    {4, 8, 1, 8, 384, DType::f32, DType::f32, 2},
    {128, 128, 1, 0, 128, DType::bf16, DType::bf16, 2},
    {128, 256, 8, 256, 256, DType::f32, DType::f32, 1},
    {128, 128, 0, 0, 512, DType::bf16, DType::f32, 1},
};

const std::vector<Setup> kStoreSetups = {
    {4, 8, 0, 0, 128, DType::f32, DType::f32, 3, 0, "index_fp8"},
    {4, 8, 1, 16, 128, DType::bf16, DType::f32, 3, 0, "index_fp4", 3},
    {4, 16, 9, 0, 512, DType::bf16, DType::bf16, 3, 0, "v4_fp8", 5},
    {4, 8, 1, 8, 256, DType::f32, DType::f32, 2, 0, "bf16"},
    {128, 128, 1, 0, 512, DType::bf16, DType::bf16, 1, 0, "v4_fp8"},
    {128, 256, 8, 256, 128, DType::f32, DType::f32, 1, 0, "index_fp8", 2},
    {128, 128, 0, 0, 640, DType::bf16, DType::f32, 1, 0, "bf16"},
    {4, 16, 9, 0, 512, DType::bf16, DType::bf16, 3, 0, "v41_fp8", 3},
    {4, 16, 9, 0, 512, DType::bf16, DType::f32, 3, 0, "v41_fp4", 5, "rows"},
};

int64_t slots_of(int64_t ratio) {
  return ratio == 4 ? 8 : ratio;
}
int64_t row_length(const Setup& s) {
  return s.channels * (s.ratio == 4 ? 4 : 2);
}

HostTensor indices(const std::vector<int64_t>& values) {
  return tensor_by(DType::i32, {static_cast<int64_t>(values.size())},
                   [&](int64_t i) { return values[static_cast<size_t>(i)]; });
}

/// Numbers 0 .. count - 1 in any order.
std::vector<int64_t> shuffled(int64_t count, Random& random) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (int64_t i = count - 1; i > 0; --i) {
    std::swap(numbers[static_cast<size_t>(i)], numbers[static_cast<size_t>(random.below(i + 1))]);
  }
  return numbers;
}

class CaseMaker {
 public:
  explicit CaseMaker(const Setup& s) : s_(s), random_(s.seed) {
    longest_ = s.ratio == 4 ? 26 : 300;
    options_.ratio = s.ratio;
    options_.ring = s.ring;
    options_.max_rollback = s.max_rollback;
    options_.state_page_size = s.state_page_size;
    options_.page_size = s.page_size;
    test_.label = fmt::format("ratio={} ring={} page={} D={} x={} state={} {}", s.ratio, s.ring,
                              s.state_page_size, s.channels, name(s.x), name(s.state), s.format);
    test_.params["ratio"] = s.ratio;
    if (s.format.empty()) test_.tolerance = kOfExp;
  }

  /// New tokens of requests, some of them without any.
  OpCase prefill() {
    std::vector<int64_t> starts, ends = {0};
    for (int64_t b = 0; b < s_.requests; ++b) {
      starts.push_back(b % 2 == 0 ? 0 : random_.below(longest_ - s_.ratio));
      const int64_t tokens = b % 4 == 2 ? 0 : longest_ - starts.back() - random_.below(s_.ratio);
      ends.push_back(ends.back() + tokens);
    }
    if (s_.requests == 1) starts[0] = longest_ - ends[1] + s_.ratio / 3;
    tables();
    tables_["start"] = indices(starts);
    tables_["row_start"] = indices(ends);
    options_.num_windows = ends.back() / s_.ratio + s_.requests + 1;
    options_.num_writes = ends.back() + 2;
    HostTensors plans = reference::compress_plan(tables_, options_);
    test_.inputs["plan"] = plans.at("plan");
    write_plan_ = plans.at("write_plan");
    rows(std::max<int64_t>(ends.back(), 1));
    return finish(false);
  }

  /// One token of each request; of every other one it ends a window.
  OpCase decode() {
    std::vector<int64_t> positions;
    for (int64_t b = 0; b < s_.requests; ++b) {
      const int64_t windows = longest_ / s_.ratio;
      const int64_t last = random_.below(windows) * s_.ratio + s_.ratio - 1;
      positions.push_back(b % 2 == 0 ? last : random_.below(longest_ + 1) - 1);
    }
    tables();
    tables_["positions"] = indices(positions);
    test_.inputs["plan"] = reference::compress_plan_decode(tables_, options_);
    rows(s_.requests);
    return finish(true);
  }

  const HostTensor& write_plan() const { return write_plan_; }

 private:
  void tables() {
    const int64_t pages = longest_ / std::max<int64_t>(s_.state_page_size, 1) + 2;
    const auto table = [&](Dims shape) {
      const std::vector<int64_t> numbers = shuffled(num_elements(shape), random_);
      return tensor_by(DType::i32, shape,
                       [&](int64_t i) { return numbers[static_cast<size_t>(i)]; });
    };
    const bool by_page = s_.state_page_size > 0;
    tables_[by_page ? "state_pages" : "state_slot"] =
        by_page ? table({s_.requests, pages}) : table({s_.requests});
    slots_ = s_.ring * s_.requests * (by_page ? pages : 1);
    tables_["page_table"] = table({s_.requests, longest_ / s_.ratio / s_.page_size + 2});
    tables_["page_table"].set_value(1, -1);  // no place for a page of the first request
    places_ = s_.page_size * tables_["page_table"].size();
  }

  HostTensor values(DType dtype, Dims shape) {
    return random_tensor(dtype, shape, Values::normal, random_.next());
  }

  void rows(int64_t count) {
    HostTensors& in = test_.inputs;
    in["x"] = values(s_.x, {count, row_length(s_)});
    in["ape"] = values(DType::f32, {slots_of(s_.ratio), s_.channels});
    in["state"] = values(s_.x, {slots_, row_length(s_)});
    if (!s_.format.empty()) make_exponentials_exact(in, random_);
    if (s_.state != s_.x) {
      HostTensor wide(s_.state, in["state"].shape());
      for (int64_t i = 0; i < wide.size(); ++i) wide.set_value(i, in["state"].value(i));
      in["state"] = std::move(wide);
    }
  }

  /// NaN in rows of the state that no window reads.
  void poison(bool is_decode) {
    const HostTensor& plan = test_.inputs.at("plan");
    HostTensor& state = test_.inputs.at("state");
    std::vector<bool> is_read(static_cast<size_t>(slots_));
    const auto read = [&](int64_t first, int64_t count) {
      for (int64_t i = 0; i < count && first >= 0 && first + i < slots_; ++i) {
        is_read[static_cast<size_t>(first + i)] = true;
      }
    };
    for (int64_t i = 0; i < plan.shape()[0]; ++i) {
      const auto field = [&](int64_t f) { return static_cast<int64_t>(plan.value(8 * i + f)); };
      if (field(0) < 0) continue;
      const int64_t from_state = is_decode ? slots_of(s_.ratio) : field(2);
      if (s_.ratio == 4) read(field(3), std::min<int64_t>(from_state, 4));
      read(field(4), s_.ratio == 4 ? from_state - 4 : from_state);
    }
    const int64_t length = row_length(s_);
    for (int64_t i = 0; i < state.size(); ++i) {
      if (!is_read[static_cast<size_t>(i / length)]) state.set_value(i, NAN);
    }
  }

  OpCase finish(bool is_decode) {
    poison(is_decode);
    if (s_.format.empty()) return test_;
    HostTensors& in = test_.inputs;
    in["norm_weight"] = values(s_.seed % 2 == 0 ? DType::bf16 : DType::f32, {s_.channels});
    in["cos_sin"] = tensor_by(DType::f32, {longest_ + 1, 64}, [&](int64_t i) {
      const double angle = static_cast<double>(i / 64) / static_cast<double>(1 + i % 64 / 2);
      return i % 2 == 0 ? std::cos(angle) : std::sin(angle);
    });
    const bool is_plain = s_.format == "bf16";
    const int64_t bs = s_.page_size, blocks = is_plain ? places_ : (places_ + bs - 1) / bs;
    const int64_t bytes = is_plain ? s_.channels : reference::bytes_of_block(s_.format, bs);
    const DType dtype = is_plain ? DType::bf16 : DType::u8;
    const int64_t apart = (bytes + 15) / 16 * 16 + 16;
    in["cache"] = random_tensor(dtype, {blocks, bytes}, {apart, 1}, Values::bits, random_.next());
    test_.params["format"] = s_.format;
    test_.params["page_size"] = bs;
    test_.params["cache_order"] = s_.order;
    test_.params["norm_eps"] = 1e-3;
    test_.params["save_out"] = s_.seed % 3 != 0;
    test_.params["cos_sin_layout"] = std::string(s_.seed % 2 == 0 ? "halves" : "pairs");
    test_.params["hadamard"] = s_.channels == 128 && s_.seed % 2 == 1;
    return test_;
  }

  const Setup s_;
  Random random_;
  reference::CompressOptions options_;
  int64_t longest_ = 0, slots_ = 0, places_ = 0;
  HostTensors tables_;
  HostTensor write_plan_;
  OpCase test_;
};

Setup seeded(Setup s, uint64_t seed) {
  s.seed = seed;
  return s;
}

OpCase pitched(OpCase test, const std::string& name, int64_t apart) {
  const HostTensor old = test.inputs.at(name);
  HostTensor placed(old.dtype(), old.shape(), Dims{old.shape()[1] + apart, 1});
  for (int64_t i = 0; i < old.size(); ++i) placed.set_bits(i, old.bits(i));
  test.label += fmt::format(" {} {} apart", name, apart);
  test.inputs[name] = std::move(placed);
  return test;
}

/// compress_state_write of the same call.
OpCase written(OpCase test, const HostTensor& write_plan) {
  test.inputs["write_plan"] = write_plan;
  for (const char* name : {"ape", "plan"}) test.inputs.erase(name);
  test.tolerance.reset();
  return test;
}

OpCase in_bf16(OpCase test) {
  test.params["out_dtype"] = std::string("bf16");
  test.tolerance = kOfExpInBf16;
  return test;
}

/// Cases of ops that return entries.
std::vector<OpCase> entry_cases(bool is_decode) {
  std::vector<OpCase> cases;
  uint64_t seed = 1;
  const auto one = [&](Setup s) {
    if (is_decode) s.requests = s.ratio == 4 ? 9 : 3;
    CaseMaker maker(seeded(std::move(s), ++seed));
    return is_decode ? maker.decode() : maker.prefill();
  };
  for (const Setup& s : kSetups) cases.push_back(one(s));
  for (const size_t i : {1U, 4U}) {
    cases.push_back(in_bf16(one(kSetups[i])));
    cases.push_back(pitched(one(kSetups[i]), "x", 3));
    cases.push_back(pitched(one(kSetups[i]), "state", 4));
  }
  for (const size_t i : {0U, 2U, 4U}) {
    Setup many = kSetups[i];
    many.requests = many.ratio == 4 ? 7 : 4;
    cases.push_back(astray(one(many), is_decode));
    cases.push_back(hostile(one(kSetups[i])));
  }
  for (Setup many : {kSetups[4], kSetups[5]}) {
    if (!is_decode) {
      cases.push_back(crowded(one(many), many.channels == 128 ? 430 : 150));
      continue;
    }
    many.requests = 12;
    cases.push_back(crowded_tokens(CaseMaker(seeded(many, ++seed)).decode(), 430));
  }
  if (!is_decode) {
    Setup wide = kSetups[4];
    wide.channels = 256;
    cases.push_back(crowded(one(wide), 150));
    cases.push_back(crowded(hostile(one(kSetups[4])), 430));
    cases.push_back(pitched(crowded(one(kSetups[4]), 430), "x", 3));
  }
  return cases;
}

std::vector<OpCase> store_cases(bool is_decode) {
  std::vector<OpCase> cases;
  uint64_t seed = 50;
  const auto one = [&](Setup s) {
    if (is_decode) s.requests = s.ratio == 4 ? 9 : 3;
    CaseMaker maker(seeded(std::move(s), ++seed));
    return is_decode ? maker.decode() : maker.prefill();
  };
  for (const Setup& s : kStoreSetups) cases.push_back(one(s));
  for (const size_t i : {0U, 1U, 2U}) cases.push_back(one(kStoreSetups[i]));
  cases.push_back(pitched(one(kStoreSetups[0]), "x", 3));
  cases.push_back(pitched(one(kStoreSetups[2]), "state", 4));
  cases.push_back(astray(one(kStoreSetups[0]), is_decode));
  for (const size_t i : {2U, 3U}) {
    OpCase beyond = one(kStoreSetups[i]);
    HostTensor& plan = beyond.inputs.at("plan");
    for (int64_t row = 0; row < plan.shape()[0]; row += 2) {
      if (plan.value(8 * row + 5) >= 0)
        plan.set_value(8 * row + 5, static_cast<double>(100000 + row));
    }
    beyond.inputs["cos_sin"] = random_tensor(DType::f32, {9, 64}, Values::normal, 3);
    beyond.label += " beyond the cache and the angles";
    cases.push_back(std::move(beyond));
  }
  for (const size_t i : {0U, 3U, 5U}) {
    OpCase other = one(kStoreSetups[i]);
    HostTensor& plan = other.inputs.at("plan");
    for (int64_t row = 0; row < plan.shape()[0]; row += 2) {
      if (plan.value(8 * row) >= 0) plan.set_value(8 * row + 7, 64);
    }
    other.label += " planned for other pages";
    cases.push_back(std::move(other));
  }
  for (Setup many : {kStoreSetups[4], kStoreSetups[5]}) {
    if (!is_decode) {
      cases.push_back(crowded(one(many), many.channels == 128 ? 300 : 150));
      continue;
    }
    many.requests = 12;
    const int64_t tokens = many.channels == 128 ? 300 : 100;
    cases.push_back(crowded_tokens(CaseMaker(seeded(many, ++seed)).decode(), tokens));
  }
  return cases;
}

}  // namespace

std::vector<OpCase> compress_fwd_cases() {
  return entry_cases(false);
}
std::vector<OpCase> compress_state_write_cases() {
  std::vector<OpCase> cases;
  uint64_t seed = 30;
  for (const Setup& s : kSetups) {
    CaseMaker maker(seeded(s, ++seed));
    cases.push_back(written(maker.prefill(), maker.write_plan()));
  }
  cases.push_back(pitched(cases[1], "x", 3));
  cases.push_back(pitched(cases[1], "state", 4));
  OpCase wrong = cases[2];
  HostTensor& plan = wrong.inputs.at("write_plan");
  for (int64_t i = 0; i < plan.shape()[0]; i += 2)
    plan.set_value(2 * i + i / 2 % 2, static_cast<double>(70000 - i));
  wrong.label += " astray";
  cases.push_back(std::move(wrong));
  return cases;
}
std::vector<OpCase> compress_prefill_cases() {
  std::vector<OpCase> cases;
  uint64_t seed = 40;
  for (const Setup& s : kSetups) {
    CaseMaker maker(seeded(s, ++seed));
    cases.push_back(maker.prefill());
    cases.back().inputs["write_plan"] = maker.write_plan();
  }
  cases.push_back(pitched(cases[0], "x", 3));
  cases.push_back(pitched(cases[2], "state", 4));
  return cases;
}
std::vector<OpCase> compress_decode_cases() {
  return entry_cases(true);
}
std::vector<OpCase> compress_store_cases() {
  return store_cases(false);
}
std::vector<OpCase> compress_decode_store_cases() {
  return store_cases(true);
}

}  // namespace tessera::test
