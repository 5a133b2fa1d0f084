#pragma once
// Matrix products in tests: the forms of their kernels, the sums of the tensor cores.

#include <map>
#include <string>
#include <vector>

#include "codegen/thread_ir.h"
#include "dsl/ir/tile.h"
#include "tests/support/ops/op_cases.h"

namespace tessera::test {

/// Runs the cases of an op on the executor by the programs of sm_80 and by those of sm_90a. Failures are
/// those of Catch.
void check_products(const std::string& op, const std::vector<OpCase>& cases);

/// The arguments of a kernel by the names of its parameters.
struct NamedArguments {
  std::map<std::string, TensorView> tensors;
  std::map<std::string, int64_t> dims;         // integer scalars and strides too
  std::map<std::string, double> numbers = {};  // float scalars
};

/// Runs a kernel as lowered for `target` on the executor, with all traps and with the sums of the tensor
/// cores of sm_90. Roles take turns as `schedule` says. Errors: std::out_of_range for a parameter without an argument.
///
/// Example: run_with_target_sums(kernel, "sm_90a", {{{"x", x.view()}}, {{"rows", 8}}});
void run_with_target_sums(const ir::Kernel& kernel, const char* target, const NamedArguments& given,
                          uint32_t schedule = 0);
/// Runs a program that is lowered already.
void run_with_target_sums(const codegen::Program& program, const NamedArguments& given,
                          uint32_t schedule = 0);

}  // namespace tessera::test
