// puzzles: checks the puzzles of this folder.
//
//   puzzles        all of them, up to the first that is not solved
//   puzzles 3      number 3 alone
//
// Exit codes: 0 solved, 1 not yet, 2 wrong usage.

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <stdexcept>

#include "dsl/base/error.h"
#include "examples/puzzles/check/check.h"
#include "examples/puzzles/puzzle.h"

namespace puzzles {
namespace {

class Hole : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Tells how a puzzle stands; true if it is solved.
bool report(const Puzzle& puzzle) {
  std::string problem;
  try {
    problem = puzzle.check();
  } catch (const std::exception& error) {  // a hole, an error of the language, a trap
    problem = error.what();
  }
  if (problem.empty()) {
    fmt::print("{}: solved\n", puzzle.file);
    return true;
  }
  fmt::print(
      "{}: not solved yet\n{}\n  file      examples/puzzles/{}.cpp\n  an answer is in the folder "
      "answers beside it\n",
      puzzle.file, problem, puzzle.file);
  return false;
}

}  // namespace

void hole(const char* task, tessera::SourceLoc loc) {
  throw Hole(fmt::format("  to do     {}\n  at        {}", task, to_string(loc)));
}

}  // namespace puzzles

int main(int argc, char** argv) {
  if (argc > 1) {
    const int number = std::atoi(argv[1]);
    if (number < 1 || number > static_cast<int>(puzzles::all().size())) {
      fmt::print(stderr, "puzzles: expected a number of 1 to {}, got '{}'\n", puzzles::all().size(),
                 argv[1]);
      return 2;
    }
    return puzzles::report(puzzles::all()[static_cast<size_t>(number - 1)]) ? 0 : 1;
  }
  for (const puzzles::Puzzle& puzzle : puzzles::all()) {
    if (!puzzles::report(puzzle)) return 1;
  }
  fmt::print("all solved: write your own, as examples/05_own_kernels.cpp does\n");
  return 0;
}
