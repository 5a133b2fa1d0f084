// Random tile programs: what the compiler makes of them, run on the executor with every trap on,
// against what they mean, for sm_90a and for sm_80 in turn. A fixed corpus here; long runs by hand:
//   TESSERA_FUZZ_FIRST=1000000 TESSERA_FUZZ_PROGRAMS=1000000 build/test_fuzz
// Prints the seed of every difference; TESSERA_FUZZ_FIRST=SEED TESSERA_FUZZ_PROGRAMS=1 repeats it
// and prints the program.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "dsl/base/error.h"
#include "kernels/jit/argument_binder.h"
#include "tests/fuzz/from_environment.h"
#include "tests/fuzz/planted_bugs.h"
#include "tests/fuzz/random_program.h"
#include "tests/fuzz/scalar.h"
#include "tests/fuzz/tile_interpreter.h"
#include "tests/support/catch.h"
#include "tests/support/program_text.h"

using namespace tessera;
using namespace tessera::test;

namespace {

/// The outcome of running a program.
struct Outcome {
  bool is_planted = true;  // the bug found a place in it
  std::string difference;  // what went wrong; empty if nothing
};

/// Compiles the program, `bug` and all, and runs it on the executor, `finished` as the GPU would. False
/// if there was no place for the bug.
bool execute(RandomProgram& program, Bug bug, uint64_t choice, bool finished, Target target) {
  ir::Kernel& kernel = program.kernel;
  std::vector<TensorView> views;
  for (const HostTensor& tensor : program.tensors) views.push_back(tensor.view());
  const kernels::jit::ArgumentBinder binder(kernel.name, kernel, kernels::jit::Author::tessera);
  const kernels::jit::Binding binding = binder.bind(views, {});
  std::vector<codegen::cpu::Argument> arguments;
  for (const TensorView& view : views) arguments.emplace_back().tensor = view;
  for (size_t i = 0; i < binder.num_dims(); ++i)
    arguments.emplace_back().integer = binding.slots[i];
  if (!plant_before(bug, kernel)) return false;
  codegen::Program lowered = codegen::lower(kernel, target);
  if (!plant_after(bug, lowered, choice)) return false;
  if (finished) lowered = codegen::finish(std::move(lowered));
  codegen::cpu::Executable(std::move(lowered)).run(arguments, {.traps = true, .workers = 1});
  return true;
}

/// Throws Error of kind program or unsupported where the compiler refuses the program.
Outcome outcome_of(RandomProgram program, Bug bug = Bug::none, uint64_t choice = 0,
                   bool finished = false, Target target = {}) {
  std::vector<HostTensor> expected = program.tensors;
  std::vector<HostTensor*> pointers;
  for (HostTensor& tensor : expected) pointers.push_back(&tensor);
  interpret(program.kernel, pointers);
  try {
    if (!execute(program, bug, choice, finished, target)) return {false, {}};
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::program || error.kind() == ErrorKind::unsupported) throw;
    return {true, error.what()};
  }
  for (size_t t = 0; t < expected.size(); ++t) {
    for (int64_t i = 0; i < expected[t].size(); ++i) {
      if (expected[t].bits(i) != program.tensors[t].bits(i)) {
        return {true, fmt::format("{}[{}] is {}, not {}", program.kernel.tensors[t]->name, i,
                                  program.tensors[t].value(i), expected[t].value(i))};
      }
    }
    if (expected[t].raw() != program.tensors[t].raw()) {
      return {true, "bytes outside the elements changed"};
    }
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
    RandomProgram program = random_program(seed);
    if (is_alone) std::cout << ir::to_string(program.kernel);
    // Every other program for the oldest target.
    const Target target = seed % 2 == 0 ? Target{8, 0, 0} : Target();
    const Outcome outcome = outcome_of(std::move(program), Bug::none, 0, false, target);
    if (outcome.difference.empty()) {
      ++tally.agreed;
    } else {
      tally.differences.push_back(fmt::format("seed {}: {}", seed, outcome.difference));
    }
  } catch (const Error& refusal) {
    ++tally.refused;
    ++tally.refusals[refusal.code()];
    if (is_alone) std::cout << refusal.what() << "\n";
  }
}

}  // namespace

TEST_CASE("random programs do what they mean", "[fuzz][slow]") {
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

TEST_CASE("random programs do what they mean as the GPU gets them", "[fuzz]") {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    CHECK(outcome_of(random_program(seed), Bug::none, 0, true).difference.empty());
  }
}

TEST_CASE("a sum of negative zeros is +0 to the interpreter too", "[fuzz]") {
  for (const uint64_t seed : {30052106U, 40040461U, 40062619U, 40084413U}) {
    CAPTURE(seed);
    CHECK(outcome_of(random_program(seed)).difference.empty());
  }
}

TEST_CASE("the maximum of -0 and its magnitude is +0 to the interpreter too", "[fuzz]") {
  const Scalar zeros[] = {{0, -0.0}, {0, 0.0}}, swapped[] = {zeros[1], zeros[0]};
  for (const Scalar* pair : {zeros, swapped}) {
    CHECK_FALSE(std::signbit(apply(ir::Op::max, DType::f16, DType::f16, pair).number));
    CHECK(std::signbit(apply(ir::Op::min, DType::f16, DType::f16, pair).number));
  }
}

TEST_CASE("the text of random programs after each pass reads back", "[fuzz]") {
  int texts = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const ir::Kernel kernel = random_program(seed).kernel;
    for (const std::string_view pass : codegen::pass_names()) {
      const std::string text = codegen::text_after(kernel, pass);
      if (!text.starts_with("program ")) continue;  // still the tile IR
      CAPTURE(seed, std::string(pass));
      CHECK(codegen::to_string(read_program(text)) == text);
      ++texts;
    }
  }
  const std::vector<std::string_view> passes = codegen::pass_names();
  const auto first = std::find(passes.begin(), passes.end(), "lower_tiles");
  CHECK(texts == 40 * (passes.end() - first));
}

TEST_CASE("bugs planted in what the compiler makes are found", "[fuzz][mutants][slow]") {
  const Bug bug = GENERATE(Bug::barrier_left_out, Bug::guard_left_out, Bug::vector_too_wide,
                           Bug::reduction_counts_twice);
  int planted = 0;
  int found = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    try {
      const Outcome outcome = outcome_of(random_program(seed), bug, seed);
      if (outcome.is_planted) ++planted;
      if (!outcome.difference.empty()) ++found;
    } catch (const Error&) {  // refused
    }
  }
  std::cout << fmt::format("{}: planted in {} programs, found in {}\n", name(bug), planted, found);
  CHECK(found >= 10);
}
