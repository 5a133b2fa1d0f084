// Cases of swiglu_backward_and_per_token_cast: rows and entries that own each other, padding, rows
// and entries that disagree or are not there, values that are clamped, NaN and large codes.

#include <fmt/format.h>

#include <optional>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

struct Form {
  int64_t rows = 37, hidden = 256, tokens = 11, topk = 3, group = 128;
  bool round_sf = false;
  std::optional<double> clamp = {};
};

/// Row 5 i + 2 holds entry i, the other rows are padding; an entry whose row would lie outside has
/// none.
void map_rows(OpCase& test, int64_t rows, int64_t tokens, int64_t topk) {
  HostTensor slots(DType::i32, {rows}), positions(DType::i32, {tokens, topk});
  for (int64_t r = 0; r < rows; ++r) slots.set_value(r, r % 3 == 0 ? -1 : -9);
  for (int64_t e = 0; e < positions.size(); ++e) {
    const int64_t row = (5 * e + 2) % 37;
    const bool is_here = row < rows;
    positions.set_value(e, is_here ? static_cast<double>(row) : -1 - static_cast<double>(e % 2));
    if (is_here) slots.set_value(row, static_cast<double>(e));
  }
  test.inputs["pos_to_token_topk"] = std::move(slots);
  test.inputs["token_topk_to_pos"] = std::move(positions);
}

OpCase make_case(const std::string& label, const Form& form) {
  OpCase test;
  test.label = fmt::format("{} {} x {} / {}{}{}", label, form.rows, form.hidden, form.group,
                           form.round_sf ? " rounded" : "",
                           form.clamp ? fmt::format(" clamped at {}", *form.clamp) : "");
  // The contract's tolerances: exp is CUDA's on the GPU, and a sum over H has an order of its own.
  test.quantised = true;
  test.tolerances = {
      {"out", {8e-3, 1e-5}}, {"grad_x", {8e-3, 1e-5}}, {"grad_weight", {1e-5, 1e-5}}};
  const Dims wide = {form.rows, 2 * form.hidden};
  HostTensor x = random_tensor(DType::e4m3, wide, Values::normal, 121);
  for (int64_t i = 0; i < x.size(); ++i) x.set_value(i, 100 * x.value(i));
  test.inputs["x"] = std::move(x);
  HostTensor x_sf =
      random_tensor(DType::f32, {form.rows, 2 * form.hidden / form.group}, Values::uniform, 122);
  for (int64_t i = 0; i < x_sf.size(); ++i) x_sf.set_value(i, 0.02 * x_sf.value(i));
  test.inputs["x_sf"] = std::move(x_sf);
  test.inputs["grad_out"] =
      random_tensor(DType::bf16, {form.rows, form.hidden}, Values::normal, 123);
  test.inputs["weight"] = random_tensor(DType::f32, {form.tokens, form.topk}, Values::uniform, 124);
  map_rows(test, form.rows, form.tokens, form.topk);
  test.params = {{"num_per_channels", form.group}, {"round_sf", form.round_sf}};
  if (form.clamp) test.params["swiglu_clamp_value"] = *form.clamp;
  return test;
}

/// Rows whose entry lives elsewhere, two rows of one entry, and indices that do not exist.
OpCase disagreement(const Form& form) {
  OpCase test = make_case("rows and entries that disagree", form);
  HostTensor& slots = test.inputs.at("pos_to_token_topk");
  HostTensor& positions = test.inputs.at("token_topk_to_pos");
  positions.set_value(0, -1);                              // row 2 says 0
  positions.set_value(1, 0);                               // row 7 says 1, row 0 something else
  slots.set_value(1, 2);                                   // as row 12, where 2 lives
  positions.set_value(4, static_cast<double>(form.rows));  // row 22 says 4
  positions.set_value(5, 2147483647.0);
  slots.set_value(3, static_cast<double>(form.tokens * form.topk));
  slots.set_value(4, 2147483647.0);
  slots.set_value(5, -2147483648.0);
  return test;
}

OpCase special_values(const Form& form) {
  OpCase test = make_case("special", form);
  HostTensor& x = test.inputs.at("x");
  HostTensor& grad_out = test.inputs.at("grad_out");
  const int64_t hidden = form.hidden;
  x.set_bits(2 * 2 * hidden + 3, 0x7F);           // a NaN gate
  x.set_bits(7 * 2 * hidden + hidden + 9, 0xFF);  // a NaN above the gate
  for (int64_t h = 0; h < 2 * hidden; ++h) x.set_value(4 * 2 * hidden + h, h % 2 == 0 ? 448 : -448);
  for (int64_t h = 0; h < 2 * hidden; ++h) x.set_bits(12 * 2 * hidden + h, h % 2 == 0 ? 0 : 0x80);
  grad_out.set_value(17 * hidden + 1, __builtin_inf());
  grad_out.set_value(22 * hidden + 2, __builtin_nan(""));
  for (int64_t h = 0; h < hidden; ++h) grad_out.set_value(27 * hidden + h, h % 2 == 0 ? 0.0 : -0.0);
  for (int64_t h = 0; h < hidden; ++h) grad_out.set_value(32 * hidden + h, 1e-40);
  HostTensor& x_sf = test.inputs.at("x_sf");
  const int64_t groups = x_sf.shape()[1];
  for (int64_t g = 0; g < groups; ++g)
    x_sf.set_value(4 * groups + g, 1);  // exp over- and underflows
  return test;
}

/// Rows of padding hold what memory held before.
OpCase hostile_padding(const Form& form) {
  OpCase test = make_case("NaN and infinity in padding", form);
  const HostTensor slots = test.inputs.at("pos_to_token_topk");
  const auto fill = [&](const char* name, int kind, double value) {
    HostTensor& tensor = test.inputs.at(name);
    const int64_t columns = tensor.shape()[1];
    for (int64_t r = 0, padding = 0; r < form.rows; ++r) {
      if (slots.value(r) >= 0 || padding++ % 4 != kind) continue;
      for (int64_t c = 0; c < columns; c += 3) tensor.set_value(r * columns + c, value);
    }
  };
  fill("x", 0, __builtin_nan(""));
  fill("grad_out", 1, __builtin_nan(""));
  fill("grad_out", 2, -__builtin_inf());
  fill("x_sf", 3, __builtin_inf());
  return test;
}

}  // namespace

std::vector<OpCase> swiglu_backward_and_per_token_cast_cases() {
  std::vector<OpCase> cases;
  for (const int64_t group : {32, 128}) {
    for (const bool round_sf : {false, true}) {
      for (const std::optional<double> clamp :
           {std::optional<double>(), std::optional<double>(0.5), std::optional<double>(10)}) {
        const Form form{.group = group, .round_sf = round_sf, .clamp = clamp};
        cases.push_back(make_case("normal", form));
        cases.push_back(special_values(form));
      }
      cases.push_back(disagreement({.group = group, .round_sf = round_sf}));
      cases.push_back(hostile_padding({.group = group, .round_sf = round_sf}));
    }
    for (const int64_t hidden : {int64_t{128}, int64_t{384}, int64_t{2560}}) {
      cases.push_back(make_case("normal", {.rows = 5, .hidden = hidden, .group = group}));
    }
    cases.push_back(make_case("one row", {.rows = 1, .tokens = 1, .topk = 1, .group = group}));
    cases.push_back(
        make_case("more entries than rows", {.rows = 3, .tokens = 200, .topk = 4, .group = group}));
    cases.push_back(make_case("no row", {.rows = 0, .tokens = 70, .topk = 4, .group = group}));
    cases.push_back(make_case("no entry", {.rows = 4, .tokens = 0, .group = group}));
    cases.push_back(hostile_padding({.rows = 4, .tokens = 0, .group = group, .clamp = 0.5}));
    cases.push_back(make_case("no column", {.rows = 4, .hidden = 0, .group = group}));
  }
  cases.push_back(make_case("normal", {.rows = 9, .hidden = 96, .group = 32, .round_sf = true}));
  cases.push_back(make_case("a model's row", {.rows = 3, .hidden = 7168}));
  cases.push_back(make_case("a ragged row", {.rows = 2, .hidden = 7200, .group = 32}));
  return cases;
}

}  // namespace tessera::test
