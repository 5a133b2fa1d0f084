#pragma once
// How the arguments of a call become the parameters of a kernel: which tensor gives each dynamic
// extent and stride its value, and what all other extents and strides must then be. Made once per
// kernel, applied on every call.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dsl/base/tensor_view.h"
#include "dsl/ir/tile.h"
#include "kernels/jit/host_expr.h"
#include "kernels/jit/scalar.h"
#include "runtime/launch.h"

namespace tessera::kernels::jit {

/// Dims and scalars of one kernel; these and its tensors.
inline constexpr size_t kMaxSlots = 64;
inline constexpr size_t kMaxArguments = 128;
/// Tensor maps of one kernel: as many as codegen makes at most, one per tensor and box.
inline constexpr size_t kMaxMaps = 32;

/// Whose kernel it is: of one of Tessera's ops, or a caller's own, to whose lines errors then point.
enum class Author : uint8_t { tessera, caller };

/// The values of one call.
struct Binding {
  std::array<int64_t, kMaxSlots> slots;  // dims, then scalars
  std::array<int64_t, 3> grid = {1, 1, 1};
  bool empty = false;  // nothing to do: a grid extent is 0 or every output is empty
};

/// A persistent loop with an index of i32: the kernel counts its tiles and steps over them in i32.
struct PersistentLoop {
  ir::Expr tiles, step;
  std::vector<ir::Expr> divisors;  // that take the number of a tile apart
  SourceLoc loc;
};
std::vector<PersistentLoop> persistent_loops(const ir::Kernel& kernel);

/// Throws a program error for an ir::Kernel that no Builder has finished.
void check_finished(const ir::Kernel& kernel);

class ArgumentBinder {
 public:
  /// Throws a program error for what is no finished kernel, has too many parameters, a scalar that
  /// cannot be passed or a dim that no tensor determines.
  ArgumentBinder(std::string op, const ir::Kernel& kernel, Author author);

  /// Checks `tensors` (in parameter order; rank 0 without data = absent) and `scalars` against the
  /// declaration and reads the dims off the tensors. Strides of extent-1 dimensions and of empty
  /// tensors do not matter. Does not allocate unless it throws.
  ///
  /// Errors: argument, naming the tensor or scalar and, for a kernel of the caller's, the line that
  ///         declares it: number of tensors or scalars, impossible view, missing, read-only, dtype,
  ///         rank, extent, stride, multiple, alignment, an output that shares memory with another
  ///         tensor unless both may_alias; type or range of a scalar; grid beyond 2^31-1, 65535,
  ///         65535 blocks.
  Binding bind(std::span<const TensorView> tensors, std::span<const Scalar> scalars) const;

  /// The tensor that the kernel streams through L2: the first that asynchronous copies read with
  /// CacheHint::evict_first, as a whole.
  runtime::Streamed streamed(std::span<const TensorView> tensors) const;

  const std::string& op() const { return op_; }
  const std::string& tensor_name(size_t i) const { return tensors_[i].name; }
  bool is_output(size_t i) const { return tensors_[i].is_output; }
  const std::string& scalar_name(size_t i) const { return scalars_[given_[i]].name; }
  size_t num_tensors() const { return tensors_.size(); }
  size_t num_dims() const { return dims_.size(); }
  size_t num_scalars() const { return given_.size(); }
  /// Types of dims, then scalars.
  std::vector<DType> slot_types() const;
  /// Parameter names in order: tensors, dims, scalars.
  std::vector<std::string> parameter_names() const;

 private:
  /// An extent or a stride of a tensor.
  struct Place {
    size_t tensor = 0;
    int dim = 0;
    bool is_stride = false;
  };
  struct Tensor {
    std::string name;
    DType dtype = DType::f32;
    int rank = 0;
    int64_t align = 1;  // bytes
    bool optional = false;
    bool is_output = false;
    bool may_alias = false;
    std::string declared;  // "bf16[tokens, 7168]"
    SourceLoc loc;
  };
  struct ScalarParam {
    std::string name;
    DType type = DType::f32;
    SourceLoc loc;
    int per_sm = 0;  // above 0: no argument, see ir::Var
  };
  struct Dim {
    std::string name;
    DType type = DType::i32;
    int64_t multiple_of = 1;
    std::optional<HostExpr> lower, upper;
    std::vector<Place> places;  // where the declaration has exactly this dim; extents first
  };
  struct Check {
    Place place;
    HostExpr expected;
    bool is_index = false;  // an extent, more than a dim, that i32 indices must reach
  };

  /// A PersistentLoop.
  struct Walk {
    HostExpr tiles, step;
    std::vector<HostExpr> divisors;
    SourceLoc loc;
  };

  void add_places(const ir::Kernel& kernel, bool strides);
  /// Bytes from the lowest to the highest that a tensor occupies; 0 for one without elements.
  int64_t check_tensor(const Tensor& tensor, const TensorView& view) const;
  int64_t bind_scalar(const ScalarParam& param, const Scalar& value) const;
  void check_apart(size_t output, size_t other, std::span<const TensorView> tensors) const;
  const Place* bind_dim(const Dim& dim, std::span<const TensorView> tensors, int64_t& value) const;
  void check_dim(const Dim& dim, const Place& place, const Binding& binding,
                 std::span<const TensorView> tensors, int64_t value) const;
  void check_place(const Check& check, const Binding& binding,
                   std::span<const TensorView> tensors) const;
  void bind_grid(Binding& binding) const;
  void check_walk(const Walk& walk, const Binding& binding) const;
  [[noreturn]] void fail_count(size_t num_tensors, size_t num_scalars) const;
  /// About a tensor, a scalar or, without a name, the whole call.
  [[noreturn]] void fail(std::string code, const std::string& argument, SourceLoc loc,
                         std::string what, std::string expected, std::string got) const;
  [[noreturn]] void fail(std::string code, const Tensor& tensor, std::string what,
                         std::string expected, std::string got) const {
    fail(std::move(code), tensor.name, tensor.loc, std::move(what), std::move(expected),
         std::move(got));
  }
  SourceLoc line(SourceLoc loc) const { return author_ == Author::caller ? loc : SourceLoc(); }
  std::string origin(const Dim& dim, std::span<const TensorView> tensors) const;

  std::string op_;
  Author author_;
  std::vector<Tensor> tensors_;
  std::vector<size_t> outputs_;  // of tensors_
  std::vector<Dim> dims_;
  std::vector<ScalarParam> scalars_;
  std::vector<size_t> given_;  // of scalars_: the arguments
  std::vector<Check> checks_;
  std::vector<HostExpr> grid_;
  std::vector<Walk> walks_;
  int streamed_ = -1;  // a tensor
};

}  // namespace tessera::kernels::jit
