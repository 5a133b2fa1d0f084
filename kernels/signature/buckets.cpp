#include "kernels/signature/buckets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 31;

/// The case with another value of one word.
std::string with(const std::string& text, const std::string& symbol, int64_t value) {
  std::istringstream words(text);
  std::vector<std::string> changed;
  for (std::string word; words >> word;) {
    const bool is_it = word.starts_with(symbol + "=");
    changed.push_back(is_it ? fmt::format("{}={}", symbol, value) : word);
  }
  return fmt::format("{}", fmt::join(changed, " "));
}

/// The extent that counts tokens in the rule: rows, or positions of rows.
std::string token_symbol(const BucketRule& rule) {
  for (const std::string& name : rule.of.names()) {
    if (name == "T" || name == "P") return name;
  }
  internal_error(fmt::format("a bucket of '{}', which names no tokens", rule.of.text()));
}

}  // namespace

std::vector<std::string> cases_of_buckets(const ParsedOp& op, const std::string& text) {
  std::vector<std::string> cases;
  for (const BucketRule& rule : op.signature.buckets) {
    const std::string symbol = token_symbol(rule);
    const auto size = [&](int64_t tokens) {
      return rule.of.integer(Case(op, with(text, symbol, tokens)));
    };
    cases.push_back(with(text, symbol, 1));
    for (const int64_t first : rule.at) {
      int64_t below = 0, tokens = kMostTokens;  // size(below) < first <= size(tokens)
      if (size(tokens) < first) continue;
      while (tokens - below > 1) {
        const int64_t middle = below + (tokens - below) / 2;
        (size(middle) < first ? below : tokens) = middle;
      }
      cases.push_back(with(text, symbol, tokens));
    }
  }
  return cases;
}

}  // namespace tessera::kernels
