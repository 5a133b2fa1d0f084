#include "tools/lib/own_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dsl/base/error.h"
#include "runtime/cache/manifest.h"
#include "tools/lib/calls/kernel_op.h"

namespace tessera::tools {
namespace {

/// Filled before main, by the OwnKernels of the program.
std::vector<Registration>& registrations() {
  static auto* all = new std::vector<Registration>;
  return *all;
}

void check_name(const std::vector<kernels::OpInfo>& before, const Registration& own) {
  const auto refuse = [&](std::string what, std::string expected) {
    throw Error({.kind = ErrorKind::argument,
                 .op = own.name,
                 .what = std::move(what),
                 .argument = "name",
                 .expected = std::move(expected),
                 .got = fmt::format("'{}'", own.name),
                 .loc = own.loc});
  };
  if (!runtime::is_identifier(own.name)) {
    refuse("a kernel has a name that cannot be used",
           "letters, digits and _, at most 64, no digit first");
  }
  for (const kernels::OpInfo& op : before) {
    if (op.name != own.name) continue;
    refuse("two ops have one name",
           fmt::format("another name than that of {}",
                       op.family == kOwnFamily ? "the kernel of " + op.purpose : "a shipped op"));
  }
  const auto is_family = [&](const kernels::OpInfo& op) { return op.family == own.name; };
  if (own.name == "all" || own.name == kOwnFamily ||
      std::any_of(before.begin(), before.end(), is_family)) {
    refuse("a kernel has a name that means several ops", "a word that is no family, nor all");
  }
}

}  // namespace

void OwnKernel::add(Registration own) {
  registrations().push_back(std::move(own));
}

const std::vector<kernels::OpInfo>& program_ops() {
  static const auto* all =
      new std::vector<kernels::OpInfo>(with_own(kernels::ops(), registrations()));
  return *all;
}

std::vector<kernels::OpInfo> with_own(std::vector<kernels::OpInfo> shipped,
                                      const std::vector<Registration>& own) {
  std::vector<kernels::OpInfo> ops = std::move(shipped);
  for (const Registration& one : own) {
    check_name(ops, one);
    try {
      ops.push_back(op_of(one.name, one.build(), one.cases));
    } catch (const Error& error) {
      if (error.loc().known()) throw;  // a line of the kernel
      ErrorFields fields = error.fields();
      fields.loc = one.loc;
      throw Error(std::move(fields));
    }
    ops.back().purpose = to_string(one.loc);
  }
  return ops;
}

}  // namespace tessera::tools
