#pragma once
// A case of an op as a user types it: extents, dtypes of inputs that take several, optional inputs
// that are given, parameters that differ from their defaults.
//
//   "T=8001 H=7168 x=bf16 format=e4m3 num_per_channels=128"
//   "T=37 K=8 E=9 H=7168 x=bf16 topk_weights=given x.strides=14336,1"

#include <map>
#include <string>
#include <string_view>

#include "kernels/call_types.h"
#include "kernels/signature/call.h"

namespace tessera::kernels {

struct BenchCase;

class Case final : public Scope {
 public:
  /// Errors: argument, naming the op, the word, what was expected (with the nearest name).
  Case(const ParsedOp& op, std::string_view text);

  /// The value of an extent, a word of the op, an integer parameter or a let.
  int64_t operator[](std::string_view name) const;
  /// True if the case has the input: required, named, or present by its rule.
  bool has(std::string_view input) const;

  /// Views without data, with the dtypes and strides of the case.
  Tensors inputs() const;
  const Params& params() const { return params_; }  // checked, defaults filled in
  /// One text for all equal cases: every extent, dtype and parameter, sorted.
  std::string canonical() const;
  /// For the tools: inputs, their values and the minimum traffic in bytes.
  BenchCase bench_case() const;

  std::optional<ParamValue> find(std::string_view name) const override;
  std::string dtype_word(std::string_view tensor) const override;

 private:
  void read_word(const std::string& word);
  bool is_named(std::string_view input) const;  // or required
  TensorView view(const TensorRule& rule) const;

  const ParsedOp* parsed_;
  std::string text_;
  std::map<std::string, int64_t, std::less<>> extents_;
  // Dtypes of named inputs; "given" if the signature fixes the dtype.
  std::map<std::string, std::string, std::less<>> dtypes_;
  std::map<std::string, Dims, std::less<>> strides_;
  Params params_;
};

/// Returns the case of a call's inputs and parameters. A Case of that text has the call's dtypes,
/// shapes and strides, with token dimensions merged.
///
/// Example: "T=8001 H=7168 x=bf16 x.strides=14336,1 num_per_channels=128 format=e4m3"
std::string case_text(const Call& call);

}  // namespace tessera::kernels
