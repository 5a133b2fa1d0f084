#include "codegen/cuda/prelude.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "codegen/cuda/emit.h"
#include "codegen/cuda/wgmma_text.h"
#include "dsl/base/error.h"
#include "dsl/base/target_facts.h"

namespace tessera::codegen::cuda {
namespace {

std::array<std::span<const Snippet>, 14> tables() {
  return {type_snippets(),     memory_snippets(),     cache_snippets(),   narrowing_snippets(),
          widening_snippets(), arithmetic_snippets(), f64_snippets(),     packed_snippets(),
          matrix_snippets(),   atomic_snippets(),     cluster_snippets(), mbarrier_snippets(),
          tensor_snippets(),   mark_snippets()};
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

struct Fact {
  std::string_view name;
  bool TargetFacts::*value;
};
constexpr Fact kFacts[] = {{"has_fp8", &TargetFacts::has_fp8},
                           {"has_fp4", &TargetFacts::has_fp4},
                           {"has_bf16_arithmetic", &TargetFacts::has_bf16_arithmetic},
                           {"has_vector_reductions", &TargetFacts::has_vector_reductions},
                           {"has_pdl", &TargetFacts::has_pdl},
                           {"has_bulk_copies", &TargetFacts::has_bulk_copies},
                           {"has_tensor_copies", &TargetFacts::has_tensor_copies},
                           {"moves_registers", &TargetFacts::moves_registers}};

/// "has_pdl", "not has_pdl"
bool holds(std::string_view condition, const TargetFacts& facts) {
  constexpr std::string_view kNot = "not ";
  const bool is_negated = condition.starts_with(kNot);
  const std::string_view name = condition.substr(is_negated ? kNot.size() : 0);
  const auto* const fact = std::find_if(std::begin(kFacts), std::end(kFacts),
                                        [&](const Fact& one) { return one.name == name; });
  TESSERA_CHECK(fact != std::end(kFacts), fmt::format("no fact of a target is called {}", name));
  return facts.*(fact->value) != is_negated;
}

void replace(std::string& line, std::string_view word, int number) {
  if (const size_t at = line.find(word); at != std::string::npos) {
    line.replace(at, word.size(), std::to_string(number));
  }
}

/// The lines of a snippet that the target has.
std::string lines_for(const TargetFacts& facts, std::string_view text) {
  if (text.find('$') == std::string_view::npos) return std::string(text);
  constexpr std::string_view kIf = "$if ";
  std::string out;
  bool is_printed = true;
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    const size_t end = newline == std::string_view::npos ? text.size() : newline + 1;
    std::string line(text.substr(0, end));
    text.remove_prefix(end);
    if (line.starts_with(kIf)) {
      is_printed = holds(line.substr(kIf.size(), line.size() - kIf.size() - 1), facts);
    } else if (line == "$else\n") {
      is_printed = !is_printed;
    } else if (line == "$end\n") {
      is_printed = true;
    } else if (is_printed) {
      replace(line, "$threads", facts.threads);
      replace(line, "$blocks", facts.blocks);
      out += line;
    }
  }
  return out;
}

/// Types stand one per line, functions between empty lines.
std::string print(const std::set<std::string_view>& wanted, Target target) {
  const TargetFacts facts = facts_of(target);
  std::string out;
  for (const std::span<const Snippet> table : tables()) {
    const bool compact = table.data() == type_snippets().data();
    bool any = false;
    for (const Snippet& snippet : table) {
      if (!wanted.contains(snippet.name)) continue;
      // A snippet begins after the newline that opens its raw string.
      const bool open = snippet.text.front() == '\n';
      out += lines_for(facts, snippet.text.substr(open ? 1 : 0));
      if (!compact) out += "\n";
      any = true;
    }
    if (compact && any) out += "\n";
  }
  return out;
}

}  // namespace

std::string device_functions(const std::set<std::string, std::less<>>& used, Target target) {
  std::set<std::string_view> wanted;
  for (const std::string& name : used) add_with_needs(name, wanted);
  return print(wanted, target);
}

bool is_device_name(std::string_view name) {
  return find(name) != nullptr || is_wgmma_name(name);
}

std::string prelude(Target target) {
  std::set<std::string_view> all;
  for (const std::span<const Snippet> table : tables()) {
    for (const Snippet& snippet : table) add_with_needs(snippet.name, all);
  }
  return print(all, target);
}

}  // namespace tessera::codegen::cuda
