// Random calls of every op, in this process and through the program: each runs, or is refused with
// a message that names op and argument; exit codes are 0, 1 and 2. A fixed corpus here; long runs:
//   TESSERA_FUZZ_FIRST=1000000 TESSERA_FUZZ_CALLS=100000 build/test_signatures
// A failure prints its seed; TESSERA_FUZZ_FIRST=SEED TESSERA_FUZZ_CALLS=1 repeats it.

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "dsl/base/error.h"
#include "dsl/base/printable.h"
#include "kernels/signature/param_grammar.h"
#include "tests/signatures/random_call.h"
#include "tests/support/catch.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lib/calls/op_call.h"

// A refused allocation is an error of the call under test, not of the sanitizer.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}

namespace tessera::test {
namespace {

constexpr unsigned kMostSeconds = 60;  // for one call
constexpr size_t kMostNamed = 500;     // of an argument in a message

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Ends the process with the seed of the call that does not end.
class Watchdog {
 public:
  explicit Watchdog(uint64_t seed) {
    const std::string text = fmt::format("seed {} takes more than {} s\n", seed, kMostSeconds);
    std::strncpy(message_, text.c_str(), sizeof(message_) - 1);
    std::signal(SIGALRM, [](int) {
      static_cast<void>(!::write(STDERR_FILENO, message_, std::strlen(message_)));
      ::_exit(1);
    });
    ::alarm(kMostSeconds);
  }
  ~Watchdog() { ::alarm(0); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  static inline char message_[80];
};

struct Outcome {
  std::string refusal;  // the message, empty if the call ran
  std::string problem;  // what no call may do
  tools::Safetensors results;
};

/// Why this is no message for a caller; empty if it is one.
std::string problem_of(const Error& error, const kernels::OpInfo& op) {
  if (error.kind() != ErrorKind::argument && error.kind() != ErrorKind::unsupported) {
    return fmt::format("an error of kind {}", name(error.kind()));
  }
  if (error.op() != op.name) return "the message does not name the op";
  const std::string_view text = error.what();
  // A name of thousands of characters is cut.
  const std::string argument = printable_line(error.argument(), 2 * error.argument().size());
  if (text.find(argument.substr(0, kMostNamed)) == std::string_view::npos) {
    return "the message does not name the argument";
  }
  // An argument may be called "", but some tensor or parameter must be meant.
  const bool has_name = !error.argument().empty() || text.find("''") != std::string_view::npos ||
                        text.find("'strides.'") != std::string_view::npos;
  return has_name ? "" : "the error names no argument";
}

Outcome outcome_of(const RandomCall& random) {
  Outcome outcome;
  try {
    tools::OpCall call(*random.op, kernels::parse_params(*random.op, random.params), random.file,
                       Device::cpu());
    call.run();
    outcome.results = call.results();
  } catch (const Error& error) {
    outcome.refusal = error.what();
    outcome.problem = problem_of(error, *random.op);
  } catch (const std::exception& error) {
    outcome.refusal = outcome.problem = fmt::format("not an Error: {}", error.what());
  }
  return outcome;
}

RandomCall call_of(uint64_t seed, Random& random) {
  const std::vector<kernels::OpInfo>& ops = kernels::ops();
  return random_call(ops[seed % ops.size()], random);
}

bool same(const tools::Safetensors& a, const tools::Safetensors& b) {
  if (a.tensors.size() != b.tensors.size() || a.metadata != b.metadata) return false;
  for (const tools::StoredTensor& tensor : a.tensors) {
    const tools::StoredTensor* other = b.find(tensor.name);
    if (other == nullptr || other->dtype != tensor.dtype || other->shape != tensor.shape ||
        other->data.size() != tensor.data.size() ||
        (tensor.data.size() > 0 && std::memcmp(other->data.data(), tensor.data.data(),
                                               static_cast<size_t>(tensor.data.size())) != 0)) {
      return false;
    }
  }
  return true;
}

TEST_CASE("every call runs or is refused with its op and argument", "[signatures][slow]") {
  const uint64_t first = from_environment("TESSERA_FUZZ_FIRST", 1);
  const uint64_t calls = from_environment("TESSERA_FUZZ_CALLS", 1500);
  uint64_t ran = 0;
  for (uint64_t seed = first; seed < first + calls; ++seed) {
    const Watchdog watchdog(seed);
    Random random(seed);
    const RandomCall call = call_of(seed, random);
    const Outcome outcome = outcome_of(call);
    ran += outcome.refusal.empty() ? 1 : 0;
    if (outcome.problem.empty()) continue;
    FAIL_CHECK("seed " << seed << ": " << outcome.problem << "\n"
                       << outcome.refusal << "\n"
                       << printable(to_string(call)));
  }
  CAPTURE(ran, calls);
  if (calls >= 1000) {  // both parts have to be there
    CHECK(ran > calls / 10);
    CHECK(ran < calls - calls / 10);
  }
}

TEST_CASE("the program does with a file what the call in this process does", "[signatures][slow]") {
  const uint64_t first = from_environment("TESSERA_FUZZ_FIRST", 1);
  const uint64_t calls = from_environment("TESSERA_FUZZ_CALLS", 5000) / 50 + 1;
  for (uint64_t seed = first; seed < first + calls; ++seed) {
    const Watchdog watchdog(seed);
    Random random(seed);
    const RandomCall call = call_of(seed, random);
    CAPTURE(seed, printable(to_string(call)));
    const tests::TemporaryFolder folder;
    try {
      write_safetensors(folder.path("x"), call.file);
    } catch (const Error& error) {  // names that no file holds
      CHECK(std::string(error.what()).find("that is not UTF-8\n") != std::string::npos);
      continue;
    }
    const bool is_damaged = random.one_in(3);
    if (is_damaged) {
      tests::write_text(folder.path("x"), damaged(tests::read_text(folder.path("x")), random));
    }
    std::vector<std::string> words = {"run",  call.op->name,    "--device", "cpu",
                                      "--in", folder.path("x"), "--out",    folder.path("y")};
    for (const std::string& param : call.params) words.insert(words.end(), {"-p", param});
    const tests::ProgramResult result = tests::run_tessera(words);
    CAPTURE(result.err);
    CHECK((result.exit_code == 0 || result.exit_code == 1 || result.exit_code == 2));
    CHECK(result.err.find("internal error") == std::string::npos);
    CHECK(std::filesystem::exists(folder.path("y")) == (result.exit_code == 0));
    CHECK(folder.num_files() == (result.exit_code == 0 ? 2 : 1));
    if (result.exit_code != 0) CHECK(result.err.find("tessera: ") == 0);
    if (is_damaged) continue;
    const Outcome here = outcome_of(call);
    CHECK(here.refusal.empty() == (result.exit_code == 0));
    if (!here.refusal.empty() && result.exit_code != 0) CHECK(result.err == here.refusal + "\n");
    if (here.refusal.empty() && result.exit_code == 0) {
      CHECK(same(here.results, tools::read_safetensors(folder.path("y"))));
    }
  }
}

}  // namespace
}  // namespace tessera::test
