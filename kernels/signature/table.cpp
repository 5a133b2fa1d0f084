#include "kernels/signature/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "dsl/base/first_use.h"
#include "kernels/jit/kernel_recording.h"
#include "kernels/jit/tune_run.h"
#include "kernels/op.h"
#include "kernels/signature/buckets.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

using ParsedOps = std::map<const Op*, std::unique_ptr<const ParsedOp>>;
FirstUse<ParsedOps> g_parsed;

TensorInfo tensor_info(const Signature& signature, const TensorRule& rule) {
  TensorInfo info;
  info.name = rule.name;
  info.role = rule.role;
  info.optional = rule.optional;
  info.accumulate = rule.accumulate;
  info.list = !rule.list.empty();
  info.dtypes = rule.dtypes;
  const auto as = std::find_if(rule.dtypes.begin(), rule.dtypes.end(),
                               [](const std::string& word) { return word.starts_with("as "); });
  if (rule.dtypes.size() > 1 && as != rule.dtypes.end()) {
    const ParamRule* param = signature.find_param(rule.dtypes.front());
    std::vector<std::string> others = param == nullptr ? rule.dtypes : param->allowed;
    others.erase(
        std::remove_if(others.begin(), others.end(),
                       [&](const std::string& word) { return word == "none" || word == *as; }),
        others.end());
    info.dtypes = {fmt::format("{}, or {}", *as, fmt::join(others, "/"))};
  }
  for (const Expression& extent : rule.shape) info.shape.push_back(extent.text());
  if (rule.may_lack_token_dims) info.shape[0] = "..";
  if (rule.may_lack_last) info.shape.back() += "?";
  info.layout = rule.layout_text();
  if (rule.presence) info.presence = rule.presence->text();
  return info;
}

ParamInfo param_info(const ParamRule& rule) {
  ParamInfo info;
  info.name = rule.name;
  info.type = rule.type;
  info.def = rule.standard;
  info.allowed = rule.allowed;
  info.min = rule.least;
  if (rule.most) info.allowed_text = rule.range;
  return info;
}

/// With TESSERA_TUNE=on, measures what the tile sizes of the call lack.
void tune_first(const Call& call, const Tensors& tensors, Stream stream) {
  if (!jit::tunes_first_calls(call.device())) return;
  std::vector<TensorView> workspaces;
  for (const OutputInfo& output : call.outputs()) {
    const auto given = tensors.find(output.name);
    if (output.workspace && given != tensors.end()) workspaces.push_back(given->second);
  }
  jit::tune_first_call(std::string(call.op().name), call.device(), stream, workspaces, [&] {
    Launches launches(call, stream);
    call.op().launches(call, launches);
  });
}

OpInfo table(const ParsedOp* op) {
  OpInfo info;
  info.name = op->op->name;
  info.family = op->op->family;
  info.purpose = op->op->purpose;
  for (const TensorRule& rule : op->signature.tensors) {
    if (!rule.is_workspace) info.tensors.push_back(tensor_info(op->signature, rule));
  }
  for (const ParamRule& rule : op->signature.params) info.params.push_back(param_info(rule));
  info.outputs = [op](const Tensors& inputs, const Params& params) {
    return Call(*op, inputs, params).outputs();
  };
  info.run = [op](const Tensors& tensors, const Params& params, Stream stream) {
    Call call(*op, tensors, params);
    call.check_run();
    if (call.is_empty()) return;
    tune_first(call, tensors, stream);
    Launches launches(call, stream);
    op->op->launches(call, launches);
    if (jit::is_recorded(call.device())) record_buckets(call, tensors);
  };
  info.kernels = [op](const Tensors& tensors, const Params& params) {
    const Call call(*op, tensors, params);
    std::vector<ir::Kernel> collected;
    if (call.is_empty()) return collected;
    Launches launches(call, collected);
    op->op->launches(call, launches);
    return collected;
  };
  if (op->op->trims.size() > 0) {
    info.trim = [op](Tensors& tensors, const Params& params, Stream stream) {
      const Tensors before = tensors;
      Call(*op, before, params).trim(tensors, stream);
    };
  }
  info.case_of = [op](const std::string& text) { return Case(*op, text).bench_case(); };
  return info;
}

std::vector<BenchCase> cases(const ParsedOp& op, std::string_view text) {
  std::vector<BenchCase> made;
  for (const std::string& line : case_lines(text)) made.push_back(Case(op, line).bench_case());
  return made;
}

/// The bucket cases of all examples and bench cases.
std::vector<BenchCase> bucket_cases(const ParsedOp& op) {
  std::vector<BenchCase> made;
  // Cases that differ only in their token count have the same bucket cases.
  std::set<std::string> seen;
  for (const std::string_view text : {op.op->examples, op.op->bench}) {
    for (const std::string& line : case_lines(text)) {
      for (const std::string& other : cases_of_buckets(op, line)) {
        if (seen.insert(other).second) made.push_back(Case(op, other).bench_case());
      }
    }
  }
  return made;
}

}  // namespace

const ParsedOp& parsed(const Op& op) {
  const FirstUseLock lock;
  std::unique_ptr<const ParsedOp>& made = g_parsed.get([] { return new ParsedOps; })[&op];
  if (!made) {
    auto fresh =
        std::make_unique<ParsedOp>(ParsedOp{&op, Signature::parse(op.name, op.signature), {}});
    fresh->table = std::make_shared<const OpInfo>(table(fresh.get()));
    made = std::move(fresh);
  }
  return *made;
}

const OpInfo& table_of(const ParsedOp& op) {
  return *op.table;
}

OpInfo op_info_of(const Op& op) {
  const ParsedOp& of_op = parsed(op);
  OpInfo info = *of_op.table;
  info.examples = cases(of_op, op.examples);
  info.bench = cases(of_op, op.bench);
  info.buckets = [&of_op] { return bucket_cases(of_op); };
  return info;
}

std::vector<std::string> case_lines(std::string_view cases) {
  std::vector<std::string> lines;
  while (!cases.empty()) {
    const size_t end = std::min(cases.find_first_of("\n;"), cases.size());
    const std::string_view line = cases.substr(0, end);
    const size_t first = line.find_first_not_of(" \t");
    if (first != std::string_view::npos) lines.emplace_back(line.substr(first));
    cases.remove_prefix(std::min(end + 1, cases.size()));
  }
  return lines;
}

}  // namespace tessera::kernels
