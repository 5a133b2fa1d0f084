#pragma once
// A call of an op that has passed the checks of its signature: extents, parameters and tensors by
// name.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/call_types.h"
#include "kernels/checks/arg_check.h"
#include "kernels/signature/op_definition.h"
#include "kernels/signature/scale_blocks.h"

namespace tessera::kernels {

/// Parses a dtype word of signatures, such as "bf16".
std::optional<DType> dtype_named(std::string_view word);

struct OpInfo;

/// An op with its parsed signature; lives until the process ends.
struct ParsedOp {
  const Op* op;
  Signature signature;
  std::shared_ptr<const OpInfo> table;  // its row of the registry, without cases
};

class Call final : public Scope {
 public:
  /// Checks names, presence, dtypes, extents, strides and devices of the inputs, ranges of the
  /// parameters and the rules of the signature, then calls Op::check. `params` have passed
  /// check_params. The tensors must outlive the call.
  ///
  /// Errors: argument or unsupported, with op, argument, expected, got.
  Call(const ParsedOp& op, const Tensors& tensors, const Params& params);

  /// The outputs and workspaces to allocate.
  std::vector<OutputInfo> outputs() const;
  /// Checks outputs, data pointers and aliasing of a call that is about to run, and the values of
  /// its CPU tensors.
  void check_run();
  /// True if no output has an element: nothing is launched.
  bool is_empty() const;
  /// Shrinks the views of `tensors` to extents that the data determined.
  void trim(Tensors& tensors, Stream stream) const;

  // ---- queries of kernels and rules
  /// An extent, a let, an integer parameter. T is the product of the token dimensions.
  int64_t operator[](std::string_view symbol) const;
  /// The same as 32 bits, for Specs. Errors: unsupported, naming the argument, if it does not fit.
  int32_t i32(std::string_view symbol) const;
  double number(std::string_view param) const;
  bool flag(std::string_view param) const;
  /// The word of an enum parameter; "" for none.
  std::string_view word(std::string_view param) const;
  bool has_value(std::string_view param) const;  // not none
  /// The dtype of a given tensor as kernels see it (e2m1, not i8), or the dtype that a parameter
  /// names.
  DType dtype(std::string_view tensor_or_param) const;
  /// True if the tensor is given.
  bool has(std::string_view tensor) const;
  /// True if the call has the output and asks for it.
  bool writes(std::string_view output) const;
  /// A tensor as kernels take it: token dimensions merged, codes as e2m1, scales with their padding.
  TensorView tensor(std::string_view name) const;
  /// The tensor as the caller gave it; rank 0 without data if absent.
  const TensorView& given(std::string_view name) const;
  /// The alignment in bytes that all these tensors and lists have, at most 16. Unallocated outputs have 16.
  int32_t align(std::initializer_list<const char*> tensors) const;
  Device device() const;
  const Op& op() const { return *parsed_->op; }
  const Params& params() const { return *params_; }

  /// Throws unless the condition holds. `argument` is a tensor or a parameter.
  void need(bool condition, std::string_view argument, std::string_view what,
            std::string_view expected, std::string_view got,
            ErrorKind kind = ErrorKind::argument) const {
    check_.require(condition, argument, what, expected, got, kind);
  }
  const ArgCheck& check() const { return check_; }

  /// How storage packs the logical columns of a row: e2m1 as I8 [H/2], e5m6 as U8 [H*3/2].
  enum class Packing : uint8_t { none, pairs, twelve_bits };

  std::optional<ParamValue> find(std::string_view name) const override;
  std::string dtype_word(std::string_view tensor) const override;

 private:
  static int64_t stored_columns(Packing packing, int64_t columns);
  Packing packing_of(const TensorRule& rule, DType stored) const;
  const TensorRule& rule(std::string_view name) const;
  DType declared_dtype(const TensorRule& rule) const;  // in storage
  size_t num_extents(const TensorRule& rule) const;    // without a last one that is not there
  void check_presence(const TensorRule& rule) const;
  void check_length(const TensorRule& rule);
  void check_input(const TensorRule& rule, const std::string& name);
  void check_output(const TensorRule& rule, const std::string& name);
  void check_type(const TensorRule& rule, ArgCheck::Tensor& tensor, DType stored_dtype);
  void check_scales(const TensorRule& rule, const std::string& name, bool is_output);
  void bind_known(const Expression& extent);
  void solve_extents(const TensorRule& rule, const std::string& name);
  void check_param_presence() const;
  void check_range(const ParamRule& param) const;
  void check_known_needs() const;
  void check_need(const NeedRule& need) const;
  void check_block_size(const Expression& part) const;
  ScaleBlocks blocks_of(const TensorRule& rule) const;
  std::string values_of(const Expression& rule, const Expression* condition) const;
  std::string blamed_argument(const std::string& name) const;
  OutputInfo output(const TensorRule& rule, const std::string& name) const;
  bool is_asked_for(const TensorRule& rule) const;
  std::vector<std::string> names_of(const TensorRule& rule) const;  // of a list: its elements
  TensorView with_one_token_dim(const TensorRule& rule, const TensorView& view) const;

  const ParsedOp* parsed_;
  const Tensors* tensors_;
  const Params* params_;
  ArgCheck check_;
  int token_rank_ = 1;
};

}  // namespace tessera::kernels
