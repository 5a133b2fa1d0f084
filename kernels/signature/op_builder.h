#pragma once
// A Builder that declares the tensors of an op as its signature says.

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "dsl/builder.h"
#include "kernels/signature/table.h"

namespace tessera::kernels {

/// An extent that the kernel's Spec fixes.
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
  /// `name` of the kernel, the op's if it is empty. Symbols without a value are dims, named by the
  /// contract's words: T is `tokens`, P `positions`.
  OpBuilder(const Op& op, std::initializer_list<Static> statics, std::string name = {});

  struct Options {
    std::optional<DType> dtype = {};  // where the signature leaves a choice
    int64_t align = 0;                // bytes; 0: one element
  };
  /// The tensor of that name in the signature. The row stride of a matrix of `rows` is NAME_stride;
  /// "list.3" is an element of a list, list_3 in the kernel.
  dsl::Ref tensor(std::string_view name, Options options, SourceLoc loc = SourceLoc::here());
  dsl::Ref tensor(std::string_view name, SourceLoc loc = SourceLoc::here()) {
    return tensor(name, Options{}, loc);
  }
  /// A dynamic extent: the dim of a symbol.
  dsl::Value extent(std::string_view symbol, SourceLoc loc = SourceLoc::here());
  /// A parameter of the op as a scalar of the kernel: f32 for a float, i32 for an int.
  dsl::Value param(std::string_view name, SourceLoc loc = SourceLoc::here());

 private:
  dsl::Arg arg(const Expression& extent, SourceLoc loc);

  const ParsedOp* op_;
  std::map<std::string, int64_t, std::less<>> statics_;
  std::map<std::string, dsl::Value, std::less<>> dims_;
};

}  // namespace tessera::kernels
