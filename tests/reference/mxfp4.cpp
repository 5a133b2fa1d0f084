#include "tests/reference/mxfp4.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "tests/reference/numeric.h"
#include "tests/reference/tensor_core.h"

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;

template <class T>
T param(const kernels::Params& params, const std::string& name, T fallback) {
  const auto found = params.find(name);
  const T* value = found == params.end() ? nullptr : std::get_if<T>(&found->second);
  return value == nullptr ? fallback : *value;
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

/// A code of a tensor of packed pairs, the first in the low nibble.
int code_of(const HostTensor& w, int64_t row, int64_t k) {
  const int64_t pairs = w.shape()[2];
  return static_cast<int>(w.bits(row * pairs + k / 2) >> (4 * (k % 2)) & 15);
}

}  // namespace

Mxfp4Place mxfp4_place(bool is_bf16, int64_t i, int64_t j) {
  const int64_t warp = i / 16, r = i % 16;
  Mxfp4Place place;
  if (is_bf16) {
    const int64_t q = j / 16, c = j % 16, lane = r % 8 * 4 + c % 8 / 2;
    place.word = (32 * warp + lane) * 4 + q;
    place.nibble = static_cast<int>(r / 8 * 4 + c / 8 * 2 + c % 2);
  } else {
    const int64_t q = j / 32, c = j % 32, lane = r % 8 * 4 + c % 16 / 4;
    place.word = (q / 2 * 128 + 32 * warp + lane) * 4 + q % 2 * 2 + r / 8;
    place.nibble = static_cast<int>(c / 16 * 4 + c % 4);
  }
  place.sign = place.nibble < 4 ? 8 * place.nibble + 7 : 8 * (place.nibble - 4) + 3;
  return place;
}

uint32_t mxfp4_e4m3(int magnitude, int shift) {
  if (shift == 15) return nan_code(DType::e4m3);
  if (shift >= 20) return 0;
  const int u = shift <= 14 ? shift : 15 - shift;
  return encode(DType::e4m3, std::ldexp(kMagnitudes[magnitude], u - 8));
}

uint32_t mxfp4_bf16(int magnitude, int shift) {
  if (shift == 255) return nan_code(DType::bf16);
  if (shift > 126) return 0;
  return encode(DType::bf16, std::ldexp(kMagnitudes[magnitude], -shift));
}

HostTensors mxfp4_prepack(const HostTensor& w, const HostTensor& w_sf, bool is_bf16,
                          bool by_block) {
  const int64_t groups = w.shape()[0], rows = w.shape()[1], depth = 2 * w.shape()[2];
  const int64_t tile = is_bf16 ? 64 : 128, row_tiles = ceil_div(rows, 64);
  const int64_t tiles = ceil_div(depth, tile), blocks = ceil_div(depth, 128);
  const int64_t scales = ceil_div(depth, 32), neutral = is_bf16 ? 127 : 133;
  HostTensor out(DType::u8, {groups, row_tiles, tiles, 32 * tile});
  HostTensor out_shift(DType::u8, {groups, row_tiles, blocks, 64, 4});
  HostTensor out_sf(DType::f32, by_block ? Dims{groups, rows, blocks} : Dims{groups, rows});
  HostTensor inexact(DType::i32, {groups});
  out.fill_bytes(std::byte{0});
  out_shift.fill_bytes(std::byte{0});
  for (int64_t g = 0; g < groups; ++g) inexact.set_value(g, 0);
  for (int64_t row = 0; row < groups * rows; ++row) {
    const int64_t g = row / rows, n = row % rows;
    std::vector<bool> has_codes(static_cast<size_t>(scales));
    for (int64_t k = 0; k < depth; ++k) {
      const int code = code_of(w, row, k);
      if (code % 8 != 0) has_codes[static_cast<size_t>(k / 32)] = true;
      const Mxfp4Place place = mxfp4_place(is_bf16, n % 64, k % tile);
      const int64_t first = ((g * row_tiles + n / 64) * tiles + k / tile) * 32 * tile;
      const auto set = [&](int bit, int value) {
        const int64_t at = first + place.word * 4 + bit / 8;
        out.set_bits(at, out.bits(at) | static_cast<uint64_t>(value) << (bit % 8));
      };
      set(4 * place.nibble, code % 8);
      set(place.sign, code / 8);
    }
    const int64_t unit = by_block ? 4 : std::max<int64_t>(scales, 1);
    for (int64_t first = 0; first < std::max<int64_t>(scales, 1); first += unit) {
      int64_t greatest = -1;
      const int64_t end = std::min(first + unit, scales);
      const auto byte = [&](int64_t q) {
        return static_cast<int64_t>(w_sf.bits(row * scales + q));
      };
      const auto counts = [&](int64_t q) {
        return has_codes[static_cast<size_t>(q)] && byte(q) != 255;
      };
      for (int64_t q = first; q < end; ++q) {
        if (counts(q)) greatest = std::max(greatest, byte(q));
      }
      const int64_t unit_byte = greatest < 0 ? neutral : greatest;
      if (!by_block || first < scales) {
        out_sf.set_value(by_block ? row * blocks + first / 4 : row,
                         std::ldexp(1.0, static_cast<int>(unit_byte - neutral)));
      }
      for (int64_t q = first; q < end; ++q) {
        int64_t shift = is_bf16 ? 127 : 0;
        if (byte(q) == 255) {
          shift = is_bf16 ? 255 : 15;
        } else if (counts(q)) {
          const int64_t below = unit_byte - byte(q), u = 14 - below;
          shift = is_bf16 ? std::min<int64_t>(below, 127) : u >= 0 ? u : u >= -4 ? 15 - u : 20;
          if (is_bf16 ? below > 126 : u < 0) inexact.set_value(g, inexact.value(g) + 1);
        }
        out_shift.set_bits((((g * row_tiles + n / 64) * blocks + q / 4) * 64 + n % 64) * 4 + q % 4,
                           static_cast<uint64_t>(shift));
      }
    }
  }
  return {{"out", out}, {"out_shift", out_shift}, {"out_sf", out_sf}, {"inexact", inexact}};
}

HostTensor mxfp4_decode(const HostTensor& b, const HostTensor& b_shift, int64_t rows,
                        int64_t columns) {
  const int64_t groups = b.shape()[0], row_tiles = b.shape()[1], tiles = b.shape()[2];
  const bool is_bf16 = b.shape()[3] == 2048;
  const int64_t tile = is_bf16 ? 64 : 128, blocks = b_shift.shape()[2];
  HostTensor out(is_bf16 ? DType::bf16 : DType::e4m3, {groups, rows, columns});
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t g = i / (rows * columns), n = i / columns % rows, k = i % columns;
    const Mxfp4Place place = mxfp4_place(is_bf16, n % 64, k % tile);
    const int64_t first = ((g * row_tiles + n / 64) * tiles + k / tile) * 32 * tile;
    const auto bit = [&](int at) {
      return b.bits(first + place.word * 4 + at / 8) >> (at % 8) & 1;
    };
    int magnitude = 0;
    for (int m = 0; m < 3; ++m) magnitude |= static_cast<int>(bit(4 * place.nibble + m)) << m;
    const auto shift = static_cast<int>(b_shift.bits(
        (((g * row_tiles + n / 64) * blocks + k / 128) * 64 + n % 64) * 4 + k / 32 % 4));
    const uint32_t code = is_bf16 ? mxfp4_bf16(magnitude, shift) : mxfp4_e4m3(magnitude, shift);
    out.set_bits(i, code | bit(place.sign) << (is_bf16 ? 15 : 7));
  }
  return out;
}

// ---- products

struct Mxfp4Product::Elements {
  std::vector<Number> left, right;
};

Mxfp4Product::Mxfp4Product(const HostTensors& in, const kernels::Params& params,
                           Mxfp4Mistake mistake)
    : in_(in), mistake_(mistake) {
  const HostTensor &a = in.at("a"), &b = in.at("b"), &b_sf = in.at("b_sf");
  depth_ = a.shape()[a.shape().rank - 1];
  const bool has_groups = b.shape().rank == 4;
  columns_ = b_sf.shape()[has_groups ? 1 : 0];
  by_block_ = b_sf.shape().rank == (has_groups ? 3 : 2);
  scaled_ = param<int64_t>(params, "num_per_channels", 128);
  HostTensor tiles = b, shifts = in.at("b_shift");
  if (!has_groups) {  // as a stack of one
    const Dims &of_b = b.shape(), &of_shift = shifts.shape();
    tiles = HostTensor(DType::u8, {1, of_b[0], of_b[1], of_b[2]});
    shifts = HostTensor(DType::u8, {1, of_shift[0], of_shift[1], 64, 4});
    for (int64_t i = 0; i < tiles.size(); ++i) tiles.set_bits(i, b.bits(i));
    for (int64_t i = 0; i < shifts.size(); ++i) shifts.set_bits(i, in.at("b_shift").bits(i));
  }
  auto elements = std::make_shared<Elements>();
  elements->left = numbers_of(a);
  elements->right = numbers_of(mxfp4_decode(tiles, shifts, columns_, depth_));
  elements_ = std::move(elements);
}

float Mxfp4Product::operator()(int64_t row, int64_t group, int64_t column) const {
  const HostTensor& b_sf = in_.at("b_sf");
  const Number* a = elements_->left.data() + row * depth_;
  const Number* b = elements_->right.data() + (group * columns_ + column) * depth_;
  const int64_t of_column = group * columns_ + column;
  float sum = 0;
  if (in_.at("a").dtype() == DType::bf16) {
    uint32_t all = 0;
    for (int64_t k = 0; k < depth_; k += 16) {
      all = sum_of({}, number_of(DType::f32, all), a + k, b + k,
                   static_cast<size_t>(std::min<int64_t>(16, depth_ - k)));
    }
    sum = float_of(all);
  } else {
    const HostTensor& a_sf = in_.at("a_sf");
    const int64_t scales = a_sf.shape()[a_sf.shape().rank - 1], blocks = ceil_div(depth_, 128);
    for (int64_t part = 0; part * scaled_ < depth_; ++part) {
      uint32_t of_part = 0;
      const int64_t end = std::min(depth_, (part + 1) * scaled_);
      for (int64_t k = part * scaled_; k < end; k += 32) {
        of_part = sum_of({13, 13}, number_of(DType::f32, of_part), a + k, b + k,
                         static_cast<size_t>(std::min<int64_t>(32, end - k)));
      }
      float scale = 0;
      if (a_sf.dtype() == DType::i32) {
        const auto word = static_cast<uint32_t>(a_sf.bits(row * scales + part / 4));
        scale = float_of((word >> (8 * (part % 4)) & 255U) << 23);
      } else {
        scale = static_cast<float>(a_sf.value(row * scales + part));
      }
      if (by_block_) {
        int64_t block = part * scaled_ / 128;
        if (mistake_ == Mxfp4Mistake::next_block_scale) block = std::min(block + 1, blocks - 1);
        scale *= static_cast<float>(b_sf.value(of_column * blocks + block));
      }
      sum = mistake_ == Mxfp4Mistake::product_and_sum ? float_of(of_part) * scale + sum
                                                      : std::fma(float_of(of_part), scale, sum);
    }
  }
  if (!by_block_) sum *= static_cast<float>(b_sf.value(of_column));
  const auto bias = in_.find("bias");
  if (bias != in_.end()) sum += static_cast<float>(bias->second.value(of_column));
  return sum;
}

namespace {

void store(HostTensor& out, int64_t i, float sum) {
  out.set_bits(i, encode(out.dtype(), static_cast<double>(sum)));
}

HostTensor masked(const HostTensors& in, const kernels::Params& params, Mxfp4Mistake mistake) {
  const Mxfp4Product product(in, params, mistake);
  HostTensor out = in.at("out");
  const int64_t rows = out.shape()[1], columns = product.columns();
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t row = i / columns;
    if (static_cast<double>(row % rows) >= in.at("masked_m").value(row / rows)) continue;
    store(out, i, product(row, row / rows, i % columns));
  }
  return out;
}

/// The group of each row; -1: none.
std::vector<int64_t> groups_of_rows(const HostTensors& in, const kernels::Params& params) {
  const int64_t rows = in.at("a").shape()[0], groups = in.at("b").shape()[0];
  const auto alignment = param<int64_t>(params, "alignment", 128);
  std::vector<int64_t> of_rows(static_cast<size_t>(rows), -1);
  const auto psum = in.find("psum");
  if (psum != in.end()) {
    int64_t last = 0;  // the greatest end so far, within the rows
    for (int64_t g = 0; g < groups; ++g) {
      const auto end = std::min(static_cast<int64_t>(psum->second.value(g)), rows);
      for (int64_t row = ceil_div(last, alignment) * alignment; row < end; ++row) {
        of_rows[static_cast<size_t>(row)] = g;
      }
      last = std::max(last, end);
    }
    return of_rows;
  }
  const HostTensor& ids = in.at("m_indices");
  for (int64_t first = 0; first < rows; first += alignment) {
    const int64_t end = std::min(first + alignment, rows);
    int64_t group = -1;
    bool is_right = true;
    for (int64_t row = first; row < end; ++row) {
      const auto id = static_cast<int64_t>(ids.value(row));
      is_right = is_right && id >= -1 && id < groups && (id < 0 || group < 0 || id == group);
      group = std::max(group, id);
    }
    for (int64_t row = first; row < end && is_right; ++row) {
      of_rows[static_cast<size_t>(row)] = static_cast<int64_t>(ids.value(row));
    }
  }
  return of_rows;
}

HostTensor grouped(const HostTensors& in, const kernels::Params& params, Mxfp4Mistake mistake) {
  const Mxfp4Product product(in, params, mistake);
  HostTensor out = in.at("out");
  const std::vector<int64_t> groups = groups_of_rows(in, params);
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t row = i / product.columns(), group = groups[static_cast<size_t>(row)];
    if (group >= 0) store(out, i, product(row, group, i % product.columns()));
  }
  return out;
}

HostTensor dense(const HostTensors& in, const kernels::Params& params, Mxfp4Mistake mistake) {
  const Mxfp4Product product(in, params, mistake);
  const bool is_f32 = param<std::string>(params, "out_dtype", "bf16") == "f32";
  HostTensor out(is_f32 ? DType::f32 : DType::bf16, {in.at("a").shape()[0], product.columns()});
  for (int64_t i = 0; i < out.size(); ++i) {
    store(out, i, product(i / product.columns(), 0, i % product.columns()));
  }
  return out;
}

}  // namespace

Runner mxfp4_runner(const std::string& op, Mxfp4Mistake mistake) {
  if (op == "mxfp4_prepack") {
    return [](const HostTensors& in, const kernels::Params& params) {
      const bool is_bf16 = param<std::string>(params, "operand", "e4m3") == "bf16";
      const std::string fold = param<std::string>(params, "fold", "none");
      HostTensors out = mxfp4_prepack(in.at("w"), in.at("w_sf"), is_bf16,
                                      fold == "block" || (fold != "row" && !is_bf16));
      if (!param(params, "save_inexact", false)) out.erase("inexact");
      return out;
    };
  }
  if (op == "mxfp4_decode") {
    return [](const HostTensors& in, const kernels::Params& params) {
      return HostTensors{
          {"out", mxfp4_decode(in.at("b"), in.at("b_shift"), in.at("b_sf").shape()[1],
                               std::get<int64_t>(params.at("num_columns")))}};
    };
  }
  using Form = HostTensor (*)(const HostTensors&, const kernels::Params&, Mxfp4Mistake);
  const Form form = op == "gemm_mxfp4_masked"    ? masked
                    : op == "gemm_mxfp4_grouped" ? grouped
                    : op == "gemm_mxfp4"         ? dense
                                                 : nullptr;
  if (form == nullptr) return nullptr;
  return [=](const HostTensors& in, const kernels::Params& params) {
    return HostTensors{{"out", form(in, params, mistake)}};
  };
}

}  // namespace tessera::reference
