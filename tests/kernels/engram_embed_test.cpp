// engram_ngram_ids and engram_embed on the executor: the references, the chain that the second stands for, a
// sequence cut in any places, the mistakes that the cases catch, what bad calls are told.

#include <algorithm>

#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const kernels::UncheckedValues as_on_a_gpu;
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

HostTensors embedding(int64_t orders, int64_t offsets, int64_t rows) {
  return {{"ngram_token_ids", HostTensor(DType::i32, {5, orders + 1})},
          {"multipliers", HostTensor(DType::i64, {orders + 1})},
          {"vocab_sizes", HostTensor(DType::i32, {orders, 4})},
          {"offsets", HostTensor(DType::i32, {offsets})},
          {"table", HostTensor(DType::bf16, {rows, 64})}};
}

}  // namespace

TEST_CASE("engram_ngram_ids equals its reference on the executor", "[engram_ngram_ids]") {
  check_cases("engram_ngram_ids", engram_ngram_ids_cases());
}

TEST_CASE("engram_embed equals its reference on the executor", "[engram_embed]") {
  check_cases("engram_embed", engram_embed_cases());
}

TEST_CASE("a sequence has the same n-grams wherever calls cut it", "[engram_ngram_ids]") {
  constexpr int64_t kLength = 23, kNgram = 4;
  const Params params = {{"ngram_size", int64_t{kNgram}}};
  const auto run = [&](const HostTensors& in) {
    return op_runner("engram_ngram_ids", Device::cpu())(in, params);
  };
  const auto ids = [](int64_t first, int64_t count) {
    return tensor_by(DType::i32, {count}, [=](int64_t i) { return 100 + first + i; });
  };
  const HostTensor none = tensor_of(DType::i32, {1, kNgram - 1}, {-1});
  const HostTensors whole = run({{"token_ids", ids(0, kLength)},
                                 {"row_start", tensor_of(DType::i32, {2}, {0, kLength})},
                                 {"history", none}});
  HostTensor history = none;
  int64_t first = 0;
  for (const int64_t count : {1, 2, 0, 7, 1, 1, 3, 8}) {
    const HostTensors part =
        run({{"token_ids", ids(first, count)},
             {"row_start", tensor_of(DType::i32, {2}, {0, static_cast<double>(count)})},
             {"history", history}});
    for (int64_t i = 0; i < count * kNgram; ++i) {
      REQUIRE(part.at("ngram_token_ids").bits(i) ==
              whole.at("ngram_token_ids").bits(first * kNgram + i));
    }
    history = part.at("next_history");
    first += count;
  }
  CHECK(first == kLength);
  for (int64_t i = 0; i < history.size(); ++i) {
    CHECK(history.bits(i) == whole.at("next_history").bits(i));
  }
}

TEST_CASE("engram_embed is the chain of engram_hash and a gather", "[engram_embed]") {
  const OpCase test = engram_embed_cases()[9];  // 37 tokens
  HostTensors one = test.inputs;
  const auto layer = [&](const char* name, Dims shape) {
    HostTensor whole(one[name].dtype(), shape);
    for (int64_t i = 0; i < whole.size(); ++i) whole.set_bits(i, one[name].bits(i));
    return whole;
  };
  const HostTensors rows =
      op_runner("engram_hash", Device::cpu())({{"ngram_token_ids", one["ngram_token_ids"]},
                                               {"multipliers", layer("multipliers", {1, 3})},
                                               {"vocab_sizes", layer("vocab_sizes", {1, 2, 8})},
                                               {"offsets", layer("offsets", {1, 16})}},
                                              {});
  const HostTensors out = op_runner("engram_embed", Device::cpu())(test.inputs, {});
  const HostTensor& table = one["table"];
  const int64_t columns = table.shape()[1];
  REQUIRE(out.at("out").shape() == Dims{37, 16 * columns});
  for (int64_t i = 0; i < out.at("out").size(); ++i) {
    const auto row = static_cast<int64_t>(rows.at("out").value(i / columns));
    REQUIRE(out.at("out").bits(i) == table.bits(row * columns + i % columns));
  }
}

TEST_CASE("the tests of n-grams and their rows catch every mutant",
          "[engram_ngram_ids][engram_embed][mutants]") {
  const std::string op = "engram_ngram_ids";
  const auto cases = engram_ngram_ids_cases();
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  CHECK(caught([](HostTensors&, Params& params) { params.erase("pad_id"); }));
  CHECK(caught([](HostTensors& in, Params&) {  // one request of all rows
    HostTensor& row_start = in["row_start"];
    for (int64_t b = 1; b + 1 < row_start.size(); ++b) row_start.set_bits(b, 0);
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // the history newest first
    if (!in.contains("history")) return;
    HostTensor& history = in["history"];
    const int64_t ids = history.shape()[1];
    for (int64_t i = 0; i < history.size(); ++i) {
      const int64_t other = i / ids * ids + ids - 1 - i % ids;
      if (other <= i) continue;
      const uint64_t bits = history.bits(i);
      history.set_bits(i, history.bits(other));
      history.set_bits(other, bits);
    }
  }));
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors& in, HostTensors& out) {
                    if (in.contains("history")) out["next_history"] = in.at("history");
                  })));
  CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors&, HostTensors& out) {  // oldest first
                    HostTensor& ids = out["ngram_token_ids"];
                    const int64_t ngram = ids.shape()[1];
                    for (int64_t i = 0; i + ngram <= ids.size(); i += ngram) {
                      const uint64_t bits = ids.bits(i);
                      ids.set_bits(i, ids.bits(i + ngram - 1));
                      ids.set_bits(i + ngram - 1, bits);
                    }
                  })));
  const std::string embed = "engram_embed";
  const auto embed_cases = engram_embed_cases();
  const auto embed_caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(embed, embed_cases, misled(embed, mistake));
  };
  CHECK_FALSE(embed_caught([](HostTensors&, Params&) {}));
  CHECK(embed_caught([](HostTensors& in, Params&) { in["offsets"].fill_bytes(std::byte{0}); }));
  CHECK(embed_caught([](HostTensors& in, Params&) {  // the last column does not count
    HostTensor& multipliers = in["multipliers"];
    if (multipliers.size() > 0) multipliers.set_bits(multipliers.size() - 1, 0);
  }));
  CHECK(embed_caught([](HostTensors& in, Params&) {  // multipliers of 32 bits
    HostTensor& multipliers = in["multipliers"];
    for (int64_t i = 0; i < multipliers.size(); ++i) {
      multipliers.set_bits(i, multipliers.bits(i) & 0xFFFFFFFF);
    }
  }));
}

TEST_CASE("engram_ngram_ids and engram_embed explain wrong arguments",
          "[engram_ngram_ids][engram_embed][errors]") {
  const auto told = [](const Dims& history, int64_t ngram) {
    return outputs_error("engram_ngram_ids",
                         {{"token_ids", HostTensor(DType::i32, {7})},
                          {"row_start", HostTensor(DType::i32, {3})},
                          {"history", HostTensor(DType::i32, history)}},
                         {{"ngram_size", ngram}});
  };
  CHECK(told({2, 2}, 3) == "no error");
  CHECK(told({2, 3}, 3) ==
        "tessera: engram_ngram_ids: argument 'history' has the wrong shape\n"
        "  expected  i32[2, 2]   (B = 2 = B+1 = 3 of row_start dim 0; N-1 = 2)\n"
        "  got       i32[2, 3] on cpu");
  CHECK(told({2, 64}, 65) ==
        "tessera: engram_ngram_ids: parameter 'ngram_size' is out of range\n"
        "  expected  1 <= ngram_size <= 64\n"
        "  got       ngram_size = 65");
  CHECK(outputs_error("engram_embed", embedding(2, 8, 90), {}) == "no error");
  CHECK(outputs_error("engram_embed", embedding(2, 9, 90), {}) ==
        "tessera: engram_embed: argument 'offsets' has the wrong shape\n"
        "  expected  i32[8]   ((N-1)*J = 8)\n"
        "  got       i32[9] on cpu");
  CHECK(outputs_error("engram_embed", embedding(2, 8, 0), {}) ==
        "tessera: engram_embed: argument 'table' has no rows\n"
        "  expected  V >= 1\n"
        "  got       V = 0 from table dim 0");
}
