// Clusters whose blocks share copies: one tensor copy fills a tile in all of them.

#include <algorithm>
#include <initializer_list>
#include <random>

#include "codegen/cuda/emit.h"
#include "tests/support/catch.h"
#include "tests/support/cluster_product.h"
#include "tests/support/lowered.h"
#include "tests/support/nvrtc.h"
#include "tests/support/program_text.h"
#include "tests/support/run_kernel.h"

namespace tessera {
namespace {

using codegen::Array;
using codegen::Program;
using codegen::Stmt;
using dsl::Builder;
using dsl::Value;
using test::ClusterProduct;
using test::HostTensor;
using test::kSm90a;

Program lowered(const ClusterProduct& p) {
  return codegen::lower(test::cluster_product(p), kSm90a);
}

HostTensor run(const ClusterProduct& p, const Program& program, uint32_t schedule = 0,
               codegen::cpu::Counts* counts = nullptr) {
  return test::call_of(p).run(program, test::all_traps(kSm90a, schedule, counts));
}

std::string trap_of(const ClusterProduct& p, const Program& program, uint32_t schedule = 0) {
  return test::error_of([&] { run(p, program, schedule); });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

ClusterProduct alone(ClusterProduct p) {
  p.multicast = ir::Multicast::never;
  return p;
}

}  // namespace

TEST_CASE("blocks that share copies compute what blocks by themselves do (W44, W46)",
          "[language][multicast]") {
  for (const int share : {0, 1}) {
    for (const int cluster : {2, 4}) {
      ClusterProduct p;  // 3 x 5 tiles
      p.share = share;
      p.cluster = cluster;
      INFO(p.text());
      codegen::cpu::Counts counts, apart;
      const HostTensor c = run(p, lowered(p), 0, &counts);
      CHECK(c.raw() == run(alone(p), lowered(alone(p)), 0, &apart).raw());
      CHECK(counts.cluster_bytes > 0);
      CHECK(apart.cluster_bytes == 0);
      CHECK(counts.global_load_bytes < apart.global_load_bytes);
    }
  }
}

TEST_CASE("a shared tile is read once per cluster (W44)", "[language][multicast]") {
  ClusterProduct p;
  p.m = 256;  // 4 x 5 tiles: no block is surplus
  codegen::cpu::Counts counts, apart;
  run(p, lowered(p), 0, &counts);
  run(alone(p), lowered(alone(p)), 0, &apart);
  const int64_t of_a = 5 * p.m * p.depth * 2, of_b = 4 * p.n * p.depth * 2;
  CHECK(apart.global_load_bytes == of_a + of_b);
  CHECK(counts.global_load_bytes == of_a + of_b / 2);
  CHECK(counts.cluster_bytes == of_b / 2);
}

TEST_CASE("walks that share reach each tile once, whatever the numbers (W46, W47)",
          "[language][multicast]") {
  for (const int64_t rows : {1, 3}) {
    for (const int64_t columns : {1, 5}) {
      for (const int blocks : {2, 6}) {
        for (const int64_t group : {1, 2}) {
          ClusterProduct p;
          p.tile_columns = p.step = p.depth = 16;
          p.m = rows * 64 - 5;
          p.n = columns * 16 - 3;
          p.blocks = blocks;
          p.group = group;
          for (p.share = 0; p.share < 2; ++p.share) {
            INFO(p.text());
            ClusterProduct single = alone(p);
            single.cluster = 1;
            CHECK(run(p, lowered(p)).raw() == run(single, lowered(single)).raw());
          }
        }
      }
    }
  }
}

TEST_CASE("shared copies do not depend on which block goes on first (W45)",
          "[language][multicast]") {
  ClusterProduct p;
  p.stages = 3;
  p.tile_columns = p.step = 16;
  p.n = 70;
  p.depth = 80;
  const Program program = lowered(p);
  const HostTensor first = run(p, program);
  for (uint32_t schedule = 1; schedule <= 16; ++schedule) {
    CAPTURE(schedule);
    CHECK(run(p, program, schedule).raw() == first.raw());
  }
}

TEST_CASE("random products that share copies equal those that do not", "[language][multicast]") {
  std::mt19937 random(7);
  const auto one_of = [&](std::initializer_list<int> values) {
    return values.begin()[random() % values.size()];
  };
  for (int i = 0; i < 16; ++i) {
    ClusterProduct p;
    p.tile_rows = one_of({64, 128});
    p.tile_columns = one_of({16, 32, 64});
    p.step = one_of({16, 32, 64});
    p.stages = one_of({1, 2, 3, 5});
    p.threads = one_of({128, 256});
    p.cluster = one_of({1, 2, 4});
    p.blocks = p.cluster * one_of({1, 2, 3});
    p.share = one_of({0, 1});
    p.group = one_of({1, 2, 3});
    p.m = one_of({1, 60, 129, 200});
    p.n = one_of({1, 31, 65, 100});
    p.depth = p.step * one_of({0, 1, 2, 5});
    const auto schedule = static_cast<uint32_t>(random() % 8);
    INFO(p.text() << ", schedule " << schedule);
    CHECK(run(p, lowered(p), schedule).raw() == run(alone(p), lowered(alone(p))).raw());
  }
}

TEST_CASE("a stage of one block is empty when all blocks have read it (W45)",
          "[language][multicast]") {
  ClusterProduct p;
  Program program = lowered(p);
  for (const auto& array : program.shared) {
    if (array->ring_part == Array::RingPart::empty) CHECK(array->arrivals == 2 * 4);
    if (array->ring_part == Array::RingPart::full) CHECK(array->arrivals == 1);
  }
  // Takes that arrive at their own block alone, and half the count: the other block fills too early.
  for (codegen::ArrayRef& array : program.shared) {
    if (array->ring_part == Array::RingPart::empty) {
      const_cast<Array&>(*array).arrivals = 4;
    }
  }
  codegen::walk(program.body, [](Stmt& stmt) {
    auto* branch = std::get_if<codegen::If>(&stmt.node);
    if (branch == nullptr || branch->then.size() != 1) return;
    auto* arrive = std::get_if<codegen::MbarrierArrive>(&branch->then[0].node);
    if (arrive == nullptr || !arrive->rank) return;
    branch->condition = ir::binary(ir::Op::eq, arrive->rank, ir::index(0));
    arrive->rank = {};
  });
  bool is_named = false;
  for (uint32_t schedule = 0; schedule < 16; ++schedule) {
    const std::string trap = trap_of(p, program, schedule);
    INFO(trap);
    CHECK(trap != "");
    is_named = is_named || has(trap, "[RING_LATE]");
  }
  CHECK(is_named);
}

TEST_CASE("a block stays until no other can reach its memory (W44)", "[language][multicast]") {
  ClusterProduct p;
  p.m = 64;
  p.n = 64;
  Program program = lowered(p);
  const auto* const last = std::get_if<codegen::Barrier>(&program.body.back().node);
  REQUIRE(last != nullptr);
  CHECK(last->scope == codegen::BarrierScope::cluster);
  CHECK(trap_of(p, program) == "");
  program.body.pop_back();
  CHECK(has(trap_of(p, program), "[CLUSTER_ACCESS]"));
}

TEST_CASE("blocks that vouch for one tile and name two are told (MULTICAST)",
          "[language][multicast]") {
  ClusterProduct p;
  p.names_rank = true;
  p.multicast = ir::Multicast::required;
  const std::string trap = trap_of(p, lowered(p));
  INFO(trap);
  CHECK(has(trap, "the blocks of the cluster copy parts of different tiles of 'b' to 'b_tile'"));
  CHECK(has(trap, "[MULTICAST]"));
  CHECK(has(trap, "cluster_product.cpp"));
  // Not vouched for, they copy apart.
  p.multicast = ir::Multicast::automatic;
  CHECK(trap_of(p, lowered(p)) == "");
}

TEST_CASE("a cluster meets before its mbarriers are used", "[language][multicast]") {
  ClusterProduct p;
  Program program = lowered(p);
  const auto meeting = std::find_if(program.body.begin(), program.body.end(), [](const Stmt& stmt) {
    const auto* barrier = std::get_if<codegen::Barrier>(&stmt.node);
    return barrier != nullptr && barrier->scope == codegen::BarrierScope::cluster;
  });
  REQUIRE(meeting + 1 != program.body.end());
  std::get<codegen::Barrier>(meeting->node).scope = codegen::BarrierScope::block;
  const std::string trap = trap_of(p, program);
  INFO(trap);
  CHECK(has(trap, "b_tile of block 0 of the cluster, which may not have begun"));
  CHECK(has(trap, "[CLUSTER_ACCESS]"));
}

TEST_CASE("the text of a program shows what blocks share", "[language][multicast]") {
  const std::string text = codegen::to_string(lowered({}));
  CHECK(has(text, ", expected, multicast\n"));
  CHECK(has(text, "mbarrier arrive empty[taken], of block multiply_thread % 32\n"));
  CHECK(has(text, "phase round - 1, of the cluster\n"));
  CHECK(codegen::to_string(test::read_program(text)) == text);
}

TEST_CASE("explain says which copies blocks share, or why not", "[language][multicast]") {
  ClusterProduct p;
  const std::string shared = codegen::explain(test::cluster_product(p), kSm90a);
  INFO(shared);
  CHECK(
      has(shared, "b -> b_tile: tensor copies of 64 x 32, a part from each of 2 blocks into all"));
  CHECK(has(shared, "filled by 'load' by tensor copies of 2 blocks together"));
  CHECK(has(shared, "a -> a_tile: tensor copies of 64 x 32, no multicast: "));
  p.cluster = 1;
  CHECK(!has(codegen::explain(test::cluster_product(p), kSm90a), "multicast"));
  p.cluster = 2;
  p.tile_columns = 24;
  CHECK(has(codegen::explain(test::cluster_product(p), kSm90a),
            "no multicast: 24 x 32, not a tile of 2 parts of multiples of 8 rows"));
}

TEST_CASE("a multicast that is impossible is refused with the reason", "[language][multicast]") {
  ClusterProduct p;
  p.multicast = ir::Multicast::required;
  p.cluster = 1;
  const auto refusal = [](const ClusterProduct& product) {
    return test::error_of([&] { lowered(product); });
  };
  CHECK(has(refusal(p), "'b' cannot be copied to 'b_tile' by tensor copies"));
  CHECK(has(refusal(p), "a launch with clusters"));
  CHECK(has(refusal(p), "[COPY_ENGINE]"));
  CHECK(has(refusal(p), "hint      launch with .cluster = 2 or more"));
  p.cluster = 2;
  p.tile_columns = 24;
  CHECK(has(refusal(p), "a tile of 2 parts of multiples of 8 rows"));
  CHECK(has(refusal(p), "hint      let the rows of the tile be a multiple of 16"));
  const auto by_pieces = [] {
    Builder k("pieces");
    auto x = k.input("x", DType::f32, {64, 64});
    k.launch({2}, {.threads = 32, .cluster = 2});
    auto ring = k.ring({.stages = 2});
    auto tile = ring.shared(DType::f32, {64, 64});
    k.roles({{.name = "load", .warps = 1, .body = [&] {
                ring.fill([&] { k.copy(x, tile, {.multicast = ir::Multicast::required}); });
              }}});
  };
  INFO(test::error_of(by_pieces));
  CHECK(
      has(test::error_of(by_pieces), "copy from 'x' into all blocks of the cluster [COPY_ENGINE]"));
  const auto far = [] {
    Builder k("far");
    k.launch({2}, {.threads = 64, .cluster = 2});
    k.persistent({4}, [&](Value) {}, {.share = 1});
  };
  CHECK(has(test::error_of(far), "the blocks of a cluster cannot share along this axis [CLUSTER]"));
}

TEST_CASE("programs that share copies compile for GPUs with clusters", "[language][multicast]") {
  std::string reason;
  const auto nvrtc = test::Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  for (const auto& [name, target] :
       {std::pair{"sm_90a", kSm90a}, {"sm_100a", {10, 0, 'a'}}, {"sm_120a", {12, 0, 'a'}}}) {
    const bool shares = target.major < 12;  // there each block copies its tiles
    if (!nvrtc->supports(name)) continue;
    const Program program = codegen::lower(test::cluster_product({}), target);
    const std::string text = codegen::cuda::emit(codegen::finish(program)).text;
    const test::Compiled compiled = nvrtc->compile(text, name);
    INFO(name << ": " << compiled.log);
    CHECK(compiled.ok);
    CHECK(compiled.log == "");
    CHECK(test::count(text, "3>(&full[filled], &b_tile[") == shares);
    CHECK(test::count(text, "arrive_at_block(&empty[taken], ") == shares);
    CHECK(test::count(text, "wait_for_cluster(&empty[filled], ") == shares);
  }
}

}  // namespace tessera
