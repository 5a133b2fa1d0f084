#include "tools/lib/calls/tensor_placement.h"

#include <numeric>

#include "dsl/base/error.h"
#include "tests/support/catch.h"

namespace tessera::tools {
namespace {

using kernels::OpInfo;
using kernels::Params;
using kernels::Role;

OpInfo op() {
  OpInfo info;
  info.name = "cast_back";
  info.tensors = {{"x", Role::in, false, false, false, {"e4m3"}, {"T", "H"}, "rows", {}},
                  {"x_sf",
                   Role::in,
                   false,
                   false,
                   false,
                   {"f32"},
                   {"T", "C"},
                   "SF(x_block_size) x_sf_layout",
                   {}},
                  {"w_sf", Role::in, false, false, false, {"f32"}, {"T", "C"}, "SF(1,128)", {}}};
  return info;
}

Params layout(const std::string& word) {
  return {{"x_sf_layout", word}};
}

Placement place(const std::string& tensor, Dims shape, const std::string& word,
                const std::string& strides = "") {
  std::map<std::string, std::string> metadata;
  if (!strides.empty()) metadata["strides." + tensor] = strides;
  return place_input(op(), tensor, DType::f32, shape, layout(word), metadata);
}

std::string message(const std::string& tensor, Dims shape, const std::string& word,
                    const std::string& strides) {
  try {
    place(tensor, shape, word, strides);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST_CASE("without strides, scales lie as their layout parameter says", "[placement]") {
  CHECK(place("x", {5, 8}, "col_major_tma").strides == Dims{8, 1});
  CHECK(place("w_sf", {5, 8}, "col_major_tma").strides == Dims{8, 1});
  CHECK(place("x_sf", {5, 3}, "row_major").strides == Dims{3, 1});
  for (const char* word : {"col_major_tma", "packed_ue8m0"}) {
    const Placement placement = place("x_sf", {5, 3}, word);
    CHECK(placement.strides == Dims{1, 8});
    CHECK(placement.storage_elements == 24);
  }
  CHECK(place("x_sf", {0, 3}, "col_major_tma").storage_elements == 0);
}

TEST_CASE("given strides win when they agree with the layout", "[placement]") {
  CHECK(place("x", {5, 8}, "row_major", "16,1").storage_elements == 4 * 16 + 8);
  CHECK(place("x", {5, 8}, "row_major", "1,5").strides == Dims{1, 5});
  CHECK(place("x_sf", {5, 3}, "col_major_tma", "1,6").strides == Dims{1, 6});
  CHECK(place("x_sf", {5, 3}, "row_major", "4,1").strides == Dims{4, 1});
  CHECK(place("x_sf", {1, 3}, "row_major", "77,1").strides == Dims{77, 1});
  CHECK(place("x", {0, 3}, "row_major", "0,0").storage_elements == 0);
}

TEST_CASE("strides that make no sense are refused", "[placement]") {
  CHECK(message("x_sf", {5, 3}, "col_major_tma", "3,1") ==
        "tessera: cast_back: argument 'x_sf' has the wrong strides\n"
        "  expected  strides 1,8 or a wider column (col_major_tma)\n"
        "  got       strides 3,1");
  CHECK(message("x_sf", {5, 3}, "row_major", "1,5") ==
        "tessera: cast_back: argument 'x_sf' has the wrong strides\n"
        "  expected  strides 3,1 or a wider row (row_major)\n"
        "  got       strides 1,5");
  for (const char* text :
       {"1", "1,2,3", "8,-1", "8,1,", "8 1", "8,x", ",", "8,99999999999999999999"}) {
    CAPTURE(text);
    CHECK(message("x", {5, 8}, "row_major", text) ==
          std::string("tessera: cast_back: argument 'x' has the wrong strides\n"
                      "  expected  2 strides, such as 8,1\n"
                      "  got       '") +
              text + "'");
  }
  CHECK(message("x", {5, 8}, "row_major", "7,1") ==
        "tessera: cast_back: argument 'x' has the wrong strides\n"
        "  expected  strides that do not overlap\n"
        "  got       shape [5, 8], strides [7, 1]");
  CHECK(message("x", {5, 8}, "row_major", "0,1").find("do not overlap") != std::string::npos);
  CHECK(message("x", {5, 8}, "row_major", "4611686018427387904,1") ==
        "tessera: cast_back: argument 'x' has the wrong strides\n"
        "  expected  less than 2^62 bytes\n"
        "  got       shape [5, 8], strides [4611686018427387904, 1]");
}

TEST_CASE("strides of a tensor that the file does not hold are refused", "[placement]") {
  const kernels::Tensors given = {{"x", TensorView(nullptr, DType::e4m3, {5, 8})}};
  CHECK_NOTHROW(check_stride_names(op(), given, {{"strides.x", "16,1"}, {"note", "any"}}));
  for (const char* name : {"xx", "x_sf", "out", ""}) {
    CAPTURE(name);
    try {
      check_stride_names(op(), given, {{std::string("strides.") + name, "16,1"}});
      FAIL("no error");
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find(std::string("tessera: cast_back: metadata 'strides.") +
                                       name +
                                       "' belongs to no tensor of the file\n"
                                       "  expected  strides of x\n") == 0);
    }
  }
}

TEST_CASE("strides are written iff they differ from row-major", "[placement]") {
  CHECK(strides_text({5, 8}, {8, 1}).empty());
  CHECK(strides_text({5, 8}, {1, 8}) == "1,8");
  CHECK(strides_text({1, 8}, {1, 4}) == "1,4");
  CHECK(strides_text({1, 1}, {1, 4}) == "1,4");
  CHECK(strides_text({0, 8}, {1, 4}).empty());
  CHECK(strides_text({}, {}).empty());
}

TEST_CASE("scatter and gather are inverse and touch only the tensor", "[placement]") {
  const int64_t element_bytes = GENERATE(1, 2, 4, 8);
  const Dims shape = {2, 3, 4};
  const Dims strides = GENERATE(Dims{12, 4, 1}, Dims{40, 1, 10}, Dims{100, 6, 1});
  CAPTURE(element_bytes, to_string(strides));
  std::vector<std::byte> logical(static_cast<size_t>(24 * element_bytes));
  for (size_t i = 0; i < logical.size(); ++i) logical[i] = static_cast<std::byte>(i + 1);
  std::vector<std::byte> storage(static_cast<size_t>(150 * element_bytes), std::byte{0});
  scatter(logical, shape, strides, element_bytes, storage);

  int64_t flat = 0;
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      for (int64_t k = 0; k < 4; ++k, ++flat) {
        const auto at =
            static_cast<size_t>((i * strides[0] + j * strides[1] + k * strides[2]) * element_bytes);
        CHECK(storage[at] == logical[static_cast<size_t>(flat * element_bytes)]);
      }
    }
  }
  const auto touched =
      std::count_if(storage.begin(), storage.end(), [](std::byte b) { return b != std::byte{0}; });
  CHECK(touched == 24 * element_bytes);
  std::vector<std::byte> back(logical.size());
  gather(storage, shape, strides, element_bytes, back);
  CHECK(back == logical);
}

TEST_CASE("scalars and empty tensors scatter", "[placement]") {
  std::vector<std::byte> one = {std::byte{7}}, storage(1), none;
  scatter(one, {}, {}, 1, storage);
  CHECK(storage == one);
  scatter(none, {0, 4}, {4, 1}, 1, none);
  scatter(none, {4, 0}, {0, 1}, 1, none);
}

}  // namespace
}  // namespace tessera::tools
