// 12_group_count: a shipped op, rebuilt.
//
// group_count counts how often each of 64 groups occurs among ids; -1 means no group. Count in shared
// memory first, so that the block adds to each global counter once. The caller has set out to 0.
//
// Words: k.atomic_add(element, value), k.if_(condition, [&] { ... }).
#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;
using puzzles::hole;

ts::ir::Kernel puzzles::group_count() {
  Builder k("group_count");
  auto slots = k.dim("slots");
  auto ids = k.input("ids", ts::DType::i64, {slots});
  auto out = k.output("out", ts::DType::i32, {64});
  auto at = k.launch({ceil_div(slots, 512)}, {.threads = 128});

  auto counts = k.shared(ts::DType::i32, {64}, "counts");
  k.fill(counts, 0);
  hole(
      "k.parallel({512}, ...): where slot at.x * 512 + i is below slots and its id is not -1, "
      "add 1 to counts(id) atomically; k.parallel({64}, ...): add counts(g) to out(g) "
      "atomically");
  return k.finish();
}
