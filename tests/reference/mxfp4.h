#pragma once
// MXFP4 weights by definition: packing, decoding, products.

#include <memory>
#include <vector>

#include "tests/reference/ops.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// Where the code of row `i`, column `j` of a tile is: the word of its tile, the nibble, and the bit of its sign.
struct Mxfp4Place {
  int64_t word = 0;
  int nibble = 0, sign = 0;
};
Mxfp4Place mxfp4_place(bool is_bf16, int64_t i, int64_t j);

/// The e4m3 code of the magnitude 0 .. 7 of an e2m1 code, with a shift of 0 .. 255.
uint32_t mxfp4_e4m3(int magnitude, int shift);
/// The same as bf16.
uint32_t mxfp4_bf16(int magnitude, int shift);

/// mxfp4_prepack.
///
///   w, w_sf   i8 [G, N, K / 2], u8 [G, N, ceil(K / 32)]
///   returns   out, out_shift, out_sf, inexact
test::HostTensors mxfp4_prepack(const test::HostTensor& w, const test::HostTensor& w_sf,
                                bool is_bf16, bool by_block);

/// mxfp4_decode: b of u8 [G, Nt, Kt, S] to [G, rows, columns].
test::HostTensor mxfp4_decode(const test::HostTensor& b, const test::HostTensor& b_shift,
                              int64_t rows, int64_t columns);

/// A mistake that a kernel could make.
enum class Mxfp4Mistake : uint8_t { none, next_block_scale, product_and_sum };

/// Rows of `a` by the weights of a group, before the output is rounded.
///
///   a            e4m3 or bf16 [.., K]; a_sf f32, or exponents in i32, [.., scales of a row]; null with bf16
///   b_sf         f32 [G, N] or [G, N, ceil(K / 128)]; bias f32 [G, N] or null
class Mxfp4Product {
 public:
  Mxfp4Product(const test::HostTensors& in, const kernels::Params& params,
               Mxfp4Mistake mistake = Mxfp4Mistake::none);
  int64_t columns() const { return columns_; }
  float operator()(int64_t row, int64_t group, int64_t column) const;

 private:
  struct Elements;
  std::shared_ptr<const Elements> elements_;
  const test::HostTensors& in_;
  int64_t depth_ = 0, columns_ = 0, scaled_ = 128;
  bool by_block_ = false;
  Mxfp4Mistake mistake_;
};

/// The reference of an op with MXFP4 weights, or null if it is none.
Runner mxfp4_runner(const std::string& op, Mxfp4Mistake mistake = Mxfp4Mistake::none);

}  // namespace tessera::reference
