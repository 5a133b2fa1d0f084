// An answer to ../12_group_count.cpp.

#include "dsl/builder.h"
#include "examples/puzzles/puzzle.h"

namespace ts = tessera;
using namespace tessera::dsl;

ts::ir::Kernel puzzles::group_count() {
  Builder k("group_count");
  auto slots = k.dim("slots");
  auto ids = k.input("ids", ts::DType::i64, {slots});
  auto out = k.output("out", ts::DType::i32, {64});
  auto at = k.launch({ceil_div(slots, 512)}, {.threads = 128});

  auto counts = k.shared(ts::DType::i32, {64}, "counts");
  k.fill(counts, 0);
  k.parallel({512}, [&](auto i) {
    auto slot = at.x * 512 + i;
    k.if_(slot < slots, [&] {
      Value id = ids(slot);
      k.if_(id >= 0, [&] { k.atomic_add(counts(id), 1); });
    });
  });
  k.parallel({64}, [&](auto g) { k.atomic_add(out(g), counts(g)); });
  return k.finish();
}
