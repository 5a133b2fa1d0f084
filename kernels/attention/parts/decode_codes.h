#pragma once
// Codes of e4m3 as 16-bit operands of products, by operations on whole words: a conversion of two codes to bf16 goes through
// f16 and f32 and takes four instructions, two of them for a single code.
//
// A code is moved to where a 16-bit float has its exponent and mantissa, which makes 2^-120 (bf16) or 2^-8 (f16) of its
// value, subnormal codes too; one product of two halves scales it, exactly. Only NaN is another number then: words that have one
// are looked for, and mended apart.

#include <functional>
#include <vector>

#include "dsl/builder.h"

namespace tessera::kernels::attention {

/// Decodes words of four codes, the first lowest, to local arrays of the operands' dtype.
class CodeWords {
 public:
  CodeWords(dsl::Builder& k, DType dtype) : k_(k), dtype_(dtype) {}

  /// The word of up to four elements of a local array, from (row, 0) on.
  dsl::Value word_of(const dsl::Ref& codes, int64_t row, int64_t count) const;
  /// Two codes, of byte `low` of `first` and of byte `high` of `second`, to values(at) and values(at + 1).
  void decode(const dsl::Value& first, int64_t low, const dsl::Value& second, int64_t high,
              const dsl::Ref& values, int64_t at) const;
  /// Runs `mend` if one of the words has a NaN.
  void if_nan(const std::vector<dsl::Value>& words, const std::function<void()>& mend) const;
  /// Sets `element` to NaN if byte `e` of `word` is one.
  void mend(const dsl::Value& word, int64_t e, const dsl::Ref& element) const;

 private:
  dsl::Builder& k_;
  const DType dtype_;
};

}  // namespace tessera::kernels::attention
