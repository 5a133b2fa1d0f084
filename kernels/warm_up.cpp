#include "kernels/warm_up.h"

#include <functional>
#include <string>
#include <vector>

#include "dsl/base/error.h"
#include "kernels/jit/tune.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/buckets.h"
#include "kernels/signature/case.h"
#include "kernels/signature/table.h"
#include "kernels/views/dry_call.h"

namespace tessera::kernels {
namespace {

const ParsedOp& parsed_op(const std::string& name) {
  for (const Op* op : all_ops()) {
    if (op->name == name) return parsed(*op);
  }
  find_op(name);  // throws
  internal_error("the registry has an op that the list of ops has not: " + name);
}

}  // namespace

void warm_up(std::string_view op, std::string_view cases, Device device,
             const jit::PrepareOptions& options) {
  const ParsedOp& of_op = parsed_op(std::string(op));
  const OpInfo& table = table_of(of_op);
  const std::vector<std::string> lines = case_lines(cases);
  if (lines.empty()) {
    throw Error({.kind = ErrorKind::argument,
                 .op = table.name,
                 .what = "there is no case to warm up",
                 .argument = "cases",
                 .expected = case_lines(of_op.op->examples).front(),
                 .got = "an empty text"});
  }
  std::vector<std::function<void()>> calls;
  for (const std::string& line : lines) {
    std::vector<std::string> all = cases_of_buckets(of_op, line);
    all.push_back(line);
    for (const std::string& text : all) {
      const Case one(of_op, text);
      if (!device.is_cuda()) continue;  // lowered at the first call
      calls.push_back([&table, params = one.params(),
                       tensors = placed_nowhere(
                           views_with_outputs(table, one.inputs(), one.params()), device)] {
        jit::for_each_choice([&] { table.run(tensors, params, nullptr); });
      });
    }
  }
  jit::prepare_all(calls, options);
}

}  // namespace tessera::kernels
