#include "tests/support/ops/products.h"

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "kernels/jit/target.h"
#include "tests/support/catch.h"
#include "tests/support/ops/run_op.h"

namespace tessera::test {

void check_products(const std::string& op, const std::vector<OpCase>& cases) {
  for (const char* target : {"sm_80", "sm_90a"}) {
    const kernels::jit::TargetScope scope(parse_target(target).value());
    const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
    CAPTURE(op, target);
    for (const std::string& failure : report.failures) FAIL_CHECK(failure);
    CHECK(report.passed == std::ssize(cases));
  }
}

void run_with_target_sums(const ir::Kernel& kernel, const char* target, const NamedArguments& given,
                          uint32_t schedule) {
  run_with_target_sums(codegen::lower(kernel, parse_target(target).value()), given, schedule);
}

void run_with_target_sums(const codegen::Program& program, const NamedArguments& given,
                          uint32_t schedule) {
  std::vector<codegen::cpu::Argument> arguments(program.params.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const codegen::Param& param = program.params[i];
    if (param.array) {
      arguments[i].tensor = given.tensors.at(param.name);
    } else if (const auto number = given.numbers.find(param.name); number != given.numbers.end()) {
      arguments[i].number = number->second;
    } else {
      arguments[i].integer = given.dims.at(param.name);
    }
  }
  codegen::cpu::Options options;
  options.traps = true;
  options.schedule = schedule;
  options.arithmetic = codegen::cpu::Arithmetic::target;
  codegen::cpu::Executable(program).run(arguments, options);
}

}  // namespace tessera::test
