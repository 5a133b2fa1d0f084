// The KV compressor through the lives of requests: however their tokens are cut into prefills, single
// tokens and steps that are taken back, the entries have the bits of one prefill of each request alone.

#include <algorithm>
#include <map>
#include <numeric>

#include "kernels/checks/value_check.h"
#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

constexpr int64_t kChannels = 128, kOutPage = 4;

struct Life {
  int64_t ratio, ring, max_rollback, page_size;
  int64_t requests, most_tokens;
  DType dtype;
  std::string format;
  int schedules;
};

HostTensors run(const std::string& op, const HostTensors& inputs, const Params& params) {
  return run_op(kernels::find_op(op), inputs, params, Device::cpu());
}

HostTensor rows_of(const HostTensor& from, const std::vector<int64_t>& rows) {
  const int64_t columns = from.shape()[1];
  HostTensor to(from.dtype(), {static_cast<int64_t>(rows.size()), columns});
  for (int64_t i = 0; i < to.size(); ++i) {
    const int64_t row = rows[static_cast<size_t>(i / columns)];
    if (row < 0) {
      to.set_value(i, NAN);
    } else {
      to.set_bits(i, from.bits(row * columns + i % columns));
    }
  }
  return to;
}

std::vector<uint64_t> bits_of_row(const HostTensor& tensor, int64_t row) {
  std::vector<uint64_t> bits;
  for (int64_t i = 0; i < tensor.shape()[1]; ++i) {
    bits.push_back(tensor.bits(row * tensor.shape()[1] + i));
  }
  return bits;
}

/// Requests with all tokens that they will ever have.
struct Requests {
  std::vector<HostTensor> rows;  // of each
  HostTensor ape, norm_weight, cos_sin;
  HostTensor state_table, page_table;

  Requests(const Life& life, Random& random) {
    const int64_t length = kChannels * (life.ratio == 4 ? 4 : 2);
    const int64_t room = life.most_tokens + life.max_rollback;
    for (int64_t b = 0; b < life.requests; ++b) {
      rows.push_back(random_tensor(life.dtype, {room, length}, Values::normal, random.next()));
    }
    const int64_t slots = life.ratio == 4 ? 8 : life.ratio;
    ape = random_tensor(DType::f32, {slots, kChannels}, Values::normal, random.next());
    norm_weight = random_tensor(DType::f32, {kChannels}, Values::normal, random.next());
    cos_sin = random_tensor(DType::f32, {room, 64}, Values::uniform, random.next());
    const int64_t pages = life.page_size > 0 ? room / life.page_size + 1 : 1;
    state_table = life.page_size > 0 ? table({life.requests, pages}) : table({life.requests});
    page_table = table({life.requests, room / life.ratio / kOutPage + 1});
  }

  static HostTensor table(const Dims& shape) {
    const int64_t size = num_elements(shape);
    return tensor_by(DType::i32, shape, [&](int64_t i) { return size - 1 - i; });
  }
};

/// State and cache, and what came out of the calls so far.
class Server {
 public:
  Server(const Life& life, const Requests& requests) : life_(life), requests_(&requests) {
    const int64_t slots = requests.state_table.size() * life.ring;
    state_ = HostTensor(life.dtype, {slots, requests.rows[0].shape()[1]});
    for (int64_t i = 0; i < state_.size(); ++i) state_.set_value(i, NAN);
    const int64_t bytes = life.format == "bf16" ? kChannels : 132 * kOutPage;
    const int64_t places = requests.page_table.size() * (life.format == "bf16" ? kOutPage : 1);
    cache_ = HostTensor(life.format == "bf16" ? DType::bf16 : DType::u8, {places, bytes},
                        {(bytes + 15) / 16 * 16, 1});
    for (int64_t i = 0; i < cache_.size(); ++i) cache_.set_bits(i, 0);
  }

  /// New tokens of every request from where it stands; `wrong` of them at the end are not its own.
  void prefill(const std::vector<int64_t>& starts, const std::vector<int64_t>& counts,
               const std::vector<int64_t>& wrong) {
    std::vector<int64_t> ends = {0};
    for (const int64_t count : counts) ends.push_back(ends.back() + count);
    if (ends.back() == 0) return;
    HostTensors tables = this->tables();
    tables["start"] = list(starts);
    tables["row_start"] = list(ends);
    Params params = plan_params();
    params["num_windows"] = ends.back() / life_.ratio + life_.requests;
    params["num_writes"] = ends.back();
    HostTensors planned = run("compress_plan", tables, params);
    const HostTensor x = gathered(starts, counts, wrong);
    const HostTensors in = {
        {"x", x}, {"ape", requests_->ape}, {"plan", planned.at("plan")}, {"state", state_}};
    store("compress_store", in);
    HostTensors both = in;
    both["write_plan"] = planned.at("write_plan");
    HostTensors out = run("compress_prefill", both, {{"ratio", life_.ratio}});
    state_ = out.at("state");
    keep(planned.at("plan"), out.at("out"), starts, counts, wrong);
  }

  /// One token of the requests whose position is not -1.
  void decode(const std::vector<int64_t>& positions) {
    HostTensors tables = this->tables();
    tables["positions"] = list(positions);
    const HostTensor plan = run("compress_plan_decode", tables, plan_params()).at("plan");
    std::vector<int64_t> counts, none(positions.size(), 0);
    for (const int64_t p : positions) counts.push_back(p < 0 ? 0 : 1);
    HostTensor x(life_.dtype, {life_.requests, state_.shape()[1]});
    for (int64_t b = 0; b < life_.requests; ++b) {
      const HostTensor row = rows_of(requests_->rows[index(b)], {positions[index(b)]});
      for (int64_t i = 0; i < row.size(); ++i) x.set_bits(b * row.size() + i, row.bits(i));
    }
    const HostTensors in = {{"x", x}, {"ape", requests_->ape}, {"plan", plan}, {"state", state_}};
    const HostTensor fused = store("compress_decode_store", in);
    HostTensors out = run("compress_decode", in, {{"ratio", life_.ratio}});
    state_ = out.at("state");
    REQUIRE(compare_bits(fused.view(), state_.view()).ok);
    keep(plan, out.at("out"), positions, counts, none);
  }

  using Entries = std::map<std::pair<int64_t, int64_t>, std::vector<uint64_t>>;
  const Entries& entries() const { return entries_; }  // by request and window
  const HostTensor& cache() const { return cache_; }

 private:
  static size_t index(int64_t i) { return static_cast<size_t>(i); }

  static HostTensor list(const std::vector<int64_t>& values) {
    return tensor_by(DType::i32, {static_cast<int64_t>(values.size())},
                     [&](int64_t i) { return values[index(i)]; });
  }

  HostTensors tables() const {
    return {{life_.page_size > 0 ? "state_pages" : "state_slot", requests_->state_table},
            {"page_table", requests_->page_table}};
  }

  Params plan_params() const {
    return {{"ratio", life_.ratio},
            {"ring", life_.ring},
            {"max_rollback", life_.max_rollback},
            {"state_page_size", life_.page_size},
            {"page_size", kOutPage}};
  }

  HostTensor gathered(const std::vector<int64_t>& starts, const std::vector<int64_t>& counts,
                      const std::vector<int64_t>& wrong) const {
    const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    HostTensor x(life_.dtype, {rows, state_.shape()[1]});
    int64_t at = 0;
    for (int64_t b = 0; b < life_.requests; ++b) {
      std::vector<int64_t> from(index(counts[index(b)]));
      std::iota(from.begin(), from.end(), starts[index(b)]);
      for (int64_t i = 0; i < wrong[index(b)]; ++i) from[from.size() - 1 - index(i)] = i;
      const HostTensor part = rows_of(requests_->rows[index(b)], from);
      for (int64_t i = 0; i < part.size(); ++i) x.set_bits(at + i, part.bits(i));
      at += part.size();
    }
    return x;
  }

  /// The entries of a call to the cache; returns the state of decode.
  HostTensor store(const std::string& op, HostTensors in) {
    in["norm_weight"] = requests_->norm_weight;
    in["cos_sin"] = requests_->cos_sin;
    in["cache"] = cache_;
    const Params params = {{"ratio", life_.ratio},
                           {"format", life_.format},
                           {"page_size", kOutPage},
                           {"hadamard", life_.format != "bf16"}};
    HostTensors out = run(op, in, params);
    cache_ = out.at("cache");
    return out.count("state") > 0 ? out.at("state") : HostTensor();
  }

  void keep(const HostTensor& plan, const HostTensor& out, const std::vector<int64_t>& starts,
            const std::vector<int64_t>& counts, const std::vector<int64_t>& wrong) {
    for (int64_t i = 0; i < plan.shape()[0]; ++i) {
      const auto field = [&](int64_t f) { return static_cast<int64_t>(plan.value(8 * i + f)); };
      const int64_t b = field(6), last = field(1);
      if (field(0) < 0 || last % life_.ratio != life_.ratio - 1) continue;
      if (last >= starts[index(b)] + counts[index(b)] - wrong[index(b)]) continue;
      entries_[{b, last / life_.ratio}] = bits_of_row(out, i);
    }
  }

  const Life life_;
  const Requests* requests_;
  HostTensor state_, cache_;
  Entries entries_;
};

/// A random life of all requests.
void live(const Life& life, Server& server, const std::vector<int64_t>& tokens, Random& random) {
  const size_t requests = tokens.size();
  std::vector<int64_t> at(requests, 0);
  while (at != tokens) {
    std::vector<int64_t> counts(requests, 0), wrong(requests, 0);
    const int64_t kind = random.below(life.max_rollback > 0 ? 3 : 2);
    if (kind == 0) {  // one token of each
      std::vector<int64_t> positions;
      for (size_t b = 0; b < requests; ++b) positions.push_back(at[b] < tokens[b] ? at[b] : -1);
      server.decode(positions);
      for (size_t b = 0; b < requests; ++b) at[b] += at[b] < tokens[b] ? 1 : 0;
      continue;
    }
    for (size_t b = 0; b < requests; ++b) {
      const int64_t left = tokens[b] - at[b];
      counts[b] = std::min(left, random.below(3 * life.ratio));
      if (kind == 2 && left > 0) {  // some of them are taken back
        wrong[b] = random.below(life.max_rollback + 1);
        counts[b] = std::min<int64_t>(left, 1) + wrong[b];
      }
    }
    server.prefill(at, counts, wrong);
    for (size_t b = 0; b < requests; ++b) at[b] += counts[b] - wrong[b];
  }
}

/// The bytes of an entry in two caches.
void check_entry(const Life& life, const Requests& requests, const HostTensor& want,
                 const HostTensor& got, int64_t b, int64_t window) {
  const int64_t columns = requests.page_table.shape()[1];
  const auto page =
      static_cast<int64_t>(requests.page_table.value(b * columns + window / kOutPage));
  const int64_t offset = window % kOutPage, bytes = want.shape()[1];
  const bool is_plain = life.format == "bf16";
  const int64_t row = is_plain ? page * kOutPage + offset : page;
  const auto check = [&](int64_t first, int64_t count) {
    bool equal = true;
    for (int64_t i = row * bytes + first; i < row * bytes + first + count; ++i) {
      equal = equal && got.bits(i) == want.bits(i);
    }
    REQUIRE(equal);
  };
  check(is_plain ? 0 : 128 * offset, 128);  // codes, or all channels
  if (!is_plain) check(128 * kOutPage + 4 * offset, 4);
}

void check_lives(const Life& life) {
  Random random(static_cast<uint64_t>(life.ring * 10 + life.page_size));
  for (int schedule = 0; schedule < life.schedules; ++schedule) {
    const Requests requests(life, random);
    std::vector<int64_t> tokens;
    for (int64_t b = 0; b < life.requests; ++b) {
      tokens.push_back(life.ratio + random.below(life.most_tokens - life.ratio));
    }
    Server server(life, requests), alone(life, requests);
    live(life, server, tokens, random);
    for (size_t b = 0; b < tokens.size(); ++b) {
      std::vector<int64_t> none(tokens.size(), 0), counts = none;
      counts[b] = tokens[b];
      alone.prefill(none, counts, none);
    }
    for (const auto& [name, bits] : alone.entries()) {
      CAPTURE(schedule, name.first, name.second);
      const auto found = server.entries().find(name);
      REQUIRE(found != server.entries().end());
      REQUIRE(found->second == bits);
    }
    // Every entry of a request lies where it lies after one prefill; others were never its own.
    for (int64_t b = 0; b < life.requests; ++b) {
      for (int64_t i = 0; i < tokens[static_cast<size_t>(b)] / life.ratio; ++i) {
        check_entry(life, requests, alone.cache(), server.cache(), b, i);
      }
    }
  }
}

}  // namespace

TEST_CASE("entries of ratio 4 have the same bits however requests are cut into calls",
          "[compressor_schedules]") {
  check_lives({4, 8, 0, 0, 3, 40, DType::f32, "index_fp8", 6});
  check_lives({4, 16, 9, 0, 2, 40, DType::bf16, "bf16", 6});
  check_lives({4, 8, 1, 16, 3, 40, DType::bf16, "index_fp8", 6});
}

TEST_CASE("entries of ratio 128 have the same bits however requests are cut into calls",
          "[compressor_schedules]") {
  check_lives({128, 128, 1, 0, 2, 330, DType::bf16, "index_fp8", 1});
  check_lives({128, 256, 8, 256, 2, 330, DType::f32, "bf16", 1});
}

TEST_CASE("a request whose ring is not there gets no entry, and others get theirs",
          "[compressor_schedules]") {
  const kernels::UncheckedValues as_on_a_gpu;
  const Life life = {4, 8, 0, 0, 3, 20, DType::f32, "bf16", 1};
  Random random(3);
  const Requests whole(life, random);
  Requests lacking = whole;
  lacking.state_table.set_value(1, -1);
  lacking.page_table.set_value(0, 90000);  // beyond the cache
  Server want(life, whole), got(life, lacking);
  for (Server* server : {&want, &got}) {
    server->prefill({0, 0, 0}, {6, 6, 6}, {0, 0, 0});
    server->prefill({6, 6, 6}, {6, 6, 6}, {0, 0, 0});
  }
  for (const auto& [name, bits] : want.entries()) {
    CAPTURE(name.first, name.second);
    const auto found = got.entries().find(name);
    // The first window of a request has all its rows in one call; the others need its ring.
    const bool needs_ring = name.first == 1 && name.second > 0;
    REQUIRE((found == got.entries().end()) == needs_ring);
    if (!needs_ring) CHECK(found->second == bits);
  }
  for (int64_t window = 0; window < 3; ++window) {
    check_entry(life, whole, want.cache(), got.cache(), 2, window);
  }
}
