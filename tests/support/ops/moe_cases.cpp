// Cases of the ops that move rows between tokens and positions: hidden sizes of models and odd ones,
// all formats and layouts, tokens without a position, positions without a token, nothing at all.

#include <fmt/format.h>

#include "tests/support/ops/expert_mapping.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

struct Routing {
  int64_t num_tokens, num_topk, num_experts, alignment;
};

ExpertMapping mapping_of(const Routing& r) {
  return mapping_of(random_topk_idx(r.num_tokens, r.num_topk, r.num_experts, 1), r.num_experts,
                    r.alignment);
}

std::string label_of(const Routing& r, int64_t hidden) {
  return fmt::format("T={} K={} E={} A={} H={}", r.num_tokens, r.num_topk, r.num_experts,
                     r.alignment, hidden);
}

OpCase plain_expand_case(const Routing& r, int64_t hidden, DType dtype) {
  ExpertMapping mapping = mapping_of(r);
  OpCase test;
  test.label = fmt::format("{} {}", label_of(r, hidden), name(dtype));
  test.inputs["x"] = random_tensor(dtype, {r.num_tokens, hidden}, Values::bits, 2);
  test.inputs["token_topk_to_pos"] = std::move(mapping.token_topk_to_pos);
  test.inputs["pos_to_expert"] = std::move(mapping.pos_to_expert);
  return test;
}

OpCase expand_case(const Routing& r, int64_t hidden, DType dtype, int64_t group,
                   const std::string& layout) {
  const int64_t groups = (hidden + group - 1) / group;
  const bool packed = layout == "packed_ue8m0";
  ExpertMapping mapping = mapping_of(r);
  OpCase test;
  test.label = fmt::format("{} {} / {} {}", label_of(r, hidden), name(dtype), group, layout);
  test.inputs["x"] = dtype == DType::e2m1
                         ? random_tensor(DType::i8, {r.num_tokens, hidden / 2}, Values::bits, 2)
                         : random_tensor(dtype, {r.num_tokens, hidden}, Values::bits, 2);
  test.inputs["x_sf"] =
      random_tensor(packed ? DType::i32 : DType::f32,
                    {r.num_tokens, packed ? (groups + 3) / 4 : groups}, Values::bits, 3);
  test.inputs["token_topk_to_pos"] = std::move(mapping.token_topk_to_pos);
  test.inputs["pos_to_expert"] = std::move(mapping.pos_to_expert);
  test.params = {{"num_per_channels", group}, {"sf_layout", layout}};
  return test;
}

/// The case with tensor `name` laid out otherwise.
OpCase with_strides(OpCase test, const std::string& name, const Dims& strides) {
  const HostTensor& old = test.inputs.at(name);
  HostTensor placed(old.dtype(), old.shape(), strides);
  for (int64_t i = 0; i < old.size(); ++i) placed.set_bits(i, old.bits(i));
  test.label += fmt::format(" {} strides {}", name, to_string(strides));
  test.inputs[name] = std::move(placed);
  return test;
}

/// A case without tokens, with positions.
OpCase padding_alone(OpCase empty) {
  empty.label += " and 7 rows of padding";
  empty.inputs["pos_to_expert"] = HostTensor(DType::i32, {7});
  for (int64_t p = 0; p < 7; ++p) {
    empty.inputs["pos_to_expert"].set_bits(p, p % 2 == 0 ? 0xFFFFFFFF : 0x80000000);
  }
  return empty;
}

/// No token has a position, and none of the positions a token.
OpCase nowhere(OpCase test) {
  test.label += " all slots -1";
  HostTensor& positions = test.inputs["token_topk_to_pos"];
  for (int64_t i = 0; i < positions.size(); ++i) positions.set_value(i, -1);
  return test;
}

struct ReduceForm {
  DType in;
  bool x_sf, weights, e4m3, sf;
};

OpCase reduce_case(const Routing& r, int64_t hidden, const ReduceForm& form,
                   Values values = Values::normal) {
  const int64_t num_positions = r.num_tokens * r.num_topk;
  OpCase test;
  test.label = fmt::format("{} {}{}{}{}{}", label_of(r, hidden), name(form.in),
                           form.x_sf ? " x_sf" : "", form.weights ? " weights" : "",
                           form.e4m3 ? " to e4m3" : "", form.sf ? " sf" : "");
  test.inputs["x"] = random_tensor(form.in, {num_positions, hidden}, values, 4);
  test.inputs["token_topk_to_pos"] = mapping_of(r).token_topk_to_pos;
  if (form.x_sf) test.inputs["x_sf"] = random_tensor(DType::f32, {num_positions}, values, 5);
  if (form.weights) {
    test.inputs["topk_weights"] =
        random_tensor(DType::f32, {r.num_tokens, r.num_topk}, Values::uniform, 6);
  }
  if (form.sf) test.inputs["sf"] = random_tensor(DType::f32, {1}, Values::normal, 7);
  if (form.e4m3) test.params["format"] = std::string("e4m3");
  return test;
}

}  // namespace

std::vector<OpCase> expand_to_fused_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Routing& r, int64_t hidden, DType dtype) {
    cases.push_back(plain_expand_case(r, hidden, dtype));
  };
  for (const DType dtype : {DType::bf16, DType::e4m3, DType::f32, DType::u8, DType::i32}) {
    for (const int64_t hidden : {576, 2048, 2560}) add({13, 6, 9, 16}, hidden, dtype);
    add({3, 8, 9, 4}, 7168, dtype);
    add({5, 2, 4, 1}, 101, dtype);
    add({7, 1, 3, 2}, 1, dtype);
    add({2, 40, 50, 1}, 256, dtype);   // more slots than lanes
    add({2, 2, 4, 1}, 10'241, dtype);  // rows of several parts, the last one shorter
  }
  add({600, 2, 4, 16}, 3592, DType::bf16);  // many tokens, two parts
  add({1, 8, 256, 16}, 7168, DType::bf16);  // mostly padding
  add({0, 6, 9, 1}, 512, DType::bf16);
  add({4, 2, 3, 1}, 0, DType::bf16);
  cases.push_back(padding_alone(plain_expand_case({0, 4, 5, 1}, 7168, DType::f32)));
  cases.push_back(nowhere(plain_expand_case({9, 4, 5, 4}, 640, DType::bf16)));
  OpCase beyond = plain_expand_case({9, 4, 5, 4}, 640, DType::bf16);
  beyond.label += " some positions beyond the end";
  HostTensor& positions = beyond.inputs["token_topk_to_pos"];
  positions.set_value(1, static_cast<double>(beyond.inputs["pos_to_expert"].size()));
  positions.set_value(2, 2147483647);
  positions.set_value(6, -5);
  cases.push_back(std::move(beyond));
  return cases;
}

std::vector<OpCase> expand_to_fused_with_sf_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Routing& r, int64_t hidden, DType dtype, int64_t group,
                       const std::string& layout) {
    cases.push_back(expand_case(r, hidden, dtype, group, layout));
  };
  for (const std::string layout : {"row_major", "col_major_tma", "packed_ue8m0"}) {
    for (const DType dtype : {DType::e4m3, DType::e2m1}) {
      for (const int64_t hidden : {576, 2048}) add({13, 6, 9, 16}, hidden, dtype, 128, layout);
      add({3, 8, 9, 4}, 7168, dtype, 32, layout);
      add({5, 2, 4, 1}, 100, dtype, 32, layout);
      add({7, 1, 3, 2}, 2, dtype, 32, layout);
      add({2, 40, 50, 1}, 256, dtype, 128, layout);  // more slots than lanes
    }
    add({2, 2, 4, 1}, 40960, DType::e4m3, 128, layout);  // more columns than a warp holds
    add({3, 2, 4, 1}, 101, DType::e4m3, 32, layout);     // bytes only
  }
  add({1, 8, 256, 16}, 7168, DType::e4m3, 128, "row_major");  // mostly padding
  add({0, 6, 9, 1}, 512, DType::e4m3, 128, "packed_ue8m0");
  add({4, 2, 3, 1}, 0, DType::e4m3, 128, "row_major");

  const OpCase plain = expand_case({9, 4, 5, 4}, 640, DType::e4m3, 128, "row_major");
  cases.push_back(with_strides(plain, "x_sf", {1, 12}));
  cases.push_back(with_strides(plain, "x_sf", {7, 1}));
  cases.push_back(with_strides(expand_case({9, 4, 5, 4}, 640, DType::e4m3, 128, "packed_ue8m0"),
                               "x_sf", {1, 12}));

  for (const std::string layout : {"row_major", "col_major_tma"}) {
    cases.push_back(padding_alone(expand_case({0, 4, 5, 1}, 640, DType::e4m3, 128, layout)));
  }
  cases.push_back(nowhere(plain));
  return cases;
}

std::vector<OpCase> reduce_fused_cases() {
  std::vector<OpCase> cases;
  for (const DType in : {DType::f32, DType::bf16}) {
    for (const bool x_sf : {false, true}) {
      for (const bool weights : {false, true}) {
        cases.push_back(reduce_case({7, 6, 9, 1}, 768, {in, x_sf, weights, false, false}));
        cases.push_back(reduce_case({7, 6, 9, 1}, 768, {in, x_sf, weights, true, true}));
      }
    }
    const ReduceForm all{in, true, true, false, false};
    for (const int64_t hidden : {256, 2048, 2560, 7168}) {
      cases.push_back(reduce_case({5, 8, 9, 1}, hidden, all));
    }
    for (const int64_t topk : {1, 2, 9, 16, 33}) {
      cases.push_back(reduce_case({9, topk, 40, 1}, 512, all));
    }
    cases.push_back(reduce_case({4, 6, 9, 1}, 1024, {in, false, true, true, false}));
    cases.push_back(reduce_case({11, 6, 9, 1}, 512, all, Values::nasty));
    cases.push_back(reduce_case({11, 6, 9, 1}, 512, {in, true, false, true, true}, Values::nasty));
    cases.push_back(reduce_case({0, 6, 9, 1}, 512, all));
  }
  // Rows without a position: +0, and times a negative factor -0.
  OpCase empty = reduce_case({6, 3, 4, 1}, 256, {DType::bf16, true, true, true, true});
  empty.label += " no positions at all";
  empty.inputs["x"] = HostTensor(DType::bf16, {0, 256});
  empty.inputs["x_sf"] = HostTensor(DType::f32, {0});
  empty.inputs["sf"].set_value(0, -2);
  for (int64_t i = 0; i < 18; ++i) empty.inputs["token_topk_to_pos"].set_value(i, -1);
  cases.push_back(empty);
  empty.label += ", not even -1";
  for (int64_t i = 0; i < 18; ++i) {
    empty.inputs["token_topk_to_pos"].set_value(i, static_cast<double>(i));
  }
  cases.push_back(std::move(empty));
  OpCase holes = reduce_case({6, 3, 4, 1}, 256, {DType::f32, false, true, true, true});
  holes.label += " some tokens nowhere, some positions beyond the end";
  holes.inputs["sf"].set_value(0, -0.5);
  for (int64_t i = 0; i < 3; ++i) holes.inputs["token_topk_to_pos"].set_value(6 + i, -1);
  holes.inputs["token_topk_to_pos"].set_value(1, 18);
  holes.inputs["token_topk_to_pos"].set_value(2, 2147483647);
  cases.push_back(std::move(holes));
  // Beyond 448 in e4m3: saturated.
  OpCase large = reduce_case({5, 4, 4, 1}, 256, {DType::f32, false, false, true, true});
  large.label += " saturating";
  large.inputs["sf"].set_value(0, -300);
  cases.push_back(std::move(large));
  return cases;
}

}  // namespace tessera::test
