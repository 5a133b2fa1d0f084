#include "tests/reference/gemm.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "tests/reference/numeric.h"
#include "tests/reference/tensor_core.h"

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;

template <class T>
T param(const kernels::Params& params, const std::string& name, T fallback) {
  const auto found = params.find(name);
  return found == params.end() ? fallback : std::get<T>(found->second);
}

DType out_dtype_of(const kernels::Params& params) {
  return param<std::string>(params, "out_dtype", "bf16") == "f32" ? DType::f32 : DType::bf16;
}

/// A sum as the op stores it. NaN has one form.
void store(HostTensor& out, int64_t i, float sum) {
  out.set_bits(i, encode(out.dtype(), static_cast<double>(sum)));
}

}  // namespace

HostTensor gemm_bf16(const HostTensor& a, const HostTensor& b, const HostTensor* bias,
                     DType out_dtype) {
  constexpr int64_t kStep = 16;
  const int64_t rows = a.shape()[0], columns = b.shape()[0], depth = a.shape()[1];
  const std::vector<Number> left = numbers_of(a), right = numbers_of(b);
  HostTensor out(out_dtype, {rows, columns});
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < columns; ++n) {
      uint32_t sum = 0;
      for (int64_t k = 0; k < depth; k += kStep) {
        sum = sum_of({}, number_of(DType::f32, sum), left.data() + m * depth + k,
                     right.data() + n * depth + k, static_cast<size_t>(std::min(kStep, depth - k)));
      }
      float result = float_of(sum);
      if (bias != nullptr) result += static_cast<float>(bias->value(n));
      store(out, m * columns + n, result);
    }
  }
  return out;
}

namespace {

/// The elements of block-scaled operands, decomposed. The last two extents are those of one matrix.
class ScaledProduct {
 public:
  explicit ScaledProduct(const ScaledOperands& operands)
      : o_(operands), left_(numbers_of(o_.a)), right_(numbers_of(o_.b)) {
    const Dims &a = o_.a.shape(), &b = o_.b.shape();
    depth_ = a[a.rank - 1];
    columns_ = b[b.rank - 2];
    parts_ = (depth_ + kPart - 1) / kPart;
  }
  int64_t columns() const { return columns_; }

  /// Row `row` of all matrices of a, one after the other, by column `column` of matrix `group`.
  float operator()(int64_t row, int64_t group, int64_t column) const {
    float sum = 0;
    for (int64_t part = 0; part < parts_; ++part) {
      uint32_t of_part = 0;
      const int64_t end = std::min(depth_, (part + 1) * kPart);
      for (int64_t k = part * kPart; k < end; k += kStep) {
        of_part = sum_of({13, 13}, number_of(DType::f32, of_part), left_.data() + row * depth_ + k,
                         right_.data() + (group * columns_ + column) * depth_ + k,
                         static_cast<size_t>(std::min(kStep, end - k)));
      }
      const int64_t column_parts = (columns_ + kPart - 1) / kPart;
      const auto a_scale = static_cast<float>(o_.a_sf.value(row * parts_ + part));
      const auto b_scale = static_cast<float>(
          o_.b_sf.value((group * column_parts + column / kPart) * parts_ + part));
      sum = std::fma(float_of(of_part), a_scale * b_scale, sum);
    }
    return sum;
  }

 private:
  static constexpr int64_t kPart = 128, kStep = 32;
  const ScaledOperands& o_;
  const std::vector<Number> left_, right_;
  int64_t depth_ = 0, columns_ = 0, parts_ = 0;
};

}  // namespace

HostTensor gemm_fp8_block(const ScaledOperands& operands, DType out_dtype) {
  const ScaledProduct product(operands);
  HostTensor out(out_dtype, {operands.a.shape()[0], product.columns()});
  for (int64_t i = 0; i < out.size(); ++i) {
    store(out, i, product(i / product.columns(), 0, i % product.columns()));
  }
  return out;
}

HostTensor gemm_fp8_grouped(const ScaledOperands& operands, const HostTensor& m_indices,
                            HostTensor out) {
  const ScaledProduct product(operands);
  const int64_t groups = operands.b.shape()[0], columns = product.columns();
  const int64_t rows = out.shape()[0];
  for (int64_t first = 0; first < rows; first += 128) {
    const int64_t end = std::min<int64_t>(first + 128, rows);
    std::set<int64_t> ids;
    for (int64_t row = first; row < end; ++row) {
      ids.insert(static_cast<int64_t>(m_indices.value(row)));
    }
    ids.erase(-1);
    // Several groups, or one that b lacks: no row is written.
    if (ids.size() != 1 || *ids.begin() < 0 || *ids.begin() >= groups) continue;
    for (int64_t row = first; row < end; ++row) {
      if (m_indices.value(row) < 0) continue;
      for (int64_t column = 0; column < columns; ++column) {
        store(out, row * columns + column, product(row, *ids.begin(), column));
      }
    }
  }
  return out;
}

HostTensor gemm_fp8_masked(const ScaledOperands& operands, const HostTensor& masked_m,
                           HostTensor out) {
  const ScaledProduct product(operands);
  const int64_t rows = out.shape()[1], columns = product.columns();
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t row = i / columns;
    if (static_cast<double>(row % rows) >= masked_m.value(row / rows)) continue;
    store(out, i, product(row, row / rows, i % columns));
  }
  return out;
}

HostTensor gemm_fp8_k_grouped(const ScaledOperands& o, const HostTensor& k_offsets,
                              HostTensor out) {
  constexpr int64_t kPart = 128, kStep = 32;
  const int64_t rows = out.shape()[1], columns = out.shape()[2], depth = o.a.shape()[1];
  const std::vector<Number> left = numbers_of(o.a), right = numbers_of(o.b);
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t group = i / (rows * columns), m = i / columns % rows, n = i % columns;
    const auto first = static_cast<int64_t>(k_offsets.value(group));
    const auto end = static_cast<int64_t>(k_offsets.value(group + 1));
    const bool holds = first >= 0 && end <= depth && first % kPart == 0 && end % kPart == 0;
    if (!holds || first >= end) continue;
    float sum = 0;
    for (int64_t part = first; part < end; part += kPart) {
      uint32_t of_part = 0;
      for (int64_t k = part; k < part + kPart; k += kStep) {
        of_part = sum_of({13, 13}, number_of(DType::f32, of_part), left.data() + m * depth + k,
                         right.data() + n * depth + k, static_cast<size_t>(kStep));
      }
      const auto a_scale = static_cast<float>(o.a_sf.value(part / kPart * rows + m));
      const auto b_scale = static_cast<float>(o.b_sf.value(part / kPart * columns + n));
      sum = std::fma(float_of(of_part), a_scale * b_scale, sum);
    }
    store(out, i, static_cast<float>(out.value(i)) + sum);
  }
  return out;
}

Runner gemm_runner(const std::string& op) {
  if (op == "gemm_bf16") {
    return [](const HostTensors& in, const kernels::Params& params) {
      const auto bias = in.find("bias");
      return HostTensors{
          {"out", gemm_bf16(in.at("a"), in.at("b"), bias == in.end() ? nullptr : &bias->second,
                            out_dtype_of(params))}};
    };
  }
  const auto scaled = [](const HostTensors& in) {
    return ScaledOperands{in.at("a"), in.at("a_sf"), in.at("b"), in.at("b_sf")};
  };
  if (op == "gemm_fp8_block") {
    return [=](const HostTensors& in, const kernels::Params& params) {
      return HostTensors{{"out", gemm_fp8_block(scaled(in), out_dtype_of(params))}};
    };
  }
  if (op == "gemm_fp8_grouped") {
    return [=](const HostTensors& in, const kernels::Params&) {
      return HostTensors{{"out", gemm_fp8_grouped(scaled(in), in.at("m_indices"), in.at("out"))}};
    };
  }
  if (op == "gemm_fp8_k_grouped") {
    return [=](const HostTensors& in, const kernels::Params&) {
      return HostTensors{{"out", gemm_fp8_k_grouped(scaled(in), in.at("k_offsets"), in.at("out"))}};
    };
  }
  if (op == "gemm_fp8_masked") {
    return [=](const HostTensors& in, const kernels::Params&) {
      return HostTensors{{"out", gemm_fp8_masked(scaled(in), in.at("masked_m"), in.at("out"))}};
    };
  }
  return nullptr;
}

}  // namespace tessera::reference
