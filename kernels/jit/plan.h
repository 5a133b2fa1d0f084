#pragma once
// How the arguments of a call become the parameters of a kernel: which tensor gives each dynamic
// extent and stride its value, and what all other extents and strides must then be. Made once per
// kernel, applied on every call.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dsl/base/tensor_view.h"
#include "dsl/ir/tile.h"
#include "kernels/jit/host_expr.h"
#include "runtime/launch.h"

namespace tessera::kernels::jit {

/// Dims and scalars of one kernel.
inline constexpr size_t kMaxSlots = 64;

/// The values of one call.
struct Binding {
  std::array<int64_t, kMaxSlots> slots;  // dims, then scalars
  std::array<int64_t, 3> grid = {1, 1, 1};
  bool empty = false;  // nothing to do: a grid extent is 0 or every output is empty
};

class Plan {
 public:
  /// Throws a program error for a dim that no tensor determines.
  Plan(std::string op, const ir::Kernel& kernel);

  /// Checks `tensors` (in parameter order; rank 0 without data = absent) against the declaration
  /// and reads the dims off them. Strides of extent-1 dimensions and of empty tensors do not
  /// matter. Does not allocate unless it throws.
  ///
  /// Errors: argument, naming the tensor: number of tensors or scalars, missing, dtype, rank,
  /// extent, stride, multiple,
  ///         alignment; grid beyond 2^31-1, 65535, 65535 blocks.
  Binding bind(std::span<const TensorView> tensors, std::span<const int64_t> scalars) const;

  /// What the kernel streams through L2: the first tensor that asynchronous copies read with
  /// CacheHint::evict_first, as a whole.
  runtime::Streamed streamed(std::span<const TensorView> tensors) const;

  const std::string& op() const { return op_; }
  size_t num_tensors() const { return tensors_.size(); }
  size_t num_dims() const { return dims_.size(); }
  size_t num_scalars() const { return scalars_.size(); }
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
    std::string declared;  // "bf16[tokens, 7168]"
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
  };

  void add_places(const ir::Kernel& kernel, bool strides);
  void check_tensor(size_t tensor_idx, const TensorView& view) const;
  const Place* bind_dim(const Dim& dim, std::span<const TensorView> tensors, int64_t& value) const;
  void check_dim(const Dim& dim, const Place& place, const Binding& binding,
                 std::span<const TensorView> tensors, int64_t value) const;
  void check_place(const Check& check, const Binding& binding,
                   std::span<const TensorView> tensors) const;
  void bind_grid(Binding& binding) const;
  [[noreturn]] void fail(const std::string& argument, std::string what, std::string expected,
                         std::string got) const;
  std::string origin(const Dim& dim, std::span<const TensorView> tensors) const;

  std::string op_;
  std::vector<Tensor> tensors_;
  std::vector<Dim> dims_;
  std::vector<std::string> scalars_;
  std::vector<Check> checks_;
  std::vector<HostExpr> grid_;
  int streamed_ = -1;  // a tensor
};

}  // namespace tessera::kernels::jit
