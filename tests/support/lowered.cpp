#include "tests/support/lowered.h"

#include "kernels/jit/jit.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {

std::string copies_of(const ir::Kernel& kernel, Target target) {
  const std::string text = codegen::explain(kernel, target);
  const size_t at = text.find("copies\n");
  return at == std::string::npos ? std::string() : text.substr(at);
}

codegen::cpu::Options all_traps(Target target, uint32_t schedule, codegen::cpu::Counts* counts) {
  using codegen::cpu::Arithmetic;
  codegen::cpu::Options options;
  options.traps = true;
  options.counts = counts;
  options.arithmetic = target == kSm90a ? Arithmetic::target : Arithmetic::exact;
  options.schedule = schedule;
  return options;
}

void run_lowered(const ir::Kernel& kernel, const std::vector<codegen::cpu::Argument>& arguments,
                 Target target, uint32_t schedule, codegen::cpu::Counts* counts) {
  const codegen::cpu::Executable executable(codegen::lower(kernel, target));
  executable.run(arguments, all_traps(target, schedule, counts));
}

HostTensor ProductCall::operand(int64_t rows, uint64_t seed) const {
  return random_tensor(DType::bf16, {rows, depth}, Values::normal, seed);
}

HostTensor ProductCall::run(const codegen::Program& program,
                            const codegen::cpu::Options& options) const {
  const HostTensor a = operand(m, 1), b = operand(n, 2);
  HostTensor c(dtype, {m, n});
  const codegen::cpu::Argument arguments[] = {{.tensor = a.view()}, {.tensor = b.view()},
                                              {.tensor = c.view()}, {.integer = m},
                                              {.integer = n},       {.integer = depth}};
  codegen::cpu::Executable(program).run(arguments, options);
  CHECK(c.damage().empty());
  return c;
}

HostTensor ProductCall::run(const ir::Kernel& kernel, Target target, uint32_t schedule) const {
  return run(codegen::lower(kernel, target), all_traps(target, schedule));
}

HostTensor ProductCall::run_on_gpu(const ir::Kernel& kernel) const {
  const HostTensor a = operand(m, 1), b = operand(n, 2);
  HostTensor c(dtype, {m, n});
  const DeviceTensor on_a(a, Device::cuda(0)), on_b(b, Device::cuda(0)), on_c(c, Device::cuda(0));
  kernels::jit::run(kernel, std::vector<TensorView>{on_a.view(), on_b.view(), on_c.view()}, {},
                    nullptr);
  on_c.download(c);
  CHECK(c.damage().empty());
  return c;
}

void ProductCall::check_on_gpu(const ir::Kernel& kernel) const {
  CHECK(run_on_gpu(kernel).raw() == run(kernel, kSm90a).raw());
}

}  // namespace tessera::test
