#include "codegen/cuda/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "codegen/cuda/prelude.h"
#include "dsl/base/error.h"
#include "dsl/base/first_use.h"

namespace tessera::codegen::cuda {
namespace {

/// Words of C++17, and of CUDA as far as generated text uses them. Device functions are asked for
/// separately.
const std::set<std::string_view>* make_reserved_words() {
  return new std::set<std::string_view>{
      // C++
      "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break",
      "case", "catch", "char", "char16_t", "char32_t", "char8_t", "class", "co_await", "co_return",
      "co_yield", "compl", "concept", "const", "const_cast", "consteval", "constexpr", "constinit",
      "continue", "decltype", "default", "delete", "do", "double", "dynamic_cast", "else", "enum",
      "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline",
      "int", "long", "main", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr",
      "operator", "or", "or_eq", "private", "protected", "public", "register", "reinterpret_cast",
      "requires", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast",
      "struct", "switch", "template", "this", "thread_local", "throw", "true", "try", "typedef",
      "typeid", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "wchar_t",
      "while", "xor", "xor_eq",
      // CUDA
      "blockDim", "blockIdx", "dim3", "gridDim", "threadIdx", "warpSize", "half",
      // what statements and expressions call
      "abs", "arena", "atomicAdd", "atomicCAS", "atomicExch", "atomicMax", "atomicMin", "ceilf",
      "copysignf", "cosf", "erff", "exp2f", "expf", "fabsf", "floorf", "fmaf", "fmaxf", "fminf",
      "log1pf", "log2f", "logf", "max", "memcpy", "min", "printf", "rintf", "rsqrtf", "sinf",
      "sqrtf", "tanhf",
      // a macro of NVRTC
      "NULL"};
}

FirstUse<const std::set<std::string_view>> g_reserved_words;

/// True for what macros look like: NVRTC defines CUDART_VERSION and others.
bool may_be_macro(const std::string& name) {
  return name.find('_') != std::string::npos &&
         std::none_of(name.begin(), name.end(),
                      [](unsigned char c) { return std::islower(c) != 0; });
}

/// Letters, digits and single underscores, none in front: leading and double ones belong to the
/// compiler.
std::string identifier(std::string_view wanted) {
  std::string name;
  for (const char c : wanted) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (letter) {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  if (name.empty()) return "value";
  if (std::isdigit(static_cast<unsigned char>(name[0])) != 0) name.insert(0, "v");
  if (g_reserved_words.get(make_reserved_words).contains(name) || is_device_name(name) ||
      may_be_macro(name))
    name += '_';
  return name;
}

}  // namespace

Names::Names() : scopes_(1) {}

void Names::enter() {
  scopes_.emplace_back();
}

void Names::leave() {
  for (const void* object : scopes_.back().objects) names_.erase(object);
  scopes_.pop_back();
}

bool Names::is_taken(const std::string& name) const {
  return std::any_of(scopes_.begin(), scopes_.end(),
                     [&](const Scope& scope) { return scope.taken.contains(name); });
}

std::string Names::fresh(std::string_view wanted) {
  const std::string base = identifier(wanted);
  std::string name = base;
  const char* separator = base.back() == '_' ? "" : "_";
  if (is_taken(name)) {
    int suffix = 2;
    for (const Scope& scope : scopes_) {
      const auto next = scope.next.find(base);
      if (next != scope.next.end()) suffix = std::max(suffix, next->second);
    }
    do {
      name = fmt::format("{}{}{}", base, separator, suffix++);
    } while (is_taken(name));
    scopes_.back().next[base] = suffix;
  }
  scopes_.back().taken.insert(name);
  return name;
}

void Names::reserve(const std::string& name) {
  scopes_.front().taken.insert(name);
}

const std::string& Names::declare(const void* object, std::string_view wanted) {
  TESSERA_CHECK(!names_.contains(object), fmt::format("'{}' is declared twice", wanted));
  scopes_.back().objects.push_back(object);
  return names_[object] = fresh(wanted);
}

const std::string& Names::of(const void* object) const {
  const auto found = names_.find(object);
  TESSERA_CHECK(found != names_.end(), "a variable is used outside its scope");
  return found->second;
}

}  // namespace tessera::codegen::cuda
