#include <fmt/format.h>

#include <functional>

#include "kernels/checks/arg_check.h"
#include "kernels/op.h"
#include "tests/support/catch.h"

namespace tessera::kernels {
namespace {

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TensorView host(DType dtype, Dims shape) {
  return TensorView(nullptr, dtype, shape);
}
TensorView host(DType dtype, Dims shape, Dims strides) {
  return TensorView(nullptr, dtype, shape, strides, Device::cpu());
}

TEST_CASE("arguments that fit pass and bind their symbols", "[arg_check]") {
  const Tensors tensors = {{"x", host(DType::bf16, {37, 512}, {1024, 1})},
                           {"out", host(DType::e4m3, {37, 512})},
                           {"out_sf", host(DType::f32, {37, 4})}};
  ArgCheck check("per_token_cast");
  check.tensor("x", tensors).dtype({DType::bf16, DType::f32}).shape("T", "H").rows();
  check.bind("C", check["H"] / 128, "H / num_per_channels");
  check.output("out", tensors).dtype(DType::e4m3).shape("T", "H").row_major().aligned(16);
  check.output("out_sf", tensors).dtype(DType::f32).shape("T", "C").last_stride(1);
  CHECK(check["T"] == 37);
  CHECK(check["H"] == 512);
  CHECK(check["C"] == 4);
  CHECK(check.has("x"));
  CHECK_FALSE(check.has("x_sf"));
}

TEST_CASE("a wrong dtype is explained", "[arg_check]") {
  ArgCheck check("per_token_cast");
  CHECK(message([&] {
          check.tensor("x", host(DType::f16, {4096, 7168})).dtype({DType::bf16, DType::f32});
        }) ==
        "tessera: per_token_cast: argument 'x' has the wrong dtype\n"
        "  expected  bf16|f32\n"
        "  got       f16[4096, 7168] on cpu");
  CHECK(message([&] { check.tensor("y", host(DType::i64, {2})).movable(); }) ==
        "tessera: per_token_cast: argument 'y' has the wrong dtype\n"
        "  expected  any dtype of 1, 2 or 4 bytes\n"
        "  got       i64[2] on cpu");
}

TEST_CASE("a tensor of more elements than 64 bits count is too large, not empty", "[arg_check]") {
  ArgCheck check("per_token_cast");
  CHECK(message([&] {
          check.tensor("x", host(DType::bf16, {int64_t{1} << 56, 256}));
        }) ==
        "tessera: per_token_cast: argument 'x' is too large\n"
        "  expected  at most 2^62 bytes\n"
        "  got       bf16[72057594037927936, 256]");
}

TEST_CASE("a wrong rank shows the symbols", "[arg_check]") {
  ArgCheck check("per_token_cast");
  CHECK(message([&] {
          check.tensor("x", host(DType::f32, {3})).dtype({DType::bf16, DType::f32}).shape("T", "H");
        }) ==
        "tessera: per_token_cast: argument 'x' has the wrong rank\n"
        "  expected  bf16|f32[T, H]\n"
        "  got       f32[3] on cpu");
}

TEST_CASE("a wrong extent says where the right one comes from", "[arg_check]") {
  ArgCheck check("per_token_cast");
  check.tensor("x", host(DType::bf16, {4096, 7168})).shape("T", "H");
  check.bind("C", 56, "H / num_per_channels");
  CHECK(message([&] {
          check.output("out_sf", host(DType::f32, {4096, 112})).dtype(DType::f32).shape("T", "C");
        }) ==
        "tessera: per_token_cast: argument 'out_sf' has the wrong shape\n"
        "  expected  f32[4096, 56]   (T = 4096 from x dim 0; C = 56 = H / num_per_channels)\n"
        "  got       f32[4096, 112] on cpu");
  CHECK(message([&] {
          check.tensor("w", host(DType::f32, {5, 3})).shape(4, "W");
        }) ==
        "tessera: per_token_cast: argument 'w' has the wrong shape\n"
        "  expected  [4, W]\n"
        "  got       f32[5, 3] on cpu");
}

TEST_CASE("a symbol used twice in one shape must agree with itself", "[arg_check]") {
  ArgCheck check("sinkhorn_fwd");
  CHECK(message([&] {
          check.tensor("x", host(DType::f32, {7, 4, 3})).shape("T", "n", "n");
        }) ==
        "tessera: sinkhorn_fwd: argument 'x' has the wrong shape\n"
        "  expected  [T, n, n]\n"
        "  got       f32[7, 4, 3] on cpu");
}

TEST_CASE("a requirement that does not name its argument gets the name in front", "[arg_check]") {
  const ArgCheck check("transpose");
  CHECK(message([&] { check.require(false, "x", "too many text boxes", "at most 2", "3"); }) ==
        "tessera: transpose: argument 'x': too many text boxes\n"
        "  expected  at most 2\n"
        "  got       3");
  CHECK(message([&] { check.require(false, "x", "'x' and 'y' go together", "both", "'y'"); }) ==
        "tessera: transpose: 'x' and 'y' go together\n"
        "  expected  both\n"
        "  got       'y'");
}

TEST_CASE("wrong strides are explained", "[arg_check]") {
  ArgCheck check("transpose");
  const TensorView columns = host(DType::bf16, {64, 128}, {1, 64});
  CHECK(message([&] { check.tensor("a", columns).last_stride(1); }) ==
        "tessera: transpose: argument 'a' has the wrong strides\n"
        "  expected  last stride 1\n"
        "  got       bf16[64, 128], strides [1, 64] on cpu");
  CHECK(message([&] { check.tensor("b", columns).row_major(); }) ==
        "tessera: transpose: argument 'b' has the wrong strides\n"
        "  expected  row-major strides [128, 1]\n"
        "  got       bf16[64, 128], strides [1, 64] on cpu");
  CHECK(message([&] {
          check.tensor("c", host(DType::bf16, {64, 128}, {127, 1})).rows();
        }) ==
        "tessera: transpose: argument 'c' has the wrong strides\n"
        "  expected  strides that do not overlap\n"
        "  got       bf16[64, 128], strides [127, 1] on cpu");
  CHECK(message([&] {
          check.tensor("e", columns).strides({1, 128});
        }) ==
        "tessera: transpose: argument 'e' has the wrong strides\n"
        "  expected  strides [1, 128]\n"
        "  got       bf16[64, 128], strides [1, 64] on cpu");
  CHECK(message([&] { check.tensor("f", host(DType::bf16, {4}, {-1})); }) ==
        "tessera: transpose: argument 'f' has impossible strides\n"
        "  expected  1 strides, none negative\n"
        "  got       shape [4], strides [-1]");
}

TEST_CASE("strides that touch no element are not checked", "[arg_check]") {
  ArgCheck check("transpose");
  check.tensor("one_row", host(DType::bf16, {1, 128}, {7, 1})).row_major();
  check.tensor("one_column", host(DType::bf16, {64, 1}, {1, 999})).rows();
  check.tensor("empty", host(DType::bf16, {0, 128}, {3, 5})).rows().strides({128, 1});
  SUCCEED();
}

TEST_CASE("a missing tensor is named with what was given", "[arg_check]") {
  ArgCheck check("topk_gate");
  const Tensors tensors = {{"logits", host(DType::f32, {1, 2})}};
  CHECK(message([&] { check.tensor("scores", tensors); }) ==
        "tessera: topk_gate: argument 'scores' is missing\n"
        "  expected  a tensor named scores\n"
        "  got       logits");
  CHECK(message([&] { check.tensor("scores", TensorView()); }) ==
        "tessera: topk_gate: argument 'scores' is missing\n"
        "  expected  a tensor named scores\n"
        "  got       none");
  check.optional("mask", tensors).dtype(DType::boolean).shape("T").row_major();
  CHECK_FALSE(check.has("mask"));
}

TEST_CASE("tensors of one call live on one device", "[arg_check]") {
  ArgCheck check("transpose");
  check.tensor("x", TensorView(nullptr, DType::bf16, {64, 64}, Device::cuda(0)));
  CHECK(message([&] {
          check.output("out", host(DType::bf16, {64, 64}));
        }) ==
        "tessera: transpose: argument 'out' is on another device\n"
        "  expected  cuda:0 (the device of x)\n"
        "  got       bf16[64, 64] on cpu");
}

TEST_CASE("the stride of a dimension of one element is not looked at", "[arg_check]") {
  ArgCheck check("transpose");
  check.tensor("x", host(DType::f32, {1, 256}, {-1, 1})).rows();
  CHECK(message([&] {
          check.tensor("y", host(DType::f32, {2, 256}, {-1, 1}));
        }).starts_with("tessera: transpose: argument 'y' has impossible strides\n"));
}

TEST_CASE("memory: data, alignment and aliasing", "[arg_check]") {
  alignas(16) static std::byte storage[4096];
  SECTION("no data") {
    ArgCheck check("transpose");
    check.tensor("x", host(DType::bf16, {64, 64}));
    CHECK(message([&] { check.memory(); }) ==
          "tessera: transpose: argument 'x' has no data\n"
          "  expected  a data pointer\n"
          "  got       null for bf16[64, 64]");
  }
  SECTION("an empty tensor needs no data") {
    ArgCheck check("transpose");
    check.tensor("x", host(DType::bf16, {0, 64}));
    check.memory();
    SUCCEED();
  }
  SECTION("misaligned") {
    ArgCheck check("transpose");
    const TensorView view(storage + 2, DType::bf16, {8});
    CHECK(message([&] { check.tensor("x", view).aligned(16); }) ==
          fmt::format("tessera: transpose: argument 'x' is not aligned\n"
                      "  expected  an address that is a multiple of 16 bytes\n"
                      "  got       bf16[8] at {}",
                      fmt::ptr(view.data)));
  }
  SECTION("an address between two elements") {
    ArgCheck check("transpose");
    const TensorView view(storage + 2, DType::f32, {8});
    check.tensor("x", view);
    check.tensor("empty", TensorView(storage + 1, DType::f32, {0}));
    CHECK(message([&] { check.memory(); }) ==
          fmt::format("tessera: transpose: argument 'x' is not aligned\n"
                      "  expected  an address that is a multiple of 4 bytes\n"
                      "  got       f32[8] at {}",
                      fmt::ptr(view.data)));
  }
  SECTION("an output on top of an input") {
    ArgCheck check("transpose");
    check.tensor("x", TensorView(storage, DType::u8, {64}));
    check.output("out", TensorView(storage + 63, DType::u8, {64}));
    CHECK(message([&] { check.memory(); }) ==
          fmt::format("tessera: transpose: argument 'out' shares memory with 'x'\n"
                      "  expected  an output with memory of its own\n"
                      "  got       out of 64 bytes at {}, x of 64 bytes at {}",
                      fmt::ptr(storage + 63), fmt::ptr(storage)));
  }
  SECTION("an input in the padding of an output") {
    ArgCheck check("cast");
    check.tensor("x", TensorView(storage + 20, DType::u8, {64}));
    check.output("out_sf", TensorView(storage, DType::f32, {5}))
        .occupies(TensorView(storage, DType::f32, {8}));
    CHECK(message([&] { check.memory(); }) ==
          fmt::format("tessera: cast: argument 'out_sf' shares memory with 'x'\n"
                      "  expected  an output with memory of its own\n"
                      "  got       out_sf of 32 bytes at {}, x of 64 bytes at {}",
                      fmt::ptr(storage), fmt::ptr(storage + 20)));
  }
  SECTION("two outputs, and an input listed after the output") {
    ArgCheck check("transpose");
    check.output("out", TensorView(storage, DType::u8, {64}));
    check.output("out_sf", TensorView(storage, DType::f32, {4}));
    CHECK_THROWS_AS(check.memory(), Error);
    ArgCheck late("transpose");
    late.output("out", TensorView(storage, DType::u8, {64}));
    late.tensor("x", TensorView(storage, DType::u8, {64}));
    CHECK_THROWS_AS(late.memory(), Error);
  }
  SECTION("two inputs may be one tensor") {
    ArgCheck check("transpose");
    check.tensor("a", TensorView(storage, DType::u8, {64}));
    check.tensor("b", TensorView(storage, DType::u8, {64}));
    check.memory();
    SUCCEED();
  }
  SECTION("neighbouring columns of one buffer do not alias, overlapping ones do") {
    const TensorView left(storage, DType::bf16, {8, 16}, {32, 1}, Device::cpu());
    const TensorView right(storage + 32, DType::bf16, {8, 16}, {32, 1}, Device::cpu());
    const TensorView middle(storage + 30, DType::bf16, {8, 16}, {32, 1}, Device::cpu());
    CHECK(disjoint(left, right));
    CHECK(disjoint(right, left));
    CHECK_FALSE(disjoint(left, middle));
    CHECK_FALSE(disjoint(middle, right));
    CHECK_FALSE(disjoint(left, left));
  }
}

TEST_CASE("tensor names are checked against the op's table", "[arg_check]") {
  OpInfo op;
  op.name = "topk_gate";
  op.tensors = {{"scores", Role::in, false, false, false, {"f32"}, {"T", "E"}, "row_major", {}},
                {"mask", Role::in, true, false, false, {"bool"}, {"T"}, "row_major", {}},
                {"parts", Role::in, false, false, true, {"f32"}, {"T"}, "row_major", {}},
                {"topk_idx", Role::out, false, false, false, {"i64"}, {"T", "K"}, "row_major", {}}};
  const TensorView any = host(DType::f32, {1, 1});
  check_tensor_names(op, {{"scores", any}, {"parts.0", any}, {"parts.1", any}});
  CHECK(message([&] {
          check_tensor_names(op, {{"score", any}});
        }) ==
        "tessera: topk_gate: unknown tensor 'score'\n"
        "  expected  scores, mask, parts, topk_idx\n"
        "  got       score\n"
        "  hint      did you mean 'scores'?");
  CHECK(message([&] {
          check_tensor_names(op, {{"mask", any}});
        }) ==
        "tessera: topk_gate: argument 'scores' is missing\n"
        "  expected  a tensor named scores\n"
        "  got       mask");
  CHECK(message([&] {
          check_tensor_names(op, {{"scores", any}, {"parts.1", any}});
        }) ==
        "tessera: topk_gate: argument 'parts.0' is missing\n"
        "  expected  1 tensors without a gap\n"
        "  got       parts.1, scores");
}

}  // namespace
}  // namespace tessera::kernels
