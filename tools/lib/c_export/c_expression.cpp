#include "tools/lib/c_export/c_expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>

#include "dsl/base/error.h"

namespace tessera::tools {
namespace {

using ir::Op;

constexpr std::string_view kReserved[] = {
    "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class",
    "const", "constexpr", "continue", "decltype", "default", "delete", "do", "double", "else",
    "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if",
    "inline", "int", "int32_t", "int64_t", "long", "main", "mutable", "namespace", "new",
    "noexcept", "not", "nullptr", "operator", "or", "private", "protected", "public", "register",
    "requires", "restrict", "return", "short", "signed", "size_t", "sizeof", "static", "struct",
    "switch", "template", "this", "throw", "true", "try", "typedef", "typeid", "typename",
    "uint64_t", "union", "unsigned", "using", "virtual", "void", "volatile", "while", "xor",
    "concept", "and_eq", "bitand", "bitor", "compl", "not_eq", "or_eq", "xor_eq", "static_assert",
    "thread_local", "typeof", "wchar_t", "char8_t", "char16_t", "char32_t", "consteval",
    "constinit", "const_cast", "dynamic_cast", "reinterpret_cast", "static_cast", "co_await",
    "co_return", "co_yield",
    // of the generated functions
    "arguments", "bad", "call", "error", "grid", "status", "stream", "workspace", "workspace_bytes",
    // of the headers that they include, and of every program
    "int8_t", "int16_t", "uint8_t", "uint16_t", "uint32_t", "intptr_t", "uintptr_t", "ptrdiff_t",
    "va_list", "printf", "vsnprintf", "memset", "memcpy", "strcmp", "strlen", "dlopen", "dlsym",
    "dlerror", "malloc", "calloc", "realloc", "free", "exit", "abort", "unix", "linux", "errno",
    "stdin", "stdout", "stderr", "NULL"};
// Beginnings of names that are the generated file's own.
constexpr std::string_view kOwnPrefixes[] = {"_", "ts_", "TS_", "tessera_", "TESSERA_"};

bool has_own_prefix(std::string_view name) {
  return std::any_of(std::begin(kOwnPrefixes), std::end(kOwnPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string text_of(const ir::Expr& expr, const CodeOf& code_of, bool in_dtypes) {
  const auto arg = [&](size_t i) { return text_of(expr->args[i], code_of, in_dtypes); };
  const auto called = [&](std::string_view name) {
    std::string text = fmt::format("{}({}, {}, &bad)", name, arg(0), arg(1));
    if (!in_dtypes || expr->type != DType::i32) return text;
    return fmt::format("ts_within({}, INT32_MIN, INT32_MAX, &bad)", text);
  };
  const auto infix = [&](std::string_view sign) {
    return fmt::format("({} {} {})", arg(0), sign, arg(1));
  };
  switch (expr->op) {
    case Op::constant:
      return c_integer(expr->integer);
    case Op::var:
      return code_of(expr->var);
    case Op::add:
      return called("ts_add");
    case Op::sub:
      return called("ts_sub");
    case Op::mul:
      return called("ts_mul");
    case Op::div:
      return called("ts_div");
    case Op::mod:
      return called("ts_mod");
    case Op::min:
      return fmt::format("ts_min({}, {})", arg(0), arg(1));
    case Op::max:
      return fmt::format("ts_max({}, {})", arg(0), arg(1));
    case Op::bit_and:
      return infix("&");
    case Op::bit_or:
      return infix("|");
    case Op::bit_xor:
      return infix("^");
    case Op::lt:
      return infix("<");
    case Op::le:
      return infix("<=");
    case Op::eq:
      return infix("==");
    case Op::ne:
      return infix("!=");
    case Op::logical_and:
      return infix("&&");
    case Op::logical_or:
      return infix("||");
    case Op::select:
      return fmt::format("({} ? {} : {})", arg(0), arg(1), arg(2));
    case Op::cast: {
      if (expr->type == DType::boolean) return fmt::format("({} != 0)", arg(0));
      const int width = bits(expr->type);
      if (width == 64) return arg(0);
      const std::string_view sign = is_signed(expr->type) ? "" : "u";
      if (in_dtypes && expr->type == DType::i32) {
        return fmt::format("ts_within({}, INT32_MIN, INT32_MAX, &bad)", arg(0));
      }
      return fmt::format("(int64_t)({}int{}_t)({})", sign, width, arg(0));
    }
    default:
      internal_error(fmt::format("{} has no text in C", ir::to_string(expr)));
  }
}

}  // namespace

std::string c_integer(int64_t value) {
  if (value == std::numeric_limits<int64_t>::min()) return "INT64_MIN";
  const bool is_int = value == static_cast<int32_t>(value);
  return fmt::format("{}{}", value, is_int ? "" : "LL");
}

std::string c_code(const ir::Expr& expr, const CodeOf& code_of) {
  return text_of(expr, code_of, false);
}

std::string c_code_in_dtypes(const ir::Expr& expr, const CodeOf& code_of) {
  return text_of(expr, code_of, true);
}

bool is_c_name(const std::string& name) {
  if (name.empty() || name.size() > 64 || std::isdigit(static_cast<unsigned char>(name[0])) != 0) {
    return false;
  }
  const bool is_word = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (std::isalnum(c) != 0 && c < 0x80) || c == '_';
  });
  return is_word && !has_own_prefix(name) &&
         std::find(std::begin(kReserved), std::end(kReserved), name) == std::end(kReserved);
}

std::string CNames::unique(std::string_view name) {
  std::string made(name.substr(0, 48));
  for (char& c : made) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  if (has_own_prefix(made)) made = "a" + made;
  while (!is_c_name(made) || taken_.contains(made)) made += '_';
  taken_.insert(made);
  return made;
}

}  // namespace tessera::tools
