#include "tests/support/ops/compressor_variants.h"

#include <fmt/format.h>

#include <cmath>

#include "tests/support/tensor_of.h"

namespace tessera::test {

void make_exponentials_exact(HostTensors& inputs, Random& random) {
  for (const char* name : {"x", "state"}) {
    HostTensor& rows = inputs.at(name);
    const int64_t length = rows.shape()[1], first = length / 2;
    for (int64_t i = 0; i < rows.size(); ++i) {
      if (i % length >= first) rows.set_value(i, random.below(3) == 0 ? 0.0 : -512.0);
    }
  }
  HostTensor& bias = inputs.at("ape");
  for (int64_t i = 0; i < bias.size(); ++i) {
    bias.set_value(i, static_cast<double>(random.below(2) * 256));
  }
}

OpCase astray(OpCase test, bool is_decode) {
  HostTensor& plan = test.inputs.at("plan");
  const int64_t slots = test.inputs.at("state").shape()[0];
  const std::pair<int64_t, int64_t> wrong[] = {{0, test.inputs.at("x").shape()[0]},
                                               {0, -7},
                                               {1, -5},
                                               {2, is_decode ? 3 : 9000},
                                               {4, slots},
                                               {3, slots - 2},
                                               {4, -1}};
  for (int64_t i = 0; i < plan.shape()[0]; ++i) {
    const auto& [field, value] = wrong[static_cast<size_t>(i % 7)];
    if (plan.value(8 * i) >= 0) plan.set_value(8 * i + field, static_cast<double>(value));
  }
  test.label += " astray";
  return test;
}

OpCase crowded(OpCase test, int64_t rows) {
  const HostTensor plan = test.inputs.at("plan");
  const int64_t known = plan.shape()[0];
  test.inputs["plan"] = tensor_by(DType::i32, {rows, 8}, [&](int64_t i) {
    const int64_t row = i / 8, field = i % 8;
    if (row >= known && (row % 7 != 0 || field == 5)) return int64_t{-1};  // stored once
    return static_cast<int64_t>(plan.value(row % known * 8 + field));
  });
  test.label += fmt::format(" {} rows", rows);
  return test;
}

OpCase crowded_tokens(OpCase test, int64_t rows) {
  HostTensors& in = test.inputs;
  const HostTensor plan = in.at("plan"), x = in.at("x"), state = in.at("state");
  const int64_t known = plan.shape()[0], slots = state.shape()[0];
  const int64_t length = x.shape()[1], apart = rows / known;
  const HostTensor more = random_tensor(x.dtype(), {rows, length}, Values::normal, 11);
  in["plan"] = tensor_by(DType::i32, {rows, 8}, [&](int64_t i) {
    const int64_t row = i / 8;
    if (row % apart == 0 && row / apart < known) {
      return static_cast<int64_t>(plan.value(row / apart * 8 + i % 8));
    }
    const int64_t fields[] = {row, 128 * (row % 5), 128, -1, slots + row, -1, row, 0};
    return fields[i % 8];
  });
  in["x"] = more;
  for (int64_t i = 0; i < x.size(); ++i) in["x"].set_bits(i, x.bits(i));
  in["state"] = HostTensor(state.dtype(), {slots + rows, length});
  for (int64_t i = 0; i < in["state"].size(); ++i) {
    in["state"].set_bits(i, i < state.size() ? state.bits(i) : 0);
  }
  test.label += fmt::format(" {} rows", rows);
  return test;
}

OpCase hostile(OpCase test) {
  for (const char* name : {"x", "state"}) {
    HostTensor& rows = test.inputs.at(name);
    const int64_t length = rows.shape()[1];
    Random random(77);
    for (int64_t i = 0; i < rows.size(); ++i) {
      if (i % length < length / 2) continue;
      const int64_t kind = random.below(40);
      if (kind == 0) rows.set_value(i, NAN);
      if (kind == 1) rows.set_value(i, INFINITY);
      if (kind == 2) rows.set_value(i, -3e38);
      if (kind > 30 || i % length % 9 == 0) rows.set_value(i, -INFINITY);
    }
  }
  test.label += " hostile scores";
  return test;
}

}  // namespace tessera::test
