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

HostTensor gemm_fp8_grouped(const ScaledOperands& operands, const std::vector<int64_t>& groups,
                            HostTensor out) {
  const ScaledProduct product(operands);
  const int64_t columns = product.columns();
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t group = groups[static_cast<size_t>(i / columns)];
    if (group < 0 || group >= operands.b.shape()[0]) continue;
    store(out, i, product(i / columns, group, i % columns));
  }
  return out;
}

std::vector<int64_t> groups_by_ids(const HostTensor& m_indices, int64_t alignment) {
  std::vector<int64_t> groups;
  for (int64_t row = 0; row < m_indices.size(); ++row) {
    groups.push_back(static_cast<int64_t>(m_indices.value(row)));
  }
  if (alignment % 128 != 0) return groups;
  for (size_t first = 0; first < groups.size(); first += 128) {
    const auto begin = groups.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end =
        groups.begin() + static_cast<std::ptrdiff_t>(std::min(first + 128, groups.size()));
    std::set<int64_t> ids(begin, end);
    ids.erase(-1);
    if (ids.size() > 1) std::fill(begin, end, -1);
  }
  return groups;
}

std::vector<int64_t> groups_by_ends(const HostTensor& psum, int64_t alignment, int64_t rows) {
  std::vector<int64_t> groups(static_cast<size_t>(rows), -1);
  int64_t end = 0;
  for (int64_t g = 0; g < psum.size(); ++g) {
    const int64_t start = (end + alignment - 1) / alignment * alignment;
    end = std::max(end, static_cast<int64_t>(psum.value(g)));
    for (int64_t row = start; row < std::min(end, rows); ++row)
      groups[static_cast<size_t>(row)] = g;
  }
  return groups;
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
    return [=](const HostTensors& in, const kernels::Params& params) {
      const auto alignment = param<int64_t>(params, "alignment", 128);
      const std::vector<int64_t> groups =
          in.contains("psum") ? groups_by_ends(in.at("psum"), alignment, in.at("out").shape()[0])
                              : groups_by_ids(in.at("m_indices"), alignment);
      return HostTensors{{"out", gemm_fp8_grouped(scaled(in), groups, in.at("out"))}};
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
