#pragma once
// The comparisons of the op contract. Each answers with a text for people: the first mismatch, how
// many, how far.

#include <cstdint>
#include <functional>
#include <string>

#include "dsl/base/tensor_view.h"

namespace tessera::test {

struct Comparison {
  bool ok = true;
  std::string report;  // empty when ok

  static Comparison failed(std::string report) { return {false, std::move(report)}; }
};

// All take CPU views; those of two tensors first compare dtype and shape. "n of m differ" counts
// elements.

/// Every element equals want(element), by its row-major number; NaN equals nothing.
Comparison compare_values(const TensorView& got, const std::function<double(int64_t)>& want);
/// Same dtype, shape, strides (unless empty) and bytes: +0 is not -0, NaN payloads count.
Comparison compare_bits(const TensorView& got, const TensorView& want);
/// Floats at most `ulps` representable values apart (+0 and -0 are one); NaN equals NaN.
Comparison compare_ulps(const TensorView& got, const TensorView& want, int64_t ulps);
/// |got - want| <= atol + rtol * |want|; equal infinities pass; NaN equals NaN.
Comparison compare_close(const TensorView& got, const TensorView& want, double rtol, double atol);
/// 1 - 2 sum(got want) / sum(got^2 + want^2) <= limit, in f64; 0 if the denominator is 0. Equal infinities do not count.
Comparison compare_calc_diff(const TensorView& got, const TensorView& want, double limit);
/// Equal bits after sorting each row; a tensor of rank 1 is one row.
Comparison compare_sorted_rows(const TensorView& got, const TensorView& want);
/// Quantised results of approximate arithmetic. e4m3, i8 (e2m1 pairs): codes at most one step apart
/// on at most max(2, n / 1000) elements. f32 scales: within relative 1e-6, or one power of two on
/// at most max(1, n / 1000). i32 (UE8M0 bytes): one apart on at most max(1, n / 1000) bytes. i64
/// counts: bit for bit.
Comparison compare_quantised(const TensorView& got, const TensorView& want);

}  // namespace tessera::test
