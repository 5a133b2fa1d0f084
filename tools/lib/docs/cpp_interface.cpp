#include "tools/lib/docs/cpp_interface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "kernels/op.h"
#include "kernels/signature/table.h"

namespace tessera::tools {
namespace {

using kernels::Op;
using kernels::ParamInfo;
using kernels::ParamRule;
using kernels::ParsedOp;
using kernels::TensorRule;

/// "per_token_cast" to "PerTokenCast".
std::string type_name(std::string_view name) {
  std::string result;
  bool is_first = true;
  for (const char c : name) {
    if (c != '_') result += is_first ? static_cast<char>(std::toupper(c)) : c;
    is_first = c == '_';
  }
  return result;
}

bool are_dtypes(const std::vector<std::string>& words) {
  return std::all_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "none" || kernels::dtype_named(word).has_value();
  });
}

bool is_layout(const ParamRule& param) {
  return param.name.ends_with("sf_layout");
}

/// The type of an option's value.
std::string value_type(const ParamRule& param) {
  switch (param.type) {
    case ParamRule::Type::integer:
      return "int64_t";
    case ParamRule::Type::floating:
      return "double";
    case ParamRule::Type::boolean:
      return "bool";
    case ParamRule::Type::tuple:
      return "std::array<int64_t, 2>";
    case ParamRule::Type::word:
      break;
  }
  if (is_layout(param)) return "SfLayout";
  return are_dtypes(param.allowed) ? "DType" : type_name(param.name);
}

std::string member(const ParamRule& param) {
  const std::string type = value_type(param);
  const bool may_be_absent =
      !param.standard || std::holds_alternative<std::monostate>(*param.standard);
  if (may_be_absent) {
    return fmt::format("  std::optional<{}> {} = {{}};{}\n", type, param.name,
                       param.standard ? "" : "  // must be given");
  }
  const std::string value = kernels::to_string(*param.standard);
  const bool is_word = param.type == ParamRule::Type::word;
  return fmt::format("  {} {} = {}{};\n", type, param.name, is_word ? type + "::" : "", value);
}

/// The lines of a signature, without blanks before them.
std::string documentation(const Op& op) {
  std::string text = fmt::format("/// {}\n///\n", op.purpose);
  for (std::string_view rest = op.signature; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (!line.empty()) text += fmt::format("///   {}\n", line);
  }
  return text;
}

bool has_workspace(const ParsedOp& parsed) {
  return std::any_of(parsed.signature.tensors.begin(), parsed.signature.tensors.end(),
                     [](const TensorRule& tensor) { return tensor.is_workspace; });
}

std::string declaration(const Op& op) {
  const ParsedOp& parsed = kernels::parsed(op);
  std::string text = documentation(op);
  text += fmt::format("struct {} {{\n", type_name(op.name));
  for (const TensorRule& tensor : parsed.signature.tensors) {
    text += fmt::format("  {} {} = {{}};\n",
                        tensor.list.empty() ? "TensorView" : "std::span<const TensorView>",
                        tensor.name);
  }
  for (const ParamRule& param : parsed.signature.params) text += member(param);
  text += fmt::format("}};\nTESSERA_API void {}(const {}& call, Stream stream);\n", op.name,
                      type_name(op.name));
  if (!has_workspace(parsed)) return text;
  return text +
         fmt::format("TESSERA_API TensorView workspace_of(const {}& call);\n", type_name(op.name));
}

/// An enum of all words that some op takes for a parameter of this name.
struct Enum {
  std::string param;
  std::vector<std::string> words;
};

/// The enums of words that are neither dtypes nor layouts. An op refuses the words of others.
std::vector<Enum> enums(const std::vector<const Op*>& ops) {
  std::vector<Enum> found;
  for (const Op* op : ops) {
    for (const ParamRule& param : kernels::parsed(*op).signature.params) {
      if (param.type != ParamRule::Type::word || is_layout(param) || are_dtypes(param.allowed))
        continue;
      auto one = std::find_if(found.begin(), found.end(),
                              [&](const Enum& e) { return e.param == param.name; });
      if (one == found.end()) one = found.insert(found.end(), {param.name, {}});
      for (const std::string& word : param.allowed) {
        if (std::count(one->words.begin(), one->words.end(), word) == 0) one->words.push_back(word);
      }
    }
  }
  return found;
}

std::string definition(const Op& op) {
  const ParsedOp& parsed = kernels::parsed(op);
  std::vector<std::string> tensors, lists, options;
  for (const TensorRule& tensor : parsed.signature.tensors) {
    (tensor.list.empty() ? tensors : lists)
        .push_back(fmt::format("{{\"{0}\", call.{0}}}", tensor.name));
  }
  for (const ParamRule& param : parsed.signature.params) {
    options.push_back(fmt::format("{{\"{0}\", call.{0}}}", param.name));
  }
  const std::string given_lists =
      lists.empty() ? "" : fmt::format("          {{{}}},\n", fmt::join(lists, ", "));
  const auto body = [&](std::string_view function, const std::string& list_text,
                        std::string_view last) {
    return fmt::format(
        "  static const OpInfo& op = table_of(parsed({0}_op));\n"
        "  {1}(op,\n          {{{2}}},\n{3}          {{{4}}}{5});\n}}\n",
        op.name, function, fmt::join(tensors, ",\n           "), list_text,
        fmt::join(options, ",\n           "), last);
  };
  std::string text =
      fmt::format("void {}(const {}& call, Stream stream) {{\n{}", op.name, type_name(op.name),
                  body("call_op", given_lists, ",\n          stream"));
  if (!has_workspace(parsed)) return text;
  return text + fmt::format("\nTensorView workspace_of(const {}& call) {{\n{}", type_name(op.name),
                            body("return workspace_of",
                                 lists.empty() ? "          {},\n" : given_lists, ""));
}

constexpr std::string_view kNotice =
    "// Written from the signatures of the ops; a test compares, and with TESSERA_APPROVE=1 writes "
    "it "
    "again.\n// clang-format off\n";

/// The value of an option in C++.
std::string cpp_value(const ParamRule& param, const kernels::ParamValue& value) {
  const std::string text = kernels::to_string(value);
  if (param.type == ParamRule::Type::word) {
    const std::string type = value_type(param);
    const std::string room = type == "DType" ? "ts::" : "ts::kernels::";
    return fmt::format("{}{}::{}", room, type, text);
  }
  if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
    return fmt::format("{{{{{}}}}}", fmt::join(*list, ", "));
  }
  return text;
}

}  // namespace

std::string cpp_call(const Op& op, const kernels::BenchCase& example) {
  const ParsedOp& parsed = kernels::parsed(op);
  std::vector<std::string> members;
  for (const TensorRule& tensor : parsed.signature.tensors) {
    const bool is_given =
        std::any_of(example.inputs.begin(), example.inputs.end(), [&](const auto& input) {
          return input.name == tensor.name || input.name.starts_with(tensor.name + ".");
        });
    if (is_given || !tensor.optional) members.push_back(fmt::format(".{0} = {0}", tensor.name));
  }
  for (const ParamRule& param : parsed.signature.params) {
    const auto found = example.params.find(param.name);
    if (found == example.params.end() || (param.standard && *param.standard == found->second) ||
        std::holds_alternative<std::monostate>(found->second)) {
      continue;
    }
    members.push_back(fmt::format(".{} = {}", param.name, cpp_value(param, found->second)));
  }
  std::string text, line = fmt::format("ts::kernels::{}({{", op.name);
  for (size_t i = 0; i < members.size(); ++i) {
    const std::string member = members[i] + (i + 1 < members.size() ? ", " : "}, stream);");
    if (line.size() + member.size() > 100) {
      line.resize(line.find_last_not_of(' ') + 1);
      text += line + "\n";
      line = "    ";
    }
    line += member;
  }
  return text + line + "\n";
}

std::string cpp_header(const std::vector<const Op*>& ops) {
  std::string text = fmt::format(
      "#pragma once\n"
      "// Every op as a C++ function of a struct with its tensors and options by name.\n"
      "//\n"
      "//   post_fwd({{.x = x, .residual = residual, .post_mix = post_mix, .comb_mix = comb_mix,\n"
      "//             .out = out}}, stream);\n"
      "//\n"
      "// Tensors that may be absent stay out. Above each struct stands the signature, see\n"
      "// kernels/signature/signature.h. Outputs are allocated by the caller, of the shapes that\n"
      "// find_op(name).outputs(...) gives; accumulators (acc) are added to: a new one is filled "
      "with "
      "zeros.\n"
      "// A workspace is scratch memory: workspace_of(call) gives it without data, its contents do "
      "not\n"
      "// matter before or after the call.\n// Errors: kind argument if a tensor or an option is "
      "not "
      "what\n"
      "// the signature says, kind unsupported beyond its limits; both name op, argument, "
      "expected, got.\n"
      "{}\n"
      "#include <array>\n#include <cstdint>\n#include <optional>\n#include <span>\n"
      "#include <string_view>\n\n#include \"dsl/base/api.h\"\n#include "
      "\"kernels/op_arguments.h\"\n\n"
      "namespace tessera::kernels {{\n",
      kNotice);
  for (const Enum& one : enums(ops)) {
    text += fmt::format(
        "\nenum class {0} : uint8_t {{ {1} }};\nTESSERA_API std::string_view name({0} value);\n",
        type_name(one.param), fmt::join(one.words, ", "));
  }
  for (const Op* op : ops) text += "\n" + declaration(*op);
  return text + "\n}  // namespace tessera::kernels\n";
}

std::string cpp_source(const std::vector<const Op*>& ops) {
  std::string text = fmt::format(
      "{}\n#include \"kernels/ops.h\"\n\n#include \"kernels/op_call.h\"\n"
      "#include \"kernels/registry/all_ops.h\"\n#include \"kernels/signature/table.h\"\n\n"
      "namespace tessera::kernels {{\n",
      kNotice);
  for (const Enum& one : enums(ops)) {
    std::vector<std::string> words;
    for (const std::string& word : one.words) words.push_back(fmt::format("\"{}\"", word));
    text += fmt::format(
        "\nstd::string_view name({0} value) {{\n"
        "  constexpr std::string_view kWords[] = {{{1}}};\n"
        "  return kWords[static_cast<size_t>(value)];\n}}\n",
        type_name(one.param), fmt::join(words, ", "));
  }
  for (const Op* op : ops) text += "\n" + definition(*op);
  return text + "\n}  // namespace tessera::kernels\n";
}

}  // namespace tessera::tools
