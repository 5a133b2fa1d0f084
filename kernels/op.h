#pragma once
// The op registry: one row per op, with all that the program, the tests and the benchmarks need to
// know. It uses the words of the interface contract (`tessera list --json`).

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/ir/tile.h"
#include "kernels/call_types.h"
#include "kernels/signature/signature.h"

namespace tessera::kernels {

/// A tensor of an op.
struct TensorInfo {
  std::string name;
  Role role = Role::in;
  bool optional = false;
  bool accumulate = false;
  bool list = false;
  std::vector<std::string> dtypes;  // dtype words, or "as x", "format", ...
  std::vector<std::string> shape;   // symbols: {"T", "H"}
  std::string layout;               // layout words
  std::string presence;             // when an optional tensor is there: "residual"
};

/// A parameter of an op.
struct ParamInfo {
  std::string name;
  using Type = ParamRule::Type;
  Type type = Type::integer;
  std::optional<ParamValue> def;     // default; no value: required; monostate: none
  std::vector<std::string> allowed;  // enum words and numbers; symbols such as "H" name extents
  std::optional<int64_t> min;        // integers: inclusive
  std::string allowed_text;          // "1..E", if the list is incomplete
};

/// Rows of an op's table of parameters. Without a default a parameter is required; the default
/// ParamValue() makes it optional.
///
/// Example: op.params = {integer("num_per_tokens", {"32", "128"}), count("n_splits", "1..16", 16),
///                       number("norm_eps", 1e-6), flag("round_sf", false),
///                       word("out_dtype", {"bf16", "f32"}, "bf16"), tuple("x_block_size")};
using Default = std::optional<ParamValue>;
TESSERA_API ParamInfo integer(std::string name, std::vector<std::string> allowed, Default def = {});
/// An integer >= `least`. `range` also names the upper end, which the op itself compares.
TESSERA_API ParamInfo count(std::string name, std::string range, Default def = {},
                            int64_t least = 1);
TESSERA_API ParamInfo number(std::string name, Default def = {});
TESSERA_API ParamInfo flag(std::string name, bool def);
TESSERA_API ParamInfo word(std::string name, std::vector<std::string> allowed, Default def = {});
TESSERA_API ParamInfo tuple(std::string name, Default def = {});

/// A call to show, check or measure: parameters and inputs.
struct BenchCase {
  std::string label;  // "T=8001 H=7168 bf16 128"
  Params params;
  /// A tensor of the case.
  struct Input {
    std::string name;
    DType dtype;
    Dims shape;
    Dims strides = {};  // none: row-major
    /// Integers: the value of each element in row-major order; absent = random.
    std::function<int64_t(int64_t)> values = {};
  };
  std::vector<Input> inputs;
  int64_t bytes = 0;  // minimum traffic
};

/// The row of an op.
struct OpInfo {
  std::string name, family, purpose;
  std::vector<TensorInfo> tensors;
  std::vector<ParamInfo> params;

  /// Shapes, strides and dtypes of outputs and workspaces. Throws the argument errors of the call.
  std::function<std::vector<OutputInfo>(const Tensors& inputs, const Params&)> outputs;
  /// Checks everything, then runs on the device of the tensors. `tensors` holds inputs and
  /// allocated outputs.
  std::function<void(const Tensors& tensors, const Params&, Stream)> run;
  /// For outputs whose extent depends on data. `outputs` returns the upper bound, `run` leaves the
  /// rest unspecified, and trim() then shrinks the views to the actual extent. Waits for the stream.
  /// Absent in other ops.
  std::function<void(Tensors& tensors, const Params&, Stream)> trim = {};
  /// The kernels that `run` would launch for such tensors (data pointers are not read).
  std::function<std::vector<ir::Kernel>(const Tensors& tensors, const Params&)> kernels;
  /// Cases that represent the op in compile tests, `show` without tensors and warm-up.
  std::vector<BenchCase> examples;
  /// Shapes of the benchmark.
  std::vector<BenchCase> bench;
  /// Parses a case. Errors: argument, naming the word.
  std::function<BenchCase(const std::string& text)> case_of = {};
  /// The same cases without tokens and in other buckets of token counts (buckets.h). Together with
  /// examples and bench they need the kernels of any token count. Computed on every call.
  std::function<std::vector<BenchCase>()> buckets = [] { return std::vector<BenchCase>(); };
};

/// All ops, in the order of the contract.
TESSERA_API const std::vector<OpInfo>& ops();
/// Throws an argument error naming the nearest op.
TESSERA_API const OpInfo& find_op(const std::string& name);
/// Searches the given ops.
TESSERA_API const OpInfo& find_op(const std::vector<OpInfo>& among, const std::string& name);
/// Fills defaults and checks names, types and allowed values; errors name the nearest parameter.
TESSERA_API Params check_params(const OpInfo& op, const Params& given);

/// "int", "float", "bool", "enum", "tuple".
TESSERA_API std::string_view name(ParamInfo::Type type);
/// The allowed values for messages and tables: "{16, 32, H}", "1..E", "int >= 1", "bool".
TESSERA_API std::string allowed_values(const ParamInfo& param);

}  // namespace tessera::kernels
