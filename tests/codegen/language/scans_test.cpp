// Tile programs about scans.

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Axis;
using dsl::Builder;
using dsl::Value;

namespace {

double value_at(int64_t i) {
  return static_cast<double>(i * 7919 % 1013 - 500);
}

enum class Place { in_place, other_buffer, fragment };

/// The scan of `shape` along `axis` by blocks of `threads`.
std::vector<double> scanned(Dims shape, int axis, int threads, DType dtype, bool is_max,
                            Place place, dsl::ScanOptions options = {}) {
  Builder k("scan");
  std::vector<int64_t> extents(shape.begin(), shape.end());
  std::vector<dsl::Arg> dims(extents.begin(), extents.end());
  auto x = k.input("x", dtype, dims);
  auto y = k.output("y", dtype, dims);
  k.launch({1}, {.threads = threads});
  const auto run = [&](const dsl::Ref& from, const dsl::Ref& to) {
    k.copy(x, from);
    is_max ? k.scan_max(from, to, Axis(axis), options) : k.scan_sum(from, to, Axis(axis), options);
    k.copy(to, y);
  };
  if (place == Place::fragment) {
    run(k.fragment(dtype, extents, "from"), k.fragment(dtype, extents, "to"));
  } else {
    const dsl::Ref from = k.shared(dtype, extents, "from");
    if (place == Place::in_place) {
      run(from, from);
    } else {
      run(from, k.shared(dtype, extents, "to"));
    }
  }
  HostTensor in(dtype, shape);
  for (int64_t i = 0; i < in.size(); ++i) in.set_value(i, value_at(i));
  const HostTensor out(dtype, shape);
  run_kernel(k.finish(), {&in, &out});
  return values_of(out);
}

std::vector<double> expected(Dims shape, int axis, bool is_max) {
  const int64_t columns = shape.rank == 2 ? shape[1] : shape[0];
  const int64_t rows = shape.rank == 2 ? shape[0] : 1;
  const bool along_rows = shape.rank == 2 && axis == 0;
  std::vector<double> result;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const bool first = along_rows ? i < columns : i % columns == 0;
    const double value = value_at(i);
    if (first) {
      result.push_back(value);
      continue;
    }
    const double before = result[static_cast<size_t>(along_rows ? i - columns : i - 1)];
    result.push_back(is_max ? std::max(before, value) : before + value);
  }
  return result;
}

}  // namespace

TEST_CASE("inclusive sums in place are exact at every length (S16)", "[language][slow]") {
  const int64_t length = GENERATE(1, 31, 32, 33, 256, 1024);
  const int threads = GENERATE(32, 256);
  CAPTURE(length, threads);
  CHECK(scanned({length}, 0, threads, DType::i32, false, Place::in_place) ==
        expected({length}, 0, false));
}

TEST_CASE("scans of every dtype, into another buffer or a fragment", "[language][slow]") {
  const DType dtype = GENERATE(DType::i32, DType::i64, DType::f32);
  const bool is_max = GENERATE(false, true);
  const Place place = GENERATE(Place::other_buffer, Place::fragment);
  CAPTURE(name(dtype), is_max);
  CHECK(scanned({200}, 0, 64, dtype, is_max, place) == expected({200}, 0, is_max));
}

TEST_CASE("scans along either axis of a tile", "[language][slow]") {
  const int axis = GENERATE(0, 1);
  const bool is_max = GENERATE(false, true);
  const Place place = GENERATE(Place::in_place, Place::fragment);
  CAPTURE(axis, is_max);
  CHECK(scanned({5, 70}, axis, 96, DType::i32, is_max, place) == expected({5, 70}, axis, is_max));
  CHECK(scanned({1, 70}, axis, 64, DType::i32, is_max, place) == expected({1, 70}, axis, is_max));
}

TEST_CASE("scans without their own element, and from the end", "[language][slow]") {
  const dsl::ScanOptions options = {.exclusive = GENERATE(false, true),
                                    .from_end = GENERATE(false, true)};
  const bool is_max = GENERATE(false, true);
  const DType dtype = GENERATE(DType::i32, DType::i64, DType::f32);
  CAPTURE(options.exclusive, options.from_end, is_max, name(dtype));
  const double none = !is_max               ? 0
                      : dtype == DType::f32 ? -INFINITY
                      : dtype == DType::i32 ? std::numeric_limits<int32_t>::min()
                                            : static_cast<double>(INT64_MIN);
  // Element i of a line from the elements that it stands for, one by one.
  const auto check = [&](Dims shape, int axis, int threads, Place place) {
    const int64_t columns = shape[shape.rank - 1], rows = shape.rank == 2 ? shape[0] : 1;
    const int64_t length = axis == shape.rank - 1 ? columns : rows;
    const int64_t stride = axis == shape.rank - 1 ? 1 : columns;
    std::vector<double> want;
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t place_in_line = i / stride % length, line = i - place_in_line * stride;
      double value = none;
      for (int64_t j = 0; j < length; ++j) {
        const int64_t ahead = options.from_end ? j - place_in_line : place_in_line - j;
        if (ahead < 0 || (ahead == 0 && options.exclusive)) continue;
        const double element = value_at(line + j * stride);
        value = is_max ? std::max(value, element) : value + element;
      }
      want.push_back(value);
    }
    CHECK(scanned(shape, axis, threads, dtype, is_max, place, options) == want);
  };
  check({200}, 0, 64, Place::in_place);
  check({200}, 0, 64, Place::fragment);
  check({1}, 0, 32, Place::other_buffer);
  check({40}, 0, 64, Place::other_buffer);
  check({5, 70}, 1, 96, Place::in_place);
  check({5, 70}, 0, 96, Place::other_buffer);
}

TEST_CASE("a scan of what it cannot take is refused", "[language]") {
  Builder k("wrong");
  auto x = k.input("x", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto s = k.shared(DType::i32, {64}, "s");
  auto longer = k.shared(DType::i32, {65}, "longer");
  auto small = k.shared(DType::bf16, {64}, "small");
  auto text = [&](const dsl::Ref& from, const dsl::Ref& to, int axis) {
    return error_of([&] { k.scan_sum(from, to, Axis(axis)); });
  };
  CHECK(text(x, s, 0).find("a scan does not take 'x'") != std::string::npos);
  CHECK(text(s.tile({0}, {32}), s, 0).find("[SCAN]") != std::string::npos);
  CHECK(text(small, small, 0).find("[DTYPE]") != std::string::npos);
  CHECK(text(s, longer, 0).find("a scan from 's' to 'longer'") != std::string::npos);
  CHECK(text(s, s, 1).find("along an axis it does not have") != std::string::npos);
}
