// DLPack tensors as views.

#include "runtime/dlpack.h"

#include <cstddef>
#include <string>
#include <vector>

#include "tests/runtime/fake_process.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using tessera::test::error_of;

namespace {

struct Sample {
  std::vector<int64_t> shape = {3, 4};
  std::vector<int64_t> strides = {8, 1};
  DlTensor tensor{
      reinterpret_cast<void*>(0x1000), 2, 1, 2, 2, 32, 1, shape.data(), strides.data(), 16};
};

}  // namespace

TEST_CASE("a DLPack tensor has the layout that its interface gives it") {
  CHECK(sizeof(DlTensor) == 48);
  CHECK(offsetof(DlTensor, ndim) == 16);
  CHECK(offsetof(DlTensor, type_code) == 20);
  CHECK(offsetof(DlTensor, shape) == 24);
  CHECK(offsetof(DlTensor, byte_offset) == 40);
}

TEST_CASE("a DLPack tensor becomes a view of the same elements") {
  Sample s;
  TensorView view = view_of(s.tensor, "x");
  CHECK(view.data == reinterpret_cast<void*>(0x1010));
  CHECK(to_string(view) == "f32[3, 4], strides [8, 1]");
  CHECK(view.device == Device::cuda(1));
  s.tensor.strides = nullptr;
  CHECK(view_of(s.tensor, "x").is_row_major());
  s.tensor.device_type = 3;
  CHECK(view_of(s.tensor, "x").device == Device::cpu());
  s.tensor.type_code = 17;
  s.tensor.type_bits = 4;
  s.tensor.type_lanes = 2;
  CHECK(view_of(s.tensor, "x").dtype == DType::i8);
  s.shape[0] = 0;
  s.tensor.data = nullptr;
  CHECK(view_of(s.tensor, "x").size() == 0);
  s.tensor.ndim = 0;
  s.tensor.data = &s;
  CHECK(view_of(s.tensor, "x").rank() == 0);
}

TEST_CASE("a DLPack tensor that is no view is refused by name") {
  Sample s;
  uint64_t flags = 0;
  std::string text;
  SECTION("two lanes of f32") {
    s.tensor.type_lanes = 2;
    text =
        "tessera: argument 'x' has an element type that is not known\n"
        "  expected  an integer, f16, f32, f64, bf16, bool, e4m3, e5m2, or e2m1 in pairs\n"
        "  got       DLPack code 2, 32 bits, 2 lanes";
  }
  SECTION("more elements than 64 bits count") {
    s.shape = {int64_t{1} << 32, int64_t{1} << 32};
    s.tensor.strides = nullptr;
    s.tensor.data = nullptr;
    text =
        "tessera: argument 'x' is too large\n"
        "  expected  at most 2^62 bytes\n"
        "  got       f32[4294967296, 4294967296]";
  }
  SECTION("single e2m1") {
    s.tensor.type_code = 17;
    s.tensor.type_bits = 4;
    text =
        "tessera: argument 'x' has an element type that is not known\n"
        "  expected  an integer, f16, f32, f64, bf16, bool, e4m3, e5m2, or e2m1 in pairs\n"
        "  got       DLPack code 17, 4 bits, 1 lanes";
  }
  SECTION("another device") {
    s.tensor.device_type = 10;
    text =
        "tessera: argument 'x' is on a device of another kind\n"
        "  expected  DLPack device 1 (CPU), 2 (CUDA) or 3\n"
        "  got       device type 10, id 1";
  }
  SECTION("rank") {
    s.tensor.ndim = 9;
    text =
        "tessera: argument 'x' has a rank that is not supported\n"
        "  expected  0 to 8 dimensions\n"
        "  got       9";
  }
  SECTION("stride") {
    s.strides[1] = -1;
    text =
        "tessera: argument 'x' has a negative stride\n"
        "  expected  0 or more\n"
        "  got       -1 in dimension 1";
  }
  SECTION("extent") {
    s.shape[0] = -2;
    text =
        "tessera: argument 'x' has a negative extent\n"
        "  expected  0 or more\n"
        "  got       -2 in dimension 0";
  }
  SECTION("no data") {
    s.tensor.data = nullptr;
    text =
        "tessera: argument 'x' has no data\n"
        "  expected  a data pointer\n"
        "  got       null for f32[3, 4], strides [8, 1]";
  }
  SECTION("read-only") {
    flags = kDlReadOnly;
    CHECK(view_of(s.tensor, "x", Access::read, flags).read_only);
    text =
        "tessera: argument 'x' is read-only\n"
        "  expected  memory that may be written\n"
        "  got       f32[3, 4], strides [8, 1]";
  }
  if (text.empty()) return;
  CHECK(error_of([&] { view_of(s.tensor, "x", Access::write, flags); }) == text);
}
