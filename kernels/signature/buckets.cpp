#include "kernels/signature/buckets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <sstream>

#include "dsl/base/first_use.h"
#include "kernels/jit/kernel_recording.h"
#include "kernels/jit/tune.h"
#include "kernels/signature/case.h"
#include "kernels/signature/table.h"
#include "kernels/views/dry_call.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 31;
constexpr uintptr_t kLargestAlignment = 256;  // no kernel asks for more

FirstUse<std::set<std::string>> g_recorded;

/// The extents of the op's inputs that count tokens: rows, and positions of rows.
std::vector<std::string> token_symbols(const Signature& signature) {
  std::set<std::string> symbols;
  for (const TensorRule& rule : signature.tensors) {
    if (!rule.is_input()) continue;
    for (const Expression& extent : rule.shape) {
      for (const std::string& name : extent.names()) {
        if (name == "T" || name == "P") symbols.insert(name);
      }
    }
  }
  return {symbols.begin(), symbols.end()};
}

std::string token_symbol(const BucketRule& rule) {
  for (const std::string& name : rule.of.names()) {
    if (name == "T" || name == "P") return name;
  }
  internal_error(fmt::format("a bucket of '{}', which names no tokens", rule.of.text()));
}

/// The first token count of each bucket but the first one.
std::vector<int64_t> first_tokens(const ParsedOp& op, const std::string& text,
                                  const BucketRule& rule) {
  const std::string symbol = token_symbol(rule);
  const auto size = [&](int64_t tokens) {
    return rule.of.integer(Case(op, case_with(text, symbol, tokens)));
  };
  std::vector<int64_t> firsts;
  for (const int64_t first : rule.at) {
    int64_t below = 0, tokens = kMostTokens;  // size(below) < first <= size(tokens)
    if (size(tokens) < first) continue;
    while (tokens - below > 1) {
      const int64_t middle = below + (tokens - below) / 2;
      (size(middle) < first ? below : tokens) = middle;
    }
    firsts.push_back(tokens);
  }
  return firsts;
}

/// The largest power of two that divides the address of a tensor; 0 for kLargestAlignment and more,
/// and for null.
uintptr_t misalignment(const TensorView& view) {
  const auto address = reinterpret_cast<uintptr_t>(view.data) % kLargestAlignment;
  return address & (~address + 1);
}

/// True at the first call with these arguments.
bool is_new(const std::string& op, const std::string& text, const Tensors& tensors) {
  std::string key = op + " " + text;
  for (const auto& [name, view] : tensors) key += fmt::format(" {}", misalignment(view));
  const FirstUseLock lock;
  return g_recorded.get([] { return new std::set<std::string>; }).insert(key).second;
}

}  // namespace

std::vector<std::string> cases_of_buckets(const ParsedOp& op, const std::string& text) {
  std::vector<std::string> cases;
  for (const std::string& symbol : token_symbols(op.signature)) {
    cases.push_back(case_with(text, symbol, 0));
  }
  for (const BucketRule& rule : op.signature.buckets) {
    const std::string symbol = token_symbol(rule);
    cases.push_back(case_with(text, symbol, 1));
    for (const int64_t tokens : first_tokens(op, text, rule)) {
      cases.push_back(case_with(text, symbol, tokens));
    }
  }
  return cases;
}

std::optional<TokenBucket> bucket_of(const ParsedOp& op, const std::string& text,
                                     const std::string& symbol) {
  const std::vector<std::string> symbols = token_symbols(op.signature);
  if (std::find(symbols.begin(), symbols.end(), symbol) == symbols.end()) return std::nullopt;
  const int64_t tokens = Case(op, text)[symbol];
  TokenBucket bucket{1, kMostTokens};
  for (const BucketRule& rule : op.signature.buckets) {
    if (token_symbol(rule) != symbol) continue;
    for (const int64_t first : first_tokens(op, text, rule)) {
      if (first <= tokens) {
        bucket.first = std::max(bucket.first, first);
      } else {
        bucket.last = std::min(bucket.last, first - 1);
      }
    }
  }
  return bucket;
}

std::string case_with(const std::string& text, const std::string& symbol, int64_t value) {
  const std::string changed = fmt::format("{}={}", symbol, value);
  std::istringstream words(text);
  std::vector<std::string> all;
  bool is_there = false;
  for (std::string word; words >> word;) {
    const bool is_it = word.starts_with(symbol + "=");
    is_there = is_there || is_it;
    all.push_back(is_it ? changed : word);
  }
  if (!is_there) all.push_back(changed);
  return fmt::format("{}", fmt::join(all, " "));
}

void record_buckets(const Call& call, const Tensors& tensors) {
  const ParsedOp& op = parsed(call.op());
  const OpInfo& table = table_of(op);
  jit::record(table.name, call.device(), [&] {
    const std::string text = case_text(call);
    std::string key = text;
    for (const std::string& symbol : token_symbols(op.signature)) key = case_with(key, symbol, 0);
    if (!is_new(table.name, key, tensors)) return;
    std::vector<std::string> all = cases_of_buckets(op, text);
    all.push_back(text);
    for (const std::string& other : all) {
      const Case one(op, other);
      Tensors views =
          placed_nowhere(views_with_outputs(table, one.inputs(), one.params()), call.device());
      for (auto& [name, view] : views) {
        const auto given = tensors.find(name);
        if (given == tensors.end()) continue;
        view.data = static_cast<std::byte*>(view.data) + misalignment(given->second);
      }
      jit::for_each_choice([&] { table.run(views, one.params(), nullptr); });
    }
  });
}

}  // namespace tessera::kernels
