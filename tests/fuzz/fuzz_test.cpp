// Random tile programs: what the compiler makes of them, run on the executor with every trap on, against what they
// mean. A fixed corpus here; long runs by hand:
//   TESSERA_FUZZ_FIRST=1000000 TESSERA_FUZZ_PROGRAMS=1000000 build/test_fuzz
// Prints the seed of every difference; TESSERA_FUZZ_FIRST=SEED TESSERA_FUZZ_PROGRAMS=1 repeats it and prints the program.

#include <fmt/format.h>

#include <cstdlib>
#include <iostream>
#include <map>

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "dsl/base/error.h"
#include "kernels/jit/plan.h"
#include "tests/fuzz/random_program.h"
#include "tests/fuzz/tile_interpreter.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::test;

namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

void execute(const ir::Kernel& kernel, const std::vector<HostTensor>& tensors) {
  std::vector<TensorView> views;
  for (const HostTensor& tensor : tensors) views.push_back(tensor.view());
  const kernels::jit::Plan plan(kernel.name, kernel);
  const kernels::jit::Binding binding = plan.bind(views, {});
  std::vector<codegen::cpu::Argument> arguments;
  for (const TensorView& view : views) arguments.emplace_back().tensor = view;
  for (size_t i = 0; i < plan.num_dims(); ++i) arguments.emplace_back().integer = binding.slots[i];
  codegen::cpu::Executable(codegen::lower(kernel)).run(arguments, {.traps = true, .workers = 1});
}

/// What went wrong; empty if nothing.
std::string difference(const RandomProgram& program) {
  std::vector<HostTensor> expected = program.tensors;
  std::vector<HostTensor*> pointers;
  for (HostTensor& tensor : expected) pointers.push_back(&tensor);
  interpret(program.kernel, pointers);
  execute(program.kernel, program.tensors);
  for (size_t t = 0; t < expected.size(); ++t) {
    for (int64_t i = 0; i < expected[t].size(); ++i) {
      if (expected[t].bits(i) != program.tensors[t].bits(i)) {
        return fmt::format("{}[{}] is {}, not {}", program.kernel.tensors[t]->name, i,
                           program.tensors[t].value(i), expected[t].value(i));
      }
    }
    if (expected[t].raw() != program.tensors[t].raw()) return "bytes outside the elements changed";
  }
  return {};
}

struct Tally {
  uint64_t agreed = 0, refused = 0;
  std::map<std::string, uint64_t> refusals;  // by code
  std::vector<std::string> differences;
};

void try_one(uint64_t seed, bool is_alone, Tally& tally) {
  try {
    const RandomProgram program = random_program(seed);
    if (is_alone) std::cout << ir::to_string(program.kernel);
    const std::string wrong = difference(program);
    if (wrong.empty()) {
      ++tally.agreed;
    } else {
      tally.differences.push_back(fmt::format("seed {}: {}", seed, wrong));
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::program || error.kind() == ErrorKind::unsupported) {
      ++tally.refused;
      ++tally.refusals[error.code()];
      if (is_alone) std::cout << error.what() << "\n";
    } else {
      tally.differences.push_back(fmt::format("seed {}: {}", seed, error.what()));
    }
  }
}

}  // namespace

TEST_CASE("random programs do what they mean", "[fuzz]") {
  const uint64_t first = from_environment("TESSERA_FUZZ_FIRST", 1);
  const uint64_t programs = from_environment("TESSERA_FUZZ_PROGRAMS", 1000);
  Tally tally;
  for (uint64_t seed = first; seed < first + programs; ++seed) {
    try_one(seed, programs == 1, tally);
    if (tally.differences.size() >= 20) break;
  }
  std::cout << fmt::format("{} random programs from seed {}: {} agree, {} refused, {} differ\n",
                           programs, first, tally.agreed, tally.refused, tally.differences.size());
  for (const auto& [code, count] : tally.refusals)
    std::cout << fmt::format("  refused {}: {}\n", code, count);
  for (const std::string& text : tally.differences) std::cout << "  " << text << "\n";
  CHECK(tally.differences.empty());
  CHECK(tally.refused * 200 <= programs + 200);  // what is refused is not tested
}
