#pragma once
// Checks the arguments of an op call and explains failures. Extents are bound to symbols once and
// reported with their origin, so that ops state requirements and never format a message.

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/error.h"
#include "dsl/base/tensor_view.h"
#include "kernels/call_types.h"
#include "kernels/jit/overlap.h"  // disjoint, for callers that compare two views

namespace tessera::kernels {

struct OpInfo;

/// An extent of an expected shape: a symbol (bound at its first use, compared afterwards) or a
/// number.
struct Extent {
  std::string symbol;
  int64_t value = -1;

  Extent(const char* symbol_) : symbol(symbol_) {}             // NOLINT: shape("T", 3) reads best
  Extent(std::string symbol_) : symbol(std::move(symbol_)) {}  // NOLINT
  Extent(int64_t value_) : value(value_) {}                    // NOLINT
  Extent(int value_) : value(value_) {}                        // NOLINT
};

/// Example:
///
///   ArgCheck check("per_token_cast");
///   check.tensor("x", tensors).dtype({DType::bf16, DType::f32}).shape("T", "H").rows();
///   check.bind("C", check["H"] / group, "H / num_per_channels");
///   check.output("out", tensors).dtype(DType::e4m3).shape("T", "H").row_major();
///   check.output("out_sf", tensors).dtype(DType::f32).shape("T", "C").row_major();
///   check.memory();   // in run(): data, alignment, aliasing
///
/// Every failure throws Error with op, argument, expected and got. Strides of extent-1 dimensions
/// and of empty tensors are never checked. An absent optional tensor passes every check.
class ArgCheck {
 public:
  class Tensor;

  explicit ArgCheck(std::string_view op) : op_(op) {}

  /// A required input, on the device of the earlier tensors.
  Tensor tensor(std::string_view name, const TensorView& view);
  Tensor tensor(std::string_view name, const Tensors& tensors);
  /// An optional input; absent: not in `tensors`, or rank 0 and no data.
  Tensor optional(std::string_view name, const TensorView& view);
  Tensor optional(std::string_view name, const Tensors& tensors);
  /// A tensor that the op writes, so not in constant memory. memory() forbids it to share bytes with any other tensor.
  Tensor output(std::string_view name, const TensorView& view);
  Tensor output(std::string_view name, const Tensors& tensors);
  Tensor optional_output(std::string_view name, const Tensors& tensors);

  /// True if the named tensor was given.
  bool has(std::string_view name) const;
  /// The extent bound to a symbol, or set by bind(). An unbound symbol is a bug of the op.
  int64_t operator[](std::string_view symbol) const;
  /// The origin of a symbol: "H = 100 from x dim 1", and the tensor to blame ("" for formulas).
  struct Known {
    int64_t value;
    std::string text;
    std::string argument;
  };
  std::optional<Known> known(std::string_view symbol) const;
  /// Binds a symbol to a computed value. Messages show `formula` as its origin and blame the tensor
  /// `argument`.
  void bind(std::string_view symbol, int64_t value, std::string_view formula,
            std::string_view argument = {});

  /// Requires lowest <= value <= highest of an integer parameter.
  void param_in_range(std::string_view name, int64_t value, int64_t lowest, int64_t highest) const;
  /// Requires any other condition on an argument (tensor or parameter). A `what` without 'argument'
  /// is prefixed with it. `kind` unsupported: valid, but not implemented. `code` as in dsl/ERRORS.md.
  void require(bool condition, std::string_view argument, std::string_view what,
               std::string_view expected, std::string_view got,
               ErrorKind kind = ErrorKind::argument, std::string_view code = "VALUE") const;

  /// The checks that need addresses, for calls about to run. Every non-empty tensor has data at a
  /// multiple of its element size, and no output shares a byte with another tensor (interleaved
  /// views of one buffer are recognised).
  void memory() const;

 private:
  friend void check_tensor_names(const OpInfo& op, const Tensors& tensors);

  struct Symbol {
    std::string name;
    int64_t value;
    std::string origin;        // "x dim 0" or "= ceil(H / 128)"
    std::string argument;      // the tensor, empty for formulas
    std::string text() const;  // "T = 5 from x dim 0"
  };
  struct Given {
    std::string name;
    TensorView view;
    bool is_output;
    TensorView memory;  // the view, or more if the op uses padding
  };

  Tensor add(std::string_view name, const TensorView* view, bool optional, bool is_output,
             std::string_view got);
  const Symbol* find(std::string_view symbol) const;
  void require_aligned(std::string_view name, const TensorView& view, int64_t bytes) const;
  /// An argument error; the codes are those of dsl/ERRORS.md.
  [[noreturn]] void fail(std::string code, std::string_view argument, std::string what,
                         std::string expected, std::string got, std::string hint = {},
                         ErrorKind kind = ErrorKind::argument) const;

  std::string op_;
  std::vector<Symbol> symbols_;
  std::vector<Given> given_;
};

/// The chain that ArgCheck::tensor starts; valid until the end of the full expression.
class ArgCheck::Tensor {
 public:
  Tensor& dtype(DType dtype) { return this->dtype(std::span<const DType>(&dtype, 1)); }
  Tensor& dtype(std::span<const DType> allowed);
  Tensor& dtype(std::initializer_list<DType> allowed) {
    return dtype(std::span<const DType>(allowed.begin(), allowed.size()));
  }
  /// Any element of 1, 2 or 4 bytes: data that is moved, not interpreted.
  Tensor& movable();

  template <class... Extents>
  Tensor& shape(const Extents&... extents) {
    return shape_of({Extent(extents)...});
  }
  Tensor& shape_of(const std::vector<Extent>& extents);
  /// Requires the last stride to be `stride`.
  Tensor& last_stride(int64_t stride);
  /// Requires the first stride to be `stride`.
  Tensor& first_stride(int64_t stride);
  /// Contiguous, row-major.
  Tensor& row_major();
  /// Last stride 1, other strides free but not overlapping.
  Tensor& rows();
  /// Any strides that do not overlap.
  Tensor& any_strides();
  /// One of the last two strides 1, the others free but not overlapping.
  Tensor& rows_or_columns();
  /// Exactly these strides, for dimensions of more than one element.
  Tensor& strides(const Dims& expected);
  /// The data pointer is a multiple of `bytes`. A null pointer passes.
  Tensor& aligned(int64_t bytes);
  /// The memory that the op uses, padding included; memory() compares it.
  Tensor& occupies(const TensorView& memory);

 private:
  friend class ArgCheck;
  Tensor(ArgCheck& check, std::string name, const TensorView* view);

  bool checks_stride(int dim) const;
  std::string expected_shape(const std::vector<Extent>& extents) const;
  std::string got() const;
  [[noreturn]] void fail_strides(std::string expected) const;

  ArgCheck* check_;
  std::string name_;
  TensorView view_;
  bool present_;
  std::string dtype_words_;  // "bf16|f32", empty before dtype()
};

/// Checks the tensor names of a call against the op's table. An unknown name (with the nearest one)
/// and a missing input are errors. Outputs may be absent here; lists are `name.0`, `name.1`, ...
/// without gaps.
void check_tensor_names(const OpInfo& op, const Tensors& tensors);

}  // namespace tessera::kernels
