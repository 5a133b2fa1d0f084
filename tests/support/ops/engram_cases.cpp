// Cases of the Engram ops: sizes of models and odd ones, products that wrap, moduli of every kind.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

OpCase hash_case(int64_t tokens, int64_t layers, int64_t ngram, int64_t tables,
                 const std::string& form) {
  Random random(11);
  const auto fill = [&](HostTensor& tensor, int64_t least, int64_t bound) {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      tensor.set_bits(i, static_cast<uint64_t>(least + random.below(bound)));
    }
  };
  const int64_t columns = (ngram - 1) * tables;
  HostTensor ids(DType::i32, {tokens, ngram}), multipliers(DType::i64, {layers, ngram});
  HostTensor sizes(DType::i32, {layers, ngram - 1, tables}), offsets(DType::i32, {layers, columns});
  const bool hard = form != "plain";
  fill(ids, hard ? -100'000 : 0, 200'000);
  fill(sizes, 100'000, 900'000);
  fill(offsets, 0, 10'000'000);
  if (hard) {
    for (int64_t i = 0; i < multipliers.size(); ++i) multipliers.set_bits(i, random.next());
    for (int64_t i = 0; i < sizes.size(); i += 3) sizes.set_value(i, i % 2 == 0 ? 1 : 2147483647.0);
    for (int64_t i = 1; i < offsets.size(); i += 3) offsets.set_value(i, 2147483647.0);
    for (int64_t i = 0; i < ids.size(); i += 5) ids.set_value(i, i % 2 == 0 ? -2147483648.0 : -1);
  } else {
    fill(multipliers, 0, 100'000);
  }
  if (form == "sizes out of range") {
    for (int64_t i = 1; i < sizes.size(); i += 2) sizes.set_value(i, i % 4 == 1 ? 0 : -5.0);
  }
  OpCase test;
  test.label = fmt::format("T={} L={} N={} J={} {}", tokens, layers, ngram, tables, form);
  test.inputs = {{"ngram_token_ids", std::move(ids)},
                 {"multipliers", std::move(multipliers)},
                 {"vocab_sizes", std::move(sizes)},
                 {"offsets", std::move(offsets)}};
  return test;
}

OpCase gate_case(const Dims& tokens, int64_t streams, int64_t hidden, bool save) {
  const auto shape = [&](std::initializer_list<int64_t> others) {
    Dims dims = tokens;
    for (const int64_t extent : others) dims.push_back(extent);
    return dims;
  };
  OpCase test;
  test.label =
      fmt::format("{} hc={} D={}{}", to_string(tokens), streams, hidden, save ? " saving" : "");
  test.inputs["hidden_states"] =
      random_tensor(DType::bf16, shape({streams, hidden}), Values::normal, 1);
  test.inputs["k"] = random_tensor(DType::bf16, shape({streams, hidden}), Values::normal, 2);
  test.inputs["v"] = random_tensor(DType::bf16, shape({hidden}), Values::normal, 3);
  test.inputs["weight_fused"] = random_tensor(DType::f32, {streams, hidden}, Values::normal, 4);
  test.params = {{"eps", 1e-20}, {"save_for_backward", save}};
  // 2e-10 at thousands of tokens; here one element that rounds the other way is already 1.5e-9.
  test.tolerance = Tolerance{0, 0, 5e-9};
  return test;
}

OpCase with_strides(OpCase test, const std::string& name, const Dims& strides) {
  const HostTensor& old = test.inputs.at(name);
  HostTensor placed(old.dtype(), old.shape(), strides);
  for (int64_t i = 0; i < old.size(); ++i) placed.set_bits(i, old.bits(i));
  test.label += fmt::format(" {} strides {}", name, to_string(strides));
  test.inputs[name] = std::move(placed);
  return test;
}

/// Every third token is one of an image; its rows of k and v hold a NaN and an infinity.
OpCase with_image(OpCase test) {
  const Dims& rows = test.inputs.at("v").shape();
  Dims tokens = rows;
  --tokens.rank;
  HostTensor mask(DType::boolean, tokens);
  const int64_t hidden = rows[rows.rank - 1], streams = test.inputs.at("k").shape()[rows.rank - 1];
  for (int64_t t = 0; t < mask.size(); ++t) {
    mask.set_bits(t, t % 3 == 1 ? 1 : 0);
    if (t % 3 != 1) continue;
    const int64_t first = t * streams * hidden;
    test.inputs.at("k").set_value(first + 3, std::nan(""));
    test.inputs.at("v").set_value(t * hidden + 1, std::numeric_limits<double>::infinity());
    test.inputs.at("hidden_states").set_value(first + hidden - 1, -0.0);
  }
  test.label += " image tokens";
  test.inputs["image_token_mask"] = std::move(mask);
  return test;
}

/// Whole numbers from -bound to bound: any order of summing their products gives the same bits.
HostTensor whole_numbers(const Dims& shape, int64_t bound, uint64_t seed) {
  HostTensor tensor(DType::bf16, shape);
  Random random(seed);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set_value(i, static_cast<double>(random.below(2 * bound + 1) - bound));
  }
  return tensor;
}

/// With what the forward pass saves for the rows of gate_case.
OpCase gate_bwd_case(const Dims& tokens, int64_t hidden, int64_t partials) {
  OpCase test = gate_case(tokens, 4, hidden, true);
  HostTensors saved = reference::runner("engram_gate_fwd")(test.inputs, {{"eps", 1e-20}});
  saved.erase("out");
  test.inputs.merge(saved);
  test.inputs["grad_out"] = whole_numbers(test.inputs.at("k").shape(), 8, 5);
  test.inputs["v"] = whole_numbers(test.inputs.at("v").shape(), 4, 6);
  test.params = {{"num_persistent_blocks", partials}};
  test.tolerance.reset();
  test.label = fmt::format("{} D={} partials={}", to_string(tokens), hidden, partials);
  return test;
}

}  // namespace

std::vector<OpCase> engram_gate_bwd_cases() {
  std::vector<OpCase> cases;
  // One kernel up to 7168 columns, then two, whose last run of columns may lie past the row.
  for (const int64_t hidden :
       {512, 1024, 1536, 2048, 2560, 3072, 4096, 4608, 6144, 7168, 7680, 8192, 8704, 16384}) {
    cases.push_back(gate_bwd_case({3}, hidden, 2));
  }
  cases.push_back(gate_bwd_case({1}, 512, 1));
  cases.push_back(gate_bwd_case({17}, 512, 5));   // the last partial has one token of four
  cases.push_back(gate_bwd_case({17}, 512, 16));  // runs of two: half of the partials are empty
  cases.push_back(gate_bwd_case({5}, 512, 7));
  cases.push_back(gate_bwd_case({5}, 7680, 7));
  cases.push_back(gate_bwd_case({40}, 512, 1));
  cases.push_back(gate_bwd_case({2, 5}, 512, 3));
  cases.push_back(gate_bwd_case({0}, 512, 3));
  cases.push_back(gate_bwd_case({0}, 7680, 1));
  for (const int64_t hidden : {1024, 7680}) {
    const OpCase plain = gate_bwd_case({6}, hidden, 4);
    cases.push_back(with_strides(plain, "k", {5 * hidden, hidden + 256, 1}));
    cases.push_back(with_strides(plain, "k", {hidden, 6 * hidden, 1}));
    cases.push_back(with_strides(plain, "k", {4 * hidden + 4, hidden + 1, 1}));  // not aligned
    cases.push_back(with_strides(plain, "v", {hidden + 4, 1}));
    OpCase clamped = plain;
    clamped.label += " clamped";
    clamped.params["clamp_value"] = 100.0;
    cases.push_back(std::move(clamped));
    OpCase some = plain;  // scores on both sides
    some.label += " some clamped";
    some.params["clamp_value"] = 0.02;
    cases.push_back(std::move(some));
    OpCase wild = plain;  // saved scores of any size, subnormal, infinite, no numbers
    wild.label += " wild scores";
    for (const char* name : {"dot", "gate_score", "rstd_x", "rstd_k"}) {
      fill_random(wild.inputs[name], Values::nasty, 31);
    }
    fill_random(wild.inputs["dot"], Values::normal, 32);
    cases.push_back(std::move(wild));
    OpCase nan = plain;
    nan.label += " NaN and infinity";
    nan.inputs["hidden_states"].set_value(100, std::nan(""));
    nan.inputs["k"].set_value(5 * hidden + 7, std::numeric_limits<double>::infinity());
    nan.inputs["grad_out"].set_value(10 * hidden + 3, std::nan(""));
    nan.inputs["dot"].set_value(15, std::nan(""));
    nan.inputs["gate_score"].set_value(18, std::nan(""));
    cases.push_back(std::move(nan));
  }
  OpCase tie = gate_bwd_case({3}, 1024, 1);  // |dot| / 32 against the clamp
  tie.label += " scores at the clamp";
  const double dots[] = {8,    -8,    0,        -0.0,      7.75, -7.75,
                         8.25, -8.25, 0x1p-140, -0x1p-140, 1e30, -1e30};
  for (int64_t i = 0; i < 12; ++i) {
    tie.inputs["dot"].set_value(i, dots[i]);
    tie.inputs["rstd_x"].set_value(i, 1);
    tie.inputs["rstd_k"].set_value(i, 1);
  }
  tie.params["clamp_value"] = 0.25;
  cases.push_back(tie);
  tie.label += " of 0";
  tie.params["clamp_value"] = 0.0;  // dot = 0 divides by it
  cases.push_back(std::move(tie));
  OpCase cancelling = gate_bwd_case({2}, 512, 1);  // bf16 shows each rounding of grad_v
  cancelling.label += " streams that cancel";
  HostTensor& grad_out = cancelling.inputs["grad_out"];
  HostTensor& gates = cancelling.inputs["gate_score"];
  const double large[] = {0x1p30, 1, -0x1p30, 1};
  for (int64_t i = 0; i < 4 * 512; ++i) grad_out.set_value(i, large[i / 512]);
  for (int64_t stream = 0; stream < 4; ++stream) gates.set_value(stream, 1);
  for (int64_t i = 0; i < 512; ++i) {
    grad_out.set_value(5 * 512 + i, -grad_out.value(4 * 512 + i));
    grad_out.set_value(6 * 512 + i, 0);
    grad_out.set_value(7 * 512 + i, 0);
  }
  gates.set_bits(5, gates.bits(4));
  cases.push_back(std::move(cancelling));
  for (const int64_t width : {1024, 7168, 7680}) {
    OpCase image = with_image(gate_bwd_case({7}, width, 3));
    for (const char* name :
         {"dot", "gate_score", "rstd_x", "rstd_k"}) {  // not what was saved: unread
      for (int64_t i = 4; i < 8; ++i) image.inputs[name].set_value(i, std::nan(""));
    }
    image.inputs["hidden_states"].set_value(4 * width + 7, std::nan(""));
    image.inputs["grad_out"].set_value(4 * width + 2, std::nan(""));
    image.inputs["grad_out"].set_value(4 * width + 9, -0.0);
    cases.push_back(std::move(image));
  }
  cases.push_back(with_image(gate_bwd_case({2, 5}, 512, 3)));
  OpCase inexact = gate_bwd_case({9}, 2560, 4);  // sums over the row round
  inexact.label += " normal";
  fill_random(inexact.inputs["grad_out"], Values::normal, 33);
  fill_random(inexact.inputs["v"], Values::normal, 34);
  inexact.tolerance = Tolerance{0, 0, 1e-8};
  cases.insert(cases.begin(), std::move(inexact));
  return cases;
}

std::vector<OpCase> grad_w_reduce_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](int64_t partials, int64_t streams, int64_t hidden, Values values,
                       bool hidden_given, bool embed_given) {
    OpCase test;
    test.label = fmt::format(
        "Z={} hc={} D={}{}{}{}", partials, streams, hidden, values == Values::nasty ? " nasty" : "",
        hidden_given ? " added to hidden" : "", embed_given ? " added to embed" : "");
    const Dims weights = {streams, hidden};
    test.inputs = {
        {"grad_w_partial", random_tensor(DType::f32, {partials, streams, hidden}, values, 1)},
        {"weight_hidden", random_tensor(DType::bf16, weights, values, 2)},
        {"weight_embed", random_tensor(DType::bf16, weights, values, 3)}};
    const auto gradient = [&](uint64_t seed) {
      return random_tensor(DType::f32, weights, values, seed);
    };
    if (hidden_given) test.inputs["grad_weight_hidden"] = gradient(4);
    if (embed_given) test.inputs["grad_weight_embed"] = gradient(5);
    cases.push_back(std::move(test));
  };
  for (const int64_t hidden : {2048, 2560, 3072, 4096, 6144, 7168}) {
    add(132, 4, hidden, Values::normal, true, true);
  }
  for (const int64_t partials : {1, 2, 65, 66, 67, 133}) {
    add(partials, 2, 100, Values::normal, true, true);
  }
  add(5, 4, 512, Values::normal, false, false);
  add(5, 4, 512, Values::normal, true, false);
  add(5, 4, 512, Values::normal, false, true);
  add(3, 3, 33, Values::nasty, true, true);
  add(7, 1, 1, Values::normal, true, true);
  add(5, 0, 512, Values::normal, true, true);
  add(5, 4, 0, Values::normal, false, false);
  return cases;
}

std::vector<OpCase> fused_weight_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](int64_t streams, int64_t hidden, Values values, const char* form) {
    OpCase test;
    test.label = fmt::format("hc={} D={} {}", streams, hidden, form);
    test.inputs = {{"weight_hidden", random_tensor(DType::bf16, {streams, hidden}, values, 1)},
                   {"weight_embed", random_tensor(DType::bf16, {streams, hidden}, values, 2)}};
    cases.push_back(std::move(test));
  };
  for (const int64_t hidden : {256, 768, 2048, 2560, 3072, 4096, 6144, 7168}) {
    add(4, hidden, Values::normal, "normal");
  }
  add(1, 512, Values::nasty, "nasty");  // products that overflow, are subnormal or no numbers
  add(7, 1024, Values::bits, "any bits");
  add(0, 256, Values::normal, "without streams");
  add(3, 0, Values::normal, "without columns");
  return cases;
}

std::vector<OpCase> engram_ngram_ids_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const std::vector<int64_t>& lengths, int64_t ngram, DType dtype,
                       bool history, int64_t padding = 0) {
    Random random(cases.size() + 21);
    const auto batch = std::ssize(lengths);
    HostTensor row_start(DType::i32, {batch + 1});
    int64_t rows = 0;
    for (int64_t b = 0; b < batch; ++b) {
      row_start.set_value(b, static_cast<double>(rows));
      rows += lengths[static_cast<size_t>(b)];
    }
    row_start.set_value(batch, static_cast<double>(rows));
    HostTensor ids(dtype, {rows + padding}), before(DType::i32, {batch, ngram - 1});
    const auto fill = [&](HostTensor& tensor) {
      for (int64_t i = 0; i < tensor.size(); ++i) {
        const int64_t ends[] = {-1, INT32_MIN, INT32_MAX, random.below(130'000)};
        tensor.set_value(i, static_cast<double>(ends[std::min<int64_t>(random.below(12), 3)]));
      }
    };
    fill(ids);
    fill(before);
    OpCase test;
    test.label = fmt::format("B={} T={} N={} {}{}", batch, rows + padding, ngram, name(dtype),
                             history ? " history" : "");
    test.inputs = {{"token_ids", std::move(ids)}, {"row_start", std::move(row_start)}};
    if (history) test.inputs["history"] = std::move(before);
    test.params["ngram_size"] = ngram;
    if (cases.size() % 3 == 1) test.params["pad_id"] = int64_t{7};
    cases.push_back(std::move(test));
  };
  for (const DType dtype : {DType::i32, DType::i64}) {
    for (const bool history : {false, true}) {
      for (const int64_t ngram : {1, 2, 3, 5}) {
        add({4, 1, 0, 9, 2}, ngram, dtype, history);
        add({1, 1, 1}, ngram, dtype, history, 2);
      }
      add({0, 0}, 3, dtype, history);
      add({0, 3}, 4, dtype, history, 1);
      add({}, 3, dtype, history, 4);
      add({}, 3, dtype, history);
      add({300, 0, 1, 212}, 3, dtype, history);
      add(std::vector<int64_t>(270, 1), 3, dtype, history);
    }
  }
  for (const int64_t wrong : {0, 1, 2}) {  // a first row, an end, and rows before the batch
    OpCase test = cases[wrong == 1 ? 4 : 12];
    HostTensor& row_start = test.inputs["row_start"];
    row_start.set_value(wrong == 1 ? row_start.size() - 1 : 0, wrong == 0   ? 2
                                                               : wrong == 1 ? 99
                                                                            : -5);
    test.label += " rows out of range";
    cases.push_back(std::move(test));
  }
  return cases;
}

std::vector<OpCase> engram_embed_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](int64_t tokens, int64_t ngram, int64_t tables, int64_t columns,
                       DType dtype) {
    Random random(cases.size() + 31);
    const int64_t entries = (ngram - 1) * tables;
    HostTensor ids(DType::i32, {tokens, ngram}), multipliers(DType::i64, {ngram});
    HostTensor sizes(DType::i32, {ngram - 1, tables}), offsets(DType::i32, {entries});
    for (int64_t i = 0; i < ids.size(); ++i) {
      ids.set_value(i, static_cast<double>(random.below(100'000) - 10));
    }
    for (int64_t i = 0; i < ngram; ++i) multipliers.set_bits(i, random.next());
    int64_t rows = 0;
    for (int64_t i = 0; i < entries; ++i) {
      sizes.set_value(i, static_cast<double>(random.below(40) + 1));
      offsets.set_value(i, static_cast<double>(rows));
      rows += static_cast<int64_t>(sizes.value(i));
    }
    OpCase test;
    test.label = fmt::format("T={} N={} J={} D={} {}", tokens, ngram, tables, columns, name(dtype));
    test.inputs = {{"ngram_token_ids", std::move(ids)},
                   {"multipliers", std::move(multipliers)},
                   {"vocab_sizes", std::move(sizes)},
                   {"offsets", std::move(offsets)},
                   {"table", random_tensor(dtype, {rows + 1, columns}, Values::bits, 32)}};
    cases.push_back(std::move(test));
  };
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const int64_t columns : {1, 2, 7, 8, 40, 64, 160, 264, 600}) add(5, 3, 4, columns, dtype);
    add(37, 3, 8, 64, dtype);
    add(3, 12, 3, 16, dtype);
    add(4, 2, 1, 32, dtype);
    add(0, 3, 8, 64, dtype);
    add(3, 1, 8, 64, dtype);
    cases.push_back(with_strides(cases[5], "table", {72, 1}));
    cases.push_back(with_strides(cases[5], "table", {68, 1}));
    cases.push_back(with_strides(cases[5], "table", {67, 1}));
  }
  OpCase wrong = cases[5];
  wrong.label += " sizes and offsets out of range";
  const auto rows = static_cast<double>(wrong.inputs["table"].shape()[0]);
  wrong.inputs["vocab_sizes"].set_value(1, 0);
  wrong.inputs["vocab_sizes"].set_value(2, -3);
  wrong.inputs["vocab_sizes"].set_value(3, 2147483647);
  wrong.inputs["offsets"].set_value(4, -1);
  wrong.inputs["offsets"].set_value(5, rows);
  wrong.inputs["offsets"].set_value(6, 2147483647);
  cases.push_back(std::move(wrong));
  return cases;
}

std::vector<OpCase> engram_make_offsets_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](int64_t layers, int64_t ngram, int64_t tables, int64_t least, int64_t most) {
    Random random(12);
    HostTensor sizes(DType::i32, {layers, ngram - 1, tables});
    for (int64_t i = 0; i < sizes.size(); ++i) {
      sizes.set_bits(i, static_cast<uint64_t>(least + random.below(most - least + 1)));
    }
    OpCase test;
    test.label = fmt::format("L={} N={} J={} sizes {} .. {}", layers, ngram, tables, least, most);
    test.inputs = {{"vocab_sizes", std::move(sizes)}};
    cases.push_back(std::move(test));
  };
  add(2, 3, 8, 100'000, 1'000'000);
  add(1, 2, 1, 7, 7);
  add(3, 5, 3, 1, 1);
  add(2, 2, 255, 1, 1000);  // one less than a run, a run, one more
  add(2, 3, 128, 1, 1000);
  add(2, 2, 257, 1, 1000);
  add(3, 4, 400, 1, 2'000'000);                   // several runs, sums beyond 2^31
  add(2, 3, 300, -2'147'483'648, 2'147'483'647);  // sums wrap
  add(0, 3, 8, 1, 9);
  add(2, 1, 8, 1, 9);  // no order
  add(2, 3, 0, 1, 9);
  return cases;
}

std::vector<OpCase> engram_hash_cases() {
  std::vector<OpCase> cases;
  for (const std::string form : {"plain", "wrapping", "sizes out of range"}) {
    cases.push_back(hash_case(301, 2, 3, 8, form));
    cases.push_back(hash_case(7, 1, 2, 1, form));
    cases.push_back(hash_case(33, 3, 5, 3, form));
    cases.push_back(hash_case(3, 2, 12, 5, form));  // more ids than are unrolled
  }
  cases.push_back(hash_case(0, 2, 3, 8, "plain"));
  cases.push_back(hash_case(4, 0, 3, 8, "plain"));
  cases.push_back(hash_case(4, 2, 1, 8, "plain"));  // no order to hash
  cases.push_back(hash_case(4, 2, 3, 0, "plain"));
  for (const int64_t tokens : {0, 1, 33}) {
    OpCase image = hash_case(tokens, 2, 3, 8, "wrapping");
    HostTensor mask(DType::boolean, {tokens});
    for (int64_t t = 0; t < tokens; ++t) mask.set_bits(t, t % 3 == 0 ? 1 : 0);
    image.label += " image tokens";
    image.inputs["image_token_mask"] = std::move(mask);
    cases.push_back(std::move(image));
  }
  return cases;
}

std::vector<OpCase> engram_gate_fwd_cases() {
  std::vector<OpCase> cases;
  for (const int64_t hidden : {512, 768, 2048, 2560, 3072, 3328, 4096, 6144, 7168}) {
    cases.push_back(gate_case({3}, 4, hidden, hidden % 1024 != 0));
  }
  cases.push_back(gate_case({2}, 4, 9472, true));
  cases.push_back(gate_case({17}, 3, 512, true));
  cases.push_back(gate_case({33}, 1, 512, false));
  cases.push_back(gate_case({2, 5}, 4, 512, true));
  cases.push_back(gate_case({0}, 4, 512, true));
  cases.push_back(gate_case({1300}, 4, 512, true));  // several tokens per block
  const OpCase plain = gate_case({6}, 4, 1024, true);
  cases.push_back(with_strides(plain, "k", {5120, 1280, 1}));
  cases.push_back(with_strides(plain, "k", {1024, 6144, 1}));  // streams outside of tokens
  cases.push_back(with_strides(plain, "k", {4100, 1025, 1}));  // rows that are not aligned
  cases.push_back(with_strides(plain, "v", {1032, 1}));
  cases.push_back(with_strides(gate_case({2, 3}, 2, 512, true), "k", {4800, 1600, 800, 1}));
  OpCase uneven = with_strides(gate_case({2, 3}, 2, 512, true), "v", {2048, 512, 1});
  uneven.may_be_unsupported = true;
  cases.push_back(std::move(uneven));
  for (const bool save : {false, true}) {
    cases.push_back(with_image(gate_case({7}, 4, 7168, save)));
    cases.push_back(with_image(gate_case({2, 5}, 3, 768, save)));
  }
  cases.push_back(with_image(gate_case({1300}, 2, 512, true)));
  OpCase clamped = plain;  // scores far below the clamp: only the sign of u is left
  clamped.label += " clamped";
  clamped.params["clamp_value"] = 100.0;
  clamped.params["eps"] = 0.5;
  cases.push_back(std::move(clamped));
  OpCase zeros = plain;  // u = +0 gives the positive root
  zeros.label += " rows of zeros";
  for (int64_t i = 0; i < 1024; ++i) {
    zeros.inputs["hidden_states"].set_value(i, 0);
    zeros.inputs["k"].set_value(5 * 1024 + i, 0);
  }
  zeros.params["clamp_value"] = 0.25;
  zeros.params["eps"] = 1e-6;
  cases.push_back(std::move(zeros));
  return cases;
}

}  // namespace tessera::test
