#include "tools/lib/calls/op_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "dsl/base/error.h"
#include "dsl/base/nearest_name.h"

namespace tessera::tools {
namespace {

[[noreturn]] void refuse(const std::vector<kernels::OpInfo>& ops, const std::string& word) {
  std::vector<std::string> words, families;
  for (const kernels::OpInfo& op : ops) {
    words.push_back(op.name);
    if (std::find(families.begin(), families.end(), op.family) == families.end()) {
      families.push_back(op.family);
    }
  }
  for (const std::string& family : families) {
    if (std::find(words.begin(), words.end(), family) == words.end()) words.push_back(family);
  }
  words.push_back("all");
  ErrorFields fields;
  fields.kind = ErrorKind::argument;
  fields.what = fmt::format("unknown op or family '{}'", word);
  fields.argument = "op";
  fields.expected = fmt::format("an op of `tessera list`, {} or all", fmt::join(families, ", "));
  fields.got = word;
  fields.hint = did_you_mean(word, words);
  throw Error(std::move(fields));
}

}  // namespace

std::vector<const kernels::OpInfo*> choose_ops(const std::vector<kernels::OpInfo>& ops,
                                               const std::string& word) {
  std::vector<const kernels::OpInfo*> chosen;
  const bool all = word.empty() || word == "all";
  for (const kernels::OpInfo& op : ops) {
    // "transpose" is an op and a family: the op wins.
    if (op.name == word) return {&op};
    if (all || op.family == word) chosen.push_back(&op);
  }
  if (chosen.empty() && !all) refuse(ops, word);
  return chosen;
}

std::vector<ChosenCase> choose_cases(const std::vector<const kernels::OpInfo*>& ops,
                                     std::vector<kernels::BenchCase> kernels::OpInfo::*list,
                                     const std::string& text) {
  std::vector<ChosenCase> chosen;
  for (const kernels::OpInfo* op : ops) {
    for (const kernels::BenchCase& one : op->*list) {
      if (one.label.find(text) != std::string::npos) chosen.push_back({op, one});
    }
  }
  if (!chosen.empty() || text.empty()) return chosen;
  throw Error({.kind = ErrorKind::argument,
               .what = "argument 'case' is in the label of no case",
               .argument = "case",
               .expected = "a part of a label, as the table shows it",
               .got = fmt::format("'{}'", text)});
}

std::vector<ChosenCase> cases_of(const std::vector<const kernels::OpInfo*>& ops,
                                 const std::vector<std::string>& texts) {
  if (ops.size() != 1) {
    throw Error({.kind = ErrorKind::argument,
                 .what = "argument 'case-of' is a case of one op",
                 .argument = "case-of",
                 .expected = "the name of the op before it",
                 .got = fmt::format("{} ops", ops.size())});
  }
  std::vector<ChosenCase> chosen;
  for (const std::string& text : texts) chosen.push_back({ops[0], ops[0]->case_of(text)});
  return chosen;
}

}  // namespace tessera::tools
