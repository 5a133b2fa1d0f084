#pragma once
// `tessera list`: the op tables as JSON for machines and as text for people.

#include <string>
#include <string_view>
#include <vector>

#include "kernels/op.h"

namespace tessera::tools {

/// How tables describe a tensor: {"bf16/f32", "[T, H]", "rows"}.
struct TensorWords {
  std::string dtypes, shape, layout;
};
TensorWords words_of(const kernels::OpInfo& op, const kernels::TensorInfo& tensor);

/// A row per op with its purpose, inputs and results, as Markdown; names link to sections.
std::string list_table(const std::vector<kernels::OpInfo>& ops);

/// {"ops": [{"name", "family", "purpose", "tensors": [{"name", "role", "optional", "accumulate",
/// "list", "dtypes", "shape", "layout", "presence"}], "params": [{"name", "type", "default", "allowed"}]}]}, in
/// the order given, indented by two.
///
/// A required parameter has no "default"; none is null. "allowed" is a list where the values are
/// listed (numbers as numbers, symbols such as "H" as strings), a text such as "1..E" or ">= 1" for
/// a range, null when the type says it all. `family` empty: all. Throws Error (argument) for a
/// family that no op has.
std::string list_json(const std::vector<kernels::OpInfo>& ops, const std::string& family);

/// The ops that a user's word finds: where it begins a word of their names, families and purposes, any case, or by
/// another word for the same thing ("quantize" finds the casts, "matmul" the products).
std::vector<kernels::OpInfo> find_ops(const std::vector<kernels::OpInfo>& ops,
                                      std::string_view word);
/// The other words for the same things as a table, with the ops that each finds: for kernels/OPS.md.
std::string synonyms_text(const std::vector<kernels::OpInfo>& ops);
/// A line per op: name, family and purpose.
std::string list_lines(const std::vector<kernels::OpInfo>& ops);

/// One block per op: name, family and purpose, then a line per tensor and parameter.
std::string list_text(const std::vector<kernels::OpInfo>& ops, const std::string& family);

}  // namespace tessera::tools
