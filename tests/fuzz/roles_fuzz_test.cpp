// Random kernels with roles: what the compiler makes of them for several targets, run on the executor with every trap
// on and with none, with roles that take turns in several orders, against what they mean. A fixed corpus here; long
// runs by hand:
//   TESSERA_FUZZ_FIRST=1000000 TESSERA_FUZZ_ROLES=10000 build/test_fuzz '[roles]'
// TESSERA_FUZZ_FIRST=SEED TESSERA_FUZZ_ROLES=1 prints the program.

#include <fmt/format.h>

#include <iostream>
#include <map>

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "dsl/base/error.h"
#include "kernels/jit/argument_binder.h"
#include "tests/fuzz/from_environment.h"
#include "tests/fuzz/random_roles.h"
#include "tests/support/catch.h"
#include "tests/support/lowered.h"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr std::array kTargets = {kSm90a, kSm90a, kSm90, kSm80};

/// Runs a program on copies of its tensors; returns what differs from what it means, or the trap.
std::string difference_of(const RoleProgram& program, const codegen::cpu::Executable& executable,
                          const codegen::cpu::Options& options) {
  std::vector<HostTensor> tensors = program.tensors;
  std::vector<TensorView> views;
  for (const HostTensor& tensor : tensors) views.push_back(tensor.view());
  const kernels::jit::ArgumentBinder binder("roles", program.kernel, kernels::jit::Author::tessera);
  const kernels::jit::Binding binding = binder.bind(views, {});
  std::vector<codegen::cpu::Argument> arguments;
  for (const TensorView& view : views) arguments.emplace_back().tensor = view;
  for (size_t i = 0; i < binder.num_dims(); ++i)
    arguments.emplace_back().integer = binding.slots[i];
  try {
    executable.run(arguments, options);
  } catch (const Error& error) {
    return error.what();
  }
  for (size_t t = 0; t < tensors.size(); ++t) {
    const std::string& name = program.kernel.tensors[t]->name;
    const std::vector<double>& expected = program.expected[t];
    for (size_t i = 0; i < expected.size(); ++i) {
      const double got = tensors[t].value(static_cast<int64_t>(i));
      if (got != expected[i]) return fmt::format("{}[{}] is {}, not {}", name, i, got, expected[i]);
    }
    if (expected.empty() && tensors[t].raw() != program.tensors[t].raw()) {
      return fmt::format("the input {} changed", name);
    }
    if (!tensors[t].damage().empty()) return fmt::format("{}: {}", name, tensors[t].damage());
  }
  return {};
}

/// Empty if all runs of the program do what it means.
std::string difference_of(uint64_t seed, bool prints) {
  const RoleProgram program = random_role_program(seed);
  if (prints) std::cout << ir::to_string(program.kernel);
  const Target target = kTargets[seed % kTargets.size()];
  const codegen::cpu::Executable executable(codegen::lower(program.kernel, target));
  const auto schedule = static_cast<uint32_t>(seed % 7);
  for (const bool traps : {true, false}) {
    codegen::cpu::Options options;
    options.traps = traps;
    options.workers = 1;
    options.schedule = traps ? schedule : schedule + 1;
    const std::string difference = difference_of(program, executable, options);
    if (!difference.empty()) return (traps ? "with traps: " : "without: ") + difference;
  }
  return {};
}

}  // namespace

TEST_CASE("random programs of roles do what they mean, with traps and without",
          "[fuzz][roles][slow]") {
  const uint64_t first = from_environment("TESSERA_FUZZ_FIRST", 1);
  const uint64_t programs = from_environment("TESSERA_FUZZ_ROLES", 400);
  uint64_t agreed = 0;
  std::map<std::string, uint64_t> refusals;  // by code
  std::vector<std::string> differences;
  for (uint64_t seed = first; seed < first + programs && differences.size() < 20; ++seed) {
    try {
      const std::string difference = difference_of(seed, programs == 1);
      if (difference.empty()) {
        ++agreed;
      } else {
        differences.push_back(fmt::format("seed {}: {}", seed, difference));
      }
    } catch (const Error& refusal) {
      ++refusals[refusal.code()];
      if (programs == 1) std::cout << refusal.what() << "\n";
      if (refusal.kind() != ErrorKind::program && refusal.kind() != ErrorKind::unsupported) {
        differences.push_back(fmt::format("seed {}: {}", seed, refusal.what()));
      }
    }
  }
  std::cout << fmt::format("{} random programs of roles from seed {}: {} agree, {} differ\n",
                           programs, first, agreed, differences.size());
  for (const auto& [code, count] : refusals) {
    std::cout << fmt::format("  refused {}: {}\n", code, count);
  }
  for (const std::string& text : differences) std::cout << "  " << text << "\n";
  CHECK(differences.empty());
  CHECK(agreed * 10 >= programs * 9);  // what is refused is not tested
}
