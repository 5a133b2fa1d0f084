#include "codegen/cuda/prelude.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "codegen/cuda/emit.h"
#include "codegen/cuda/wgmma_text.h"
#include "dsl/base/error.h"
#include "dsl/base/first_use.h"

namespace tessera::codegen::cuda {
namespace {

std::array<std::span<const Snippet>, 13> tables() {
  return {type_snippets(),     memory_snippets(),     cache_snippets(),   narrowing_snippets(),
          widening_snippets(), arithmetic_snippets(), f64_snippets(),     packed_snippets(),
          matrix_snippets(),   atomic_snippets(),     cluster_snippets(), mbarrier_snippets(),
          tensor_snippets()};
}

const Snippet* find(std::string_view name) {
  for (const std::span<const Snippet> table : tables()) {
    for (const Snippet& snippet : table) {
      if (snippet.name == name) return &snippet;
    }
  }
  return nullptr;
}

void add_with_needs(std::string_view name, std::set<std::string_view>& wanted) {
  const Snippet* snippet = find(name);
  TESSERA_CHECK(snippet != nullptr, fmt::format("no device function is called {}", name));
  if (!wanted.insert(snippet->name).second) return;
  std::string_view rest = snippet->needs;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    add_with_needs(rest.substr(0, end), wanted);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

/// Types stand one per line, functions between empty lines.
std::string print(const std::set<std::string_view>& wanted) {
  std::string out;
  for (const std::span<const Snippet> table : tables()) {
    const bool compact = table.data() == type_snippets().data();
    bool any = false;
    for (const Snippet& snippet : table) {
      if (!wanted.contains(snippet.name)) continue;
      // A snippet begins after the newline that opens its raw string.
      const bool open = snippet.text.front() == '\n';
      out += snippet.text.substr(open ? 1 : 0);
      if (!compact) out += "\n";
      any = true;
    }
    if (compact && any) out += "\n";
  }
  return out;
}

FirstUse<const std::string> g_prelude;

}  // namespace

std::string device_functions(const std::set<std::string, std::less<>>& used) {
  std::set<std::string_view> wanted;
  for (const std::string& name : used) add_with_needs(name, wanted);
  return print(wanted);
}

bool is_device_name(std::string_view name) {
  return find(name) != nullptr || is_wgmma_name(name);
}

const std::string& prelude() {
  return g_prelude.get([] {
    std::set<std::string_view> all;
    for (const std::span<const Snippet> table : tables()) {
      for (const Snippet& snippet : table) add_with_needs(snippet.name, all);
    }
    return new std::string(print(all));
  });
}

}  // namespace tessera::codegen::cuda
