#pragma once
// A Builder that declares the tensors of an op from its signature.

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "dsl/builder.h"
#include "kernels/signature/table.h"

namespace tessera::kernels {

/// An extent fixed by the kernel's Spec.
struct Static {
  std::string_view symbol;
  int64_t value;
};

/// Example:
///
///   OpBuilder k(post_fwd_op, {{"n", s.n}, {"H", s.hidden}});
///   auto x = k.tensor("x", {.align = s.align});    // bf16 [tokens, hidden]
///   auto out = k.tensor("out", {.align = s.align});
///   auto at = k.launch({ceil_div(k.extent("T"), 4)}, {.threads = 128});
class OpBuilder : public dsl::Builder {
 public:
  /// `name` is the kernel's name, by default the op's. Symbols without a static value become dims
  /// with the contract's names: T is `tokens`, P `positions`.
  OpBuilder(const Op& op, std::initializer_list<Static> statics, std::string name = {});

  struct Options {
    std::optional<DType> dtype = {};  // if the signature leaves a choice
    int64_t align = 0;                // bytes; 0: one element
  };
  /// Declares the tensor of that name. The row stride of a matrix of `rows` is NAME_stride.
  /// "list.3" is an element of a list, list_3 in the kernel.
  dsl::Ref tensor(std::string_view name, Options options, SourceLoc loc = SourceLoc::here());
  dsl::Ref tensor(std::string_view name, SourceLoc loc = SourceLoc::here()) {
    return tensor(name, Options{}, loc);
  }
  /// The dim of a dynamic extent.
  dsl::Value extent(std::string_view symbol, SourceLoc loc = SourceLoc::here());
  /// Declares a parameter of the op as a kernel scalar: f32 for a float, i32 for an int.
  dsl::Value param(std::string_view name, SourceLoc loc = SourceLoc::here());

 private:
  dsl::Arg arg(const Expression& extent, SourceLoc loc);

  const ParsedOp* op_;
  std::map<std::string, int64_t, std::less<>> statics_;
  std::map<std::string, dsl::Value, std::less<>> dims_;
};

}  // namespace tessera::kernels
