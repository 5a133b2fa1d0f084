// kernels/OPS.md: the ops by family; and the page of a family: a section per op.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "dsl/base/error.h"
#include "kernels/op.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/table.h"
#include "tools/lib/calls/op_listing.h"
#include "tools/lib/docs/cpp_interface.h"
#include "tools/lib/docs/doc_pages.h"
#include "tools/lib/docs/measured_page.h"

namespace tessera::tools {
namespace {

using kernels::NeedRule;
using kernels::OpInfo;
using kernels::ParamInfo;
using kernels::ParamRule;
using kernels::Role;
using kernels::Signature;
using kernels::TensorInfo;
using kernels::TensorRule;

std::string in_table(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

std::string capitalised(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

/// ", if `condition`, else absent", or nothing.
std::string presence_text(const std::optional<kernels::Expression>& presence) {
  return presence ? fmt::format(", if `{}`, else absent", presence->text()) : "";
}

std::string role_text(const TensorInfo& tensor, const TensorRule& rule) {
  std::string text = tensor.role == Role::in    ? "in"
                     : tensor.role == Role::out ? "out"
                                                : "in and out";
  if (tensor.accumulate) text = "added to";
  if (tensor.list) text += fmt::format(", one per `{}`", rule.list);
  if (rule.presence) return text + presence_text(rule.presence);
  return tensor.optional ? text + ", optional" : text;
}

std::string tensors_table(const OpInfo& op, const Signature& signature) {
  std::string text = "| tensor | | dtype | shape | layout |\n|---|---|---|---|---|\n";
  for (const TensorInfo& tensor : op.tensors) {
    const TensorRule& rule = *signature.find_tensor(tensor.name);
    const TensorWords words = words_of(op, tensor);
    std::string layout = words.layout == "row_major" ? "" : words.layout;
    if (rule.least) {
      layout += fmt::format(
          "{}values `{}`", layout.empty() ? "" : ", ",
          rule.most ? rule.least->text() + " .. " + rule.most->text() : ">= " + rule.least->text());
    }
    if (!rule.remark.empty()) layout += (layout.empty() ? "" : "; ") + rule.remark;
    text += fmt::format("| `{}` | {} | {} | `{}` | {} |\n", tensor.name, role_text(tensor, rule),
                        words.dtypes, words.shape, in_table(layout));
  }
  for (const TensorRule& rule : signature.tensors) {
    if (!rule.is_workspace) continue;
    std::vector<std::string> shape;
    bool is_stated = true;  // else a function of the op has it
    for (const kernels::Expression& extent : rule.shape) {
      is_stated = is_stated && !extent.text().ends_with("()");
      shape.push_back(extent.text());
    }
    text += fmt::format("| `{}` | scratch memory{} | {} | {} |  |\n", rule.name,
                        presence_text(rule.presence), fmt::join(rule.dtypes, "/"),
                        is_stated ? fmt::format("`[{}]`", fmt::join(shape, ", "))
                                  : "that of [workspace_of](../OPS.md#workspaces)");
  }
  return text + "\n";
}

std::string params_table(const OpInfo& op, const Signature& signature) {
  if (op.params.empty()) return "";
  std::string text = "| parameter | values | default |\n|---|---|---|\n";
  for (const ParamInfo& param : op.params) {
    const ParamRule& rule = *signature.find_param(param.name);
    text +=
        fmt::format("| `{}` | {} | {}{} |\n", param.name, in_table(kernels::allowed_values(param)),
                    param.def ? fmt::format("`{}`", kernels::to_string(*param.def)) : "required",
                    presence_text(rule.presence));
  }
  return text + "\n";
}

std::string rules_text(const Signature& signature) {
  std::string text;
  for (const bool is_limit : {false, true}) {
    std::string rules;
    for (const NeedRule& need : signature.needs) {
      if (need.is_limit != is_limit) continue;
      rules += fmt::format("- `{}`{}{}\n", need.rule.text(),
                           need.condition ? fmt::format(" if `{}`", need.condition->text()) : "",
                           need.what.empty() ? "" : fmt::format(": \"{}\"", need.what));
    }
    if (rules.empty()) continue;
    text += is_limit ? "Limits; beyond them the call is refused as unsupported:\n\n"
                     : "Rules; a call that breaks one is refused:\n\n";
    text += rules + "\n";
  }
  return text;
}

/// The meanings of the symbols of rules and shapes. The name of a function of the op would tell a reader nothing.
std::string lets_text(const Signature& signature) {
  std::string text;
  for (const kernels::LetRule& let : signature.lets) {
    const std::string value = let.trimmed_by.empty() ? let.value.text() : let.trimmed_by;
    if (value.ends_with("()")) continue;
    text += fmt::format("{}`{} = {}`", text.empty() ? "Here " : ", ", fmt::join(let.symbols, ", "),
                        value);
  }
  return text.empty() ? text : text + ".\n\n";
}

std::string python_value(const kernels::ParamValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "True" : "False";
  if (const auto* word = std::get_if<std::string>(&value)) return fmt::format("\"{}\"", *word);
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    return fmt::format("({})", fmt::join(*list, ", "));
  }
  return kernels::to_string(value);
}

/// A call with the tensors and parameters of an example: tensors that are always there stand first, all
/// else goes by name. New accumulators and the defaults stay out.
std::string python_call(const OpInfo& op, const kernels::BenchCase& example) {
  std::vector<std::string> arguments, by_name, results;
  for (const TensorInfo& tensor : op.tensors) {
    if (tensor.accumulate || tensor.role == Role::out) {
      results.push_back(tensor.name);
      continue;
    }
    const bool is_given =
        std::any_of(example.inputs.begin(), example.inputs.end(), [&](const auto& input) {
          return input.name == tensor.name || input.name.starts_with(tensor.name + ".");
        });
    if (!tensor.optional) arguments.push_back(tensor.name);
    if (tensor.optional && is_given) by_name.push_back(fmt::format("{0}={0}", tensor.name));
  }
  if (op.trim) results.push_back(results.back() + "_host");
  for (const ParamInfo& param : op.params) {
    const auto found = example.params.find(param.name);
    if (found == example.params.end() || (param.def && *param.def == found->second) ||
        std::holds_alternative<std::monostate>(found->second)) {
      continue;
    }
    by_name.push_back(param.name + "=" + python_value(found->second));
  }
  arguments.insert(arguments.end(), by_name.begin(), by_name.end());
  std::string text, line;
  if (!results.empty()) line = fmt::format("{} = ", fmt::join(results, ", "));
  line += fmt::format("tessera.{}(", op.name);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string argument = arguments[i] + (i + 1 < arguments.size() ? ", " : ")");
    if (line.size() + argument.size() > 100) {
      line.resize(line.find_last_not_of(' ') + 1);
      text += line + "\n";
      line = "    ";
    }
    line += argument;
  }
  return "```python in: op\n" + text + line + "\n```\n\n";
}

/// The purpose of a family, in the words of somebody who looks for an op.
struct FamilyWords {
  const char *family, *words;
};
constexpr FamilyWords kFamilies[] = {
    {"gemm",
     "Multiply matrices (matmul, linear layers): bf16, and FP8 with scales of blocks, dense or by "
     "groups of rows."},
    {"attention",
     "Attention (softmax of q k^T, times v; FlashAttention, SDPA): heads in groups, causal, "
     "windows, "
     "sinks, lengths."},
    {"linear",
     "Linear attention (gated DeltaNet, GDN): the gated delta rule over requests and in decoding, "
     "the short causal "
     "convolution before it, the gated RMSNorm after it."},
    {"quant",
     "Quantise and dequantise: casts between floats and FP8, FP4 or 12-bit floats with scales; "
     "gated activations "
     "(SwiGLU) that cast."},
    {"moe",
     "Route tokens to experts: gates with softmax or sigmoid scores, top-k, dispatch (expand, "
     "permute), combine "
     "(reduce, unpermute), counts."},
    {"transpose", "Transpose matrices."},
    {"mhc",
     "Manifold hyper-connections: several residual streams that are normed (RMSNorm), mixed before "
     "a sub-layer and "
     "behind it; Sinkhorn; forward and backward."},
    {"engram",
     "Engram: rows of hashed n-gram embedding tables, and the gate (RMSNorm, dot, sigmoid) that "
     "adds them."},
    {"modeling",
     "Whole parts of a layer in one call, forward and backward: the Engram gate, "
     "hyper-connections."},
    {"serving",
     "Serve: exact top-k over long rows, the compressor of the KV cache (plan, prefill, decode, "
     "store), routing by "
     "hash tables."},
};

}  // namespace

std::string ops_index() {
  const std::vector<OpInfo>& ops = kernels::ops();
  std::string text;
  size_t count = 0;
  for (const FamilyWords& family : kFamilies) {
    text += fmt::format("### {0}\n\n{1} Page: [{0}]({0}/README.md).\n\n| op | does |\n|---|---|\n",
                        family.family, family.words);
    for (const OpInfo& op : ops) {
      if (op.family != family.family) continue;
      text += fmt::format("| [`{0}`]({1}/README.md#{0}) | {2} |\n", op.name, op.family, op.purpose);
      ++count;
    }
    text += "\n";
  }
  if (count != ops.size()) internal_error("a family of ops has no words for its page");
  text.pop_back();
  return text;
}

std::string ops_text(const std::string& root, const std::string& family) {
  const Records records = Records::load(root);
  const std::vector<OpInfo>& all = kernels::ops();
  std::vector<OpInfo> ops;
  std::string sections;
  for (size_t i = 0; i < all.size(); ++i) {
    const OpInfo& op = all[i];
    if (op.family != family) continue;
    ops.push_back(op);
    const kernels::Op& written = *kernels::all_ops()[i];
    const Signature& signature = kernels::parsed(written).signature;
    sections += fmt::format("## {}\n\n{}.\n\n", op.name, capitalised(op.purpose));
    sections += tensors_table(op, signature) + params_table(op, signature) + lets_text(signature) +
                rules_text(signature);
    if (!op.examples.empty()) {
      sections += "```cpp in: op\n" + cpp_call(written, op.examples.front()) + "```\n\n" +
                  python_call(op, op.examples.front());
    }
    sections += times_table(records, op);
  }
  if (ops.empty()) {
    throw Error({.kind = ErrorKind::argument,
                 .what = "a page asks for a family that no op has",
                 .argument = "family",
                 .expected = "gemm, moe, ..",
                 .got = family});
  }
  std::string text = list_table(ops) + "\n" + sections;
  text.pop_back();
  return text;
}

}  // namespace tessera::tools
