#pragma once
// The outputs that the kernel of the mixes saves for the backward ops.

#include "dsl/builder.h"

namespace tessera::kernels::mhc {

/// The outputs out_mul and input_mixes [tokens, entries], sqrsum [tokens], pre_mix [tokens, n] and
/// comb_logits [tokens, n, n], f32.
class SavedMixes {
 public:
  SavedMixes(dsl::Builder& k, const dsl::Value& tokens, int64_t streams)
      : k_(k),
        n_(streams),
        out_mul_(output("out_mul", {tokens, n_ * (n_ + 2)})),
        sqrsum_(output("sqrsum", {tokens})),
        input_mixes_(output("input_mixes", {tokens, n_ * (n_ + 2)})),
        pre_mix_(output("pre_mix", {tokens, n_})),
        comb_logits_(output("comb_logits", {tokens, n_, n_})) {}

  /// Entry j of a token.
  struct Entry {
    dsl::Value product, square, mix, logit;
    dsl::Ref pre_mix;  // only for j < n
  };
  void store(const dsl::Value& token, const dsl::Value& j, const Entry& entry) const {
    out_mul_(token, j) = entry.product;
    input_mixes_(token, j) = entry.mix;
    k_.if_(j == 0, [&] { sqrsum_(token) = entry.square; });
    k_.if_(j < n_, [&] { pre_mix_(token, j) = entry.pre_mix; });
    k_.if_(j >= 2 * n_, [&] { comb_logits_(token, j / n_ - 2, j % n_) = entry.logit; });
  }

 private:
  dsl::Ref output(const char* name, std::vector<dsl::Arg> shape) {
    return k_.output(name, DType::f32, std::move(shape), {.align = 4});
  }

  dsl::Builder& k_;
  int64_t n_;
  dsl::Ref out_mul_, sqrsum_, input_mixes_, pre_mix_, comb_logits_;
};

}  // namespace tessera::kernels::mhc
