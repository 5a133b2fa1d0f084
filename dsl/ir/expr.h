#pragma once
// Expressions: immutable, shared, pure. A statement binds a Var to whatever reads memory or needs
// other threads, so an expression may be evaluated anywhere its Vars are in scope. Tile IR and
// thread IR share them.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/base/dtype.h"
#include "dsl/base/source_loc.h"

namespace tessera::ir {

enum class Op : uint8_t {
  constant,  // Node::integer, or Node::number for floats
  var,       // Node::var
  // two arguments of one dtype, result of the same dtype. Integers wrap; div and mod truncate like
  // C++.
  add,
  sub,
  mul,
  div,
  mod,
  min,
  max,
  bit_and,
  bit_or,
  bit_xor,
  // value, amount (u32 or i32). Amounts >= the width give 0 (or the sign, shr of a signed value),
  // as in PTX.
  shl,
  shr,
  // two arguments of one dtype, result boolean
  lt,
  le,
  eq,
  ne,
  // booleans
  logical_and,
  logical_or,
  logical_not,
  select,   // boolean, then, otherwise: both are evaluated
  cast,     // numeric conversion to Node::type, see design: Numbers
  bitcast,  // same width, other dtype
  neg,
  abs,
  fma,
  sqrt,
  rsqrt,
  round_tf32,         // f32: to 10 mantissa bits, ties away from zero; NaN is truncated
  f16x2_toward_zero,  // f32 high, low -> u32 of two f16; NaN becomes canonical
  exp,
  silu,  // f32: x / (1 + exp(-x)), each step rounded
  exp2,
  log,
  log2,
  log1p,
  sin,
  cos,
  tanh,
  erf,
  floor,
  ceil,
  rint,  // ties to even
  // f32, one instruction; subnormal operands and results may become zero
  exp2_approx,
  log2_approx,
  sin_approx,
  cos_approx,
  tanh_approx,
  copysign,
  is_nan,
  is_inf,
  mulhi,  // upper half of a product; i32, u32, i64, u64
  // u32/u64 -> i32
  popcount,
  clz,  // zeros above the highest set bit
  ffs,  // position of the lowest set bit, from 1; 0 = none
  kLast = ffs,
};
TESSERA_API std::string_view name(Op op);
/// popcount, clz, ffs: take a u32 or u64, return i32.
bool counts_bits(Op op);

struct Node;
struct Var;
using VarRef = std::shared_ptr<const Var>;

/// Handle of an immutable node. Null means "absent" where a field says it may be.
class Expr {
 public:
  Expr() = default;
  explicit Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  explicit operator bool() const { return node_ != nullptr; }
  const Node* operator->() const { return node_.get(); }
  const Node& operator*() const { return *node_; }
  const Node* get() const { return node_.get(); }

 private:
  std::shared_ptr<const Node> node_;
};

struct Node {
  Op op = Op::constant;
  DType type = DType::i32;
  int64_t integer = 0;  // integer and boolean constants (two's complement for u64)
  double number = 0;    // float constants, exact for every float dtype
  VarRef var;
  std::vector<Expr> args;
  SourceLoc loc;
};

enum class VarKind : uint8_t {
  dim,     // extent or stride of a tensor parameter, bound by the host from a tensor
  scalar,  // scalar parameter
  thread,  // index of the thread in its block
  block,   // block index along `axis`
  loop,    // loop index
  value,   // bound once by a statement (let, load, collective)
};

/// A named immutable value. Its identity is the object, or its `id`: unique and dense within one
/// kernel, in creation order.
struct Var {
  std::string name;
  DType type = DType::i32;
  VarKind kind = VarKind::value;
  int id = 0;
  int axis = 0;             // block: 0, 1, 2 = x, y, z
  int64_t multiple_of = 1;  // dim: declared and checked by the host
  int per_sm = 0;  // scalar: no argument but so many blocks for each multiprocessor of the device
  Expr lower;      // inclusive; null = unknown
  Expr upper;      // exclusive; null = unknown
  int scope = 0;   // id of the builder scope that may use it
  SourceLoc loc;
};

// ---- construction: folds integer constants and x+0, x*1, x*0, x/1, x%1; never reorders and never
// folds floats.
TESSERA_API Expr constant(DType type, int64_t value);
TESSERA_API Expr float_constant(DType type, double value);  // value must be exact in `type`
TESSERA_API Expr index(int64_t value);                      // i32 if it fits, else i64
TESSERA_API Expr var(VarRef v);
TESSERA_API Expr binary(Op op, Expr a, Expr b, SourceLoc loc = {});
TESSERA_API Expr unary(Op op, Expr a, SourceLoc loc = {});
TESSERA_API Expr call(Op op, DType type, std::vector<Expr> args, SourceLoc loc = {});
TESSERA_API Expr select(Expr condition, Expr then, Expr otherwise, SourceLoc loc = {});
TESSERA_API Expr cast(DType type, Expr a, SourceLoc loc = {});
TESSERA_API Expr bitcast(DType type, Expr a, SourceLoc loc = {});

inline Expr operator+(Expr a, Expr b) {
  return binary(Op::add, std::move(a), std::move(b));
}
inline Expr operator-(Expr a, Expr b) {
  return binary(Op::sub, std::move(a), std::move(b));
}
inline Expr operator*(Expr a, Expr b) {
  return binary(Op::mul, std::move(a), std::move(b));
}
inline Expr operator/(Expr a, Expr b) {
  return binary(Op::div, std::move(a), std::move(b));
}
inline Expr operator%(Expr a, Expr b) {
  return binary(Op::mod, std::move(a), std::move(b));
}
inline Expr operator<(Expr a, Expr b) {
  return binary(Op::lt, std::move(a), std::move(b));
}
inline Expr operator&&(Expr a, Expr b) {
  return binary(Op::logical_and, std::move(a), std::move(b));
}

// ---- inspection
TESSERA_API bool is_constant(const Expr& e);
TESSERA_API bool is_constant(const Expr& e, int64_t value);
TESSERA_API bool equal(const Expr& a, const Expr& b);  // structural
/// Every Var in `e`, each once, in order of first appearance.
TESSERA_API void collect_vars(const Expr& e, std::vector<VarRef>& out);
/// `e` with Vars replaced by `lookup` (null keeps the Var).
template <class Lookup>
Expr substitute(const Expr& e, const Lookup& lookup);
/// The same kind of node with other arguments, folded again.
TESSERA_API Expr rebuild(const Node& node, std::vector<Expr> args);
/// "block_y * 64 + thread / 8": C precedence, for dumps and messages.
TESSERA_API std::string to_string(const Expr& e);

template <class Lookup>
Expr substitute(const Expr& e, const Lookup& lookup) {
  if (e->op == Op::var) {
    Expr replacement = lookup(e->var);
    return replacement ? replacement : e;
  }
  if (e->args.empty()) return e;
  std::vector<Expr> args;
  bool changed = false;
  for (const Expr& arg : e->args) {
    args.push_back(substitute(arg, lookup));
    changed = changed || args.back().get() != arg.get();
  }
  return changed ? rebuild(*e, std::move(args)) : e;
}

}  // namespace tessera::ir
