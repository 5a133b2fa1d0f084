#pragma once
// The signature of an op: the row of the interface contract as text, parsed once. Checks, outputs,
// the binding of kernels, listings and cases derive from it.
//
//   x          bf16/f32/e4m3/e2m1 [T, H] rows      # inputs first; a remark behind '#'
//   x_sf?      SF(x_block_size) x_sf_layout        iff x is e4m3/e2m1
//   topk_idx   i64 [T, K]                          values -1 .. E - 1
//   -> out     format [T, H] align 16
//   -> out_sf  SF(1, num_per_channels) sf_layout
//   -> sums    f32 [P, C] in sf_layout             # strides and padding of scales
//   a          bf16 [M, K] any1                    # row- or column-major rows
//   -> dot?    f32 [T, hc]                         iff save_for_backward
//   -> inout unmapped_topk_idx?  i64 [T, K] rows
//   -> acc grad_fn?              f32 [M, n*H]  # added to; its caller fills a new one with zeros
//   list pre_mix_list (L)        f32 [T.., n]
//   b_sf       f32 [G, N, B?]                      # or [G, N]: B is an extent if the tensor has it
//   -> out_sf  f32 [G, N, B if by_block()]         # or [G, N] where the rule does not hold
//   -> out     e4m3/bf16 [G, N]                    # of an output: that of the function out_dtype()
//   workspace  f32 [elements()]                    # memory of the call; `workspace?` with iff as above
//   param      format  {e4m3, e2m1}
//   param      norm_eps, pre_eps  float = 1e-6
//   param      n_splits  int 1..16 = 16
//   let        group = num_per_channels
//   need       H % 64 = 0                          if not group in {16, 32, 64, 128}
//   limit      group <= 65536
//   bucket     T * K at 2048, 65536
//
// A line that begins with '|' continues the previous line. `T..` stands for one or more token
// dimensions, the same in all tensors of the call, and `..` for any number of them; T is their
// product. `need` is an argument error, `limit` an unsupported one. Both blame their first name, or
// the name after `on`, and print the quoted text if there is one:
// need x % 2 = 0 if y on y "y takes pairs only".

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/api.h"
#include "kernels/signature/expression.h"

namespace tessera::kernels {

enum class Role : uint8_t { in, out, inout };

struct TESSERA_API TensorRule {
  enum class Layout : uint8_t { row_major, rows, any, any1 };
  /// One scale per block of a matrix.
  struct Scales {
    std::string matrix;             // the tensor that they scale; empty: the shape is given
    std::vector<Expression> block;  // rows and columns, or one tuple parameter
    std::string layout_param;       // empty: row-major
  };

  std::string name;
  Role role = Role::in;
  bool optional = false;
  bool accumulate = false;
  std::string list;  // the extent that counts name.0, name.1, ...; empty: a single tensor
  /// Dtype words; or only "as OTHER", or a parameter whose word is the dtype.
  std::vector<std::string> dtypes;
  bool has_token_dims = false;       // the first extent stands for several dimensions
  bool may_lack_token_dims = false;  // any number of them, also none
  std::vector<Expression> shape;
  bool may_lack_last = false;  // "B?" of an input: the last extent is one if the tensor has it
  std::optional<Expression> last_presence;  // "B if RULE" of an output
  Layout layout = Layout::row_major;
  std::optional<Scales> scales;           // if set, there are no dtypes, shape, layout
  std::optional<Expression> least, most;  // range of its values
  std::optional<Expression> presence;     // an optional tensor is given iff this holds
  int64_t align = 0;                      // bytes; 0: one element
  bool is_workspace = false;              // scratch memory of the call, not a result
  std::string remark;

  bool is_input() const { return role != Role::out && !is_workspace; }
  /// The layout in the contract's words: "row_major", "rows", "any", "any1", "SF(1,H) sf_layout".
  std::string layout_text() const;
};

struct ParamRule {
  enum class Type : uint8_t { integer, floating, boolean, word, tuple };
  std::string name;
  Type type = Type::integer;
  std::optional<ParamValue> standard;  // default; nothing: required; monostate: none
  std::vector<std::string> allowed;    // words and numbers; symbols such as "H" name extents
  std::optional<int64_t> least;        // of integers
  std::string range;                   // "1..E", ">= 1", as written
  std::optional<Expression> most;      // of "1..E"
  std::optional<Expression> presence;  // given iff this holds
};

/// symbol = value, or a list of symbols = a tuple parameter.
struct TESSERA_API LetRule {
  std::vector<std::string> symbols;
  Expression value;
  std::string
      trimmed_by;  // "taken()": the value is a bound, which this function replaces afterwards

  /// The value of one symbol; none if the list is too short.
  ParamValue value_of(std::string_view symbol, const Scope& scope) const;
};

struct NeedRule {
  Expression rule;
  std::optional<Expression> condition;
  std::string blamed;  // the tensor, extent or parameter to blame
  std::string what;    // text of the message; empty: a standard text
  bool is_limit = false;
};

/// The values of a dynamic extent at which kernels may change.
struct BucketRule {
  Expression of;
  std::vector<int64_t> at;  // ascending: the first value of each next bucket
};

struct TESSERA_API Signature {
  std::vector<TensorRule> tensors;
  std::vector<ParamRule> params;
  std::vector<LetRule> lets;
  std::vector<NeedRule> needs;
  std::vector<BucketRule> buckets;

  /// Errors: program, with the op, the line and what was expected.
  static Signature parse(std::string_view op, std::string_view text);

  const TensorRule* find_tensor(std::string_view name) const;
  const ParamRule* find_param(std::string_view name) const;
  const LetRule* find_let(std::string_view symbol) const;
};

}  // namespace tessera::kernels
