#pragma once
// The running softmax of the rows of a tile, in the canonical order of the op's definition.
//
// A row keeps the maximum `top` of its raw scores, top * c, and 32 classes of partial sums: key j of a block is of
// class (j mod 8, j div 16 mod 4). A thread of the tensor cores holds scores of few classes, so a score costs
// one addition and no exchange until the end. A row that has seen no key has top = -inf and sums of 0. NaN
// needs no care: max drops it, but its p is NaN, and so are a sum and all results of the row from then on.

#include <functional>
#include <optional>

#include "dsl/builder.h"

namespace tessera::kernels::attention {

inline constexpr float kLn2 = 0.6931471805599453f, kLog2E = 1.4426950408889634f;

/// The state of a row after a block whose largest score is `high`, and the factor of its sums and output.
struct NextTop {
  dsl::Value top, scaled, base, shrink;  // p = exp2_approx(fma(score, c, -base))

  NextTop(const dsl::Value& top, const dsl::Value& scaled, const dsl::Value& high,
          const dsl::Value& c);
};

/// The logarithm of the sum of exponentials; `scaled` is the row's maximum times c.
dsl::Value lse_of(const dsl::Value& sum, const dsl::Value& scaled, const dsl::Value& is_empty);
/// The sum with that of a sink.
dsl::Value with_sink(const dsl::Value& sum, const dsl::Value& scaled, const dsl::Value& sink);

/// The state of the rows of a tile without its output.
class RowSoftmax {
 public:
  /// Fragments of `rows` queries by `keys` keys. `c` is scale * log2 e; or that of each row, a fragment.
  RowSoftmax(dsl::Builder& k, DType dtype, int64_t rows, int64_t keys, const dsl::Value& c,
             std::optional<dsl::Ref> c_of_rows = {});

  /// Before the first block.
  void start();
  /// From the scores of a block, -inf where a row does not see the key, to p.
  void step() { find_high(), weigh(); }
  /// The halves of step: the largest score of each row; all that needs the row's maximum so far.
  void find_high();
  void weigh();
  /// Takes a block that others have scored: the maximum of each row after it, and the factor of its sums.
  void follow(const std::function<dsl::Value(const dsl::Value& r)>& top_of,
              const std::function<dsl::Value(const dsl::Value& r)>& shrink_of);
  /// Multiplies each row of a part of the output by its factor.
  void rescale(const dsl::Ref& out, const dsl::Ref& by);
  /// The sum of all classes of each row.
  dsl::Ref total();

  dsl::Ref scores, p;
  dsl::Ref top, shrink;  // of rows, after the last block

 protected:
  dsl::Builder& k_;
  const int64_t rows_, keys_;
  dsl::Ref scaled_, high_;

 private:
  dsl::Value c_of(const dsl::Value& r) const { return c_of_rows_ ? (*c_of_rows_)(r).read() : c_; }

  const dsl::Value c_;
  const std::optional<dsl::Ref> c_of_rows_;
  dsl::Ref sums_;
};

class OnlineSoftmax : public RowSoftmax {
 public:
  OnlineSoftmax(dsl::Builder& k, DType dtype, int64_t rows, int64_t keys, int64_t value_width,
                const dsl::Value& c);

  void start();
  /// Before the products of p and values are added to `out`.
  void rescale_out() { rescale(out, shrink); }
  /// The sum of row r, and its maximum times c.
  struct Row {
    dsl::Value r, sum, scaled, is_empty;
  };
  /// Divides `out` by what `divisor` returns for each row. Rows that have seen no key, and those from `count` on, are
  /// empty: 0.
  void finish(const dsl::Value& count, const std::function<dsl::Value(const Row&)>& divisor);

  dsl::Ref out;
};

}  // namespace tessera::kernels::attention
