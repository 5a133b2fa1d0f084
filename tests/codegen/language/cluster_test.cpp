// Tile programs whose blocks reach each other's shared memory.

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr int kThreads = 64;

/// A kernel of clusters whose blocks have `tile` i32 [64] filled with 100 * block + thread, and write
/// `y` i32 [blocks, 64]. `body` has the launch, the tile and the row of y.
template <class Body>
ir::Kernel in_clusters(int cluster, int64_t blocks, const Body& body) {
  Builder k("in_clusters");
  auto y = k.output("y", DType::i32, {blocks, kThreads});
  auto at = k.launch({blocks}, {.threads = kThreads, .cluster = cluster});
  auto tile = k.shared(DType::i32, {kThreads}, "tile");
  tile(k.thread()) = at.x * 100 + k.thread();
  body(k, tile, y(at.x));
  return k.finish();
}

HostTensor run(const ir::Kernel& kernel, int64_t blocks) {
  HostTensor result(DType::i32, {blocks, kThreads});
  run_kernel(kernel, {&result});
  return result;
}

std::string trap_of(const ir::Kernel& kernel, int64_t blocks) {
  return error_of([&] { run(kernel, blocks); });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("blocks of a cluster read each other's shared memory", "[language]") {
  const int cluster = GENERATE(2, 8, 16);
  const int64_t blocks = 2 * cluster;
  CAPTURE(cluster);
  const ir::Kernel kernel = in_clusters(cluster, blocks, [&](Builder& k, Ref tile, Ref y) {
    auto sum = k.var(DType::i32, 0, "sum");
    k.sync_cluster();
    k.unrolled(cluster,
               [&](Value rank) { sum += k.of_block(tile, rank)((k.thread() + rank) % kThreads); });
    y(k.thread()) = sum;
  });
  const HostTensor result = run(kernel, blocks);
  CHECK_THAT(result, HasValues([&](int64_t i) {
               const int64_t block = i / kThreads, thread = i % kThreads;
               int64_t want = 0;
               for (int64_t rank = 0; rank < cluster; ++rank) {
                 want += (block / cluster * cluster + rank) * 100 + (thread + rank) % kThreads;
               }
               return want;
             }));
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "sync_cluster();") == 1);
  CHECK(count(text, "arrive_cluster();") == 1);  // the reads are done
  CHECK(count(text, "wait_cluster();") == 1);    // so are those of the others: the block may end
  CHECK(count(text, "__syncthreads();") == 0);
}

TEST_CASE("blocks of a cluster write into each other's shared memory", "[language]") {
  constexpr int kCluster = 4;
  const ir::Kernel kernel = in_clusters(kCluster, 2 * kCluster, [&](Builder& k, Ref tile, Ref y) {
    auto got = k.shared(DType::i32, {kThreads}, "got");
    auto next = k.let("next", (k.cluster_rank() + 1) % kCluster);
    k.sync_cluster();
    k.of_block(got, next)(k.thread()) = tile(kThreads - 1 - k.thread());
    k.sync_cluster();
    y(k.thread()) = got(k.thread());
  });
  const HostTensor result = run(kernel, 2 * kCluster);
  CHECK_THAT(result, HasValues([](int64_t i) {
               const int64_t block = i / kThreads, thread = i % kThreads;
               const int64_t from = block / kCluster * kCluster + (block + kCluster - 1) % kCluster;
               return from * 100 + kThreads - 1 - thread;
             }));
  CHECK(count(cuda_text(kernel), "arrive_cluster();") == 0);  // the last barrier does
}

TEST_CASE("a counter of one block is changed by all of its cluster", "[language]") {
  constexpr int kCluster = 8;
  const ir::Kernel kernel = in_clusters(kCluster, kCluster, [&](Builder& k, Ref, Ref y) {
    auto counts = k.shared(DType::i32, {kThreads}, "counts");
    k.fill(counts, 0);
    k.sync_cluster();
    auto owner = k.let("owner", k.thread() % kCluster);  // another one for every thread
    k.atomic_add(k.of_block(counts, owner)(k.thread() / 2), k.cluster_rank() + 1);
    k.sync_cluster();
    y(k.thread()) = counts(k.thread());
  });
  const HostTensor result = run(kernel, kCluster);
  CHECK_THAT(result, HasValues([](int64_t i) {
               const int64_t block = i / kThreads, slot = i % kThreads;
               const bool has_pair = slot < kThreads / 2;
               int64_t threads = 0;
               for (int64_t t = 2 * slot; has_pair && t < 2 * slot + 2; ++t) {
                 threads += t % 8 == block;
               }
               return 36 * threads;
             }));
}

TEST_CASE("a tile of another block is copied like one's own", "[language]") {
  constexpr int kRows = 16, kColumns = 32;
  Builder k("copy_neighbour");
  auto x = k.input("x", DType::f32, {4, kRows, kColumns});
  auto y = k.output("y", DType::f32, {4, kRows, kColumns});
  auto at = k.launch({4}, {.threads = 128, .cluster = 2});
  auto tile = k.shared(DType::f32, {kRows, kColumns}, "tile");
  auto frag = k.fragment(DType::f32, {kRows, kColumns}, "frag");
  k.copy(x(at.x), tile);
  k.sync_cluster();
  k.copy(k.of_block(tile, 1 - k.cluster_rank()), frag);
  k.copy(frag, y(at.x));
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::f32, {4, kRows, kColumns});
  HostTensor result(DType::f32, {4, kRows, kColumns});
  run_kernel(kernel, {&source, &result});
  constexpr int64_t kTile = kRows * kColumns;
  CHECK_THAT(result, HasValues([&](int64_t i) {
               return source.value((i / kTile ^ 1) * kTile + i % kTile);
             }));
  CHECK(count(cuda_text(kernel), "load<4>(") == 2);  // four elements at once
}

TEST_CASE("shared memory that other blocks reach is not used for anything else", "[language]") {
  // 3 x 40 KiB would keep blocks off the device, so that arrays share memory where they may.
  constexpr int64_t kSize = 10 * 1024;
  Builder k("kept");
  auto y = k.output("y", DType::i32, {4, 64});
  auto at = k.launch({4}, {.threads = 64, .cluster = 2});
  auto first = k.shared(DType::i32, {kSize}, "first");
  auto second = k.shared(DType::i32, {kSize}, "second");
  auto third = k.shared(DType::i32, {kSize}, "third");
  k.fill(first, at.x);
  k.sync_cluster();
  auto there = k.let("there", k.of_block(first, 1 - k.cluster_rank())(k.thread() * 160));
  k.fill(second, there);
  auto mine = k.let("mine", second(kSize - 1 - k.thread()));
  k.fill(third, mine);
  y(at.x, k.thread()) = third(k.thread() * 160 + 1);
  const ir::Kernel kernel = k.finish();
  HostTensor result(DType::i32, {4, 64});
  run_kernel(kernel, {&result});
  CHECK_THAT(result, HasValues([](int64_t i) { return i / 64 ^ 1; }));
}

TEST_CASE("what the blocks of a cluster do without a barrier is trapped", "[language]") {
  const auto neighbour = [](Builder& k, const Ref& tile) {
    return k.of_block(tile, (k.cluster_rank() + 1) % 2)(k.thread());
  };
  SECTION("before all have begun") {
    const ir::Kernel kernel =
        in_clusters(2, 2, [&](Builder& k, Ref tile, Ref y) { y(k.thread()) = neighbour(k, tile); });
    const std::string error = trap_of(kernel, 2);
    CHECK(has(error, "CLUSTER_ACCESS"));
    CHECK(has(error, "tile[0] of block 1 of the cluster, which may not have begun"));
  }
  SECTION("a write that no barrier parts from another block's read") {
    const ir::Kernel kernel = in_clusters(2, 2, [&](Builder& k, Ref tile, Ref y) {
      k.sync_cluster();
      y(k.thread()) = neighbour(k, tile);
      tile(k.thread()) = 0;
    });
    const std::string error = trap_of(kernel, 2);
    CHECK(has(error, "RACE"));
    CHECK(has(error,
              "race on tile[0]: read here and written by thread 0 of block 0 of the "
              "cluster with no cluster barrier between"));
  }
  SECTION("a barrier of the block does not part them") {
    const ir::Kernel kernel = in_clusters(2, 2, [&](Builder& k, Ref tile, Ref y) {
      k.sync_cluster();
      y(k.thread()) = neighbour(k, tile);
      k.sync();
      y(k.thread()) = y(k.thread()) + tile(kThreads - 1 - k.thread());
      k.sync();
      k.if_(k.thread() == 5, [&] { tile(5) = 0; });
    });
    CHECK(has(trap_of(kernel, 2), "with no cluster barrier between"));
  }
  SECTION("a rank that the cluster does not have") {
    const ir::Kernel kernel = in_clusters(2, 2, [&](Builder& k, Ref tile, Ref y) {
      k.sync_cluster();
      y(k.thread()) = k.of_block(tile, k.thread() / 32 + k.cluster_rank())(k.thread());
    });
    const std::string error = trap_of(kernel, 2);
    CHECK(has(error, "OOB"));
    CHECK(has(error, "a rank from 0 to 1"));
  }
  SECTION("an index outside of the tile") {
    const ir::Kernel kernel = in_clusters(2, 2, [&](Builder& k, Ref tile, Ref y) {
      k.sync_cluster();
      y(k.thread()) = k.of_block(tile, 1)(k.let("next", k.thread() + 1));
    });
    CHECK(has(trap_of(kernel, 2), "tile[64] is out of bounds"));
  }
  SECTION("a barrier that one block does not reach") {
    const ir::Kernel kernel = in_clusters(2, 2, [&](Builder& k, Ref, Ref y) {
      k.if_(k.cluster_rank() == 0, [&] { k.sync_cluster(); });
      y(k.thread()) = 0;
    });
    const std::string error = trap_of(kernel, 2);
    CHECK(has(error, "DIVERGENT_BARRIER"));
    CHECK(has(error, "a cluster barrier that block 1 of the cluster never reaches"));
  }
  SECTION("a barrier of the cluster while another block waits for the grid") {
    const ir::Kernel kernel = in_clusters(2, 2, [&](Builder& k, Ref, Ref y) {
      k.if_(k.cluster_rank() == 0, [&] { k.sync_cluster(); });
      k.sync_grid();
      y(k.thread()) = 0;
    });
    const std::string error = trap_of(kernel, 2);
    CHECK(has(error, "DIVERGENT_BARRIER"));
    CHECK(has(error, "a grid barrier that block 0 of the cluster never reaches"));
    CHECK(has(error, "block 0 waits at another barrier"));
  }
}

TEST_CASE("a block that would end too early is trapped", "[language]") {
  const ir::Kernel kernel = in_clusters(2, 2, [&](Builder& k, Ref tile, Ref y) {
    k.sync_cluster();
    y(k.thread()) = k.of_block(tile, 1 - k.cluster_rank())(k.thread());
  });
  codegen::Program program = codegen::lower(kernel);
  auto& last = std::get<codegen::Barrier>(program.body.back().node);
  CHECK(last.scope == codegen::BarrierScope::cluster_wait);  // what the compiler has added
  program.body.pop_back();
  const HostTensor result(DType::i32, {2, kThreads});
  const codegen::cpu::Argument arguments[] = {{.tensor = result.view()}};
  const codegen::cpu::Executable executable(std::move(program));
  const std::string error = error_of([&] { executable.run(arguments, {.traps = true}); });
  CHECK(has(error, "CLUSTER_ACCESS"));
  CHECK(has(error, "tile[0] of block 0 of the cluster, which has ended"));
}

TEST_CASE("a loop of barriers behind the last access to another block is left before it ends",
          "[language]") {
  const ir::Kernel kernel = in_clusters(2, 2, [&](Builder& k, Ref tile, Ref y) {
    k.sync_cluster();
    auto sum = k.var(DType::i32, k.of_block(tile, 1 - k.cluster_rank())(k.thread()), "sum");
    k.serial(0, 2, [&](Value) {
      k.sync_cluster();
      sum += 10;
    });
    y(k.thread()) = sum;
  });
  const HostTensor result = run(kernel, 2);
  CHECK_THAT(result,
             HasValues([](int64_t i) { return (1 - i / kThreads) * 100 + i % kThreads + 20; }));
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "arrive_cluster();") == 0);  // a barrier between it and its wait
  CHECK(count(text, "sync_cluster();") == 3);
}

TEST_CASE("clusters that are impossible are refused", "[language]") {
  const auto launched = [](int cluster, int64_t blocks, const auto& body) {
    return error_of([&] { in_clusters(cluster, blocks, body); });
  };
  const auto nothing = [](Builder&, const Ref&, const Ref&) {};
  CHECK(has(launched(0, 4, nothing), "CLUSTER"));
  CHECK(has(launched(17, 34, nothing), "1 .. 16 blocks"));
  CHECK(has(launched(4, 6, nothing), "a multiple of 4"));
  const auto sync = [](Builder& k, const Ref&, const Ref&) { k.sync_cluster(); };
  CHECK(has(launched(1, 4, sync), "sync_cluster() in a launch without clusters"));
  const auto reach = [](Builder& k, const Ref& tile, const Ref&) { k.of_block(tile, 0); };
  CHECK(has(launched(1, 4, reach), "in a launch without clusters"));
  const auto too_far = [](Builder& k, const Ref& tile, const Ref&) { k.of_block(tile, 2); };
  CHECK(has(launched(2, 4, too_far), "a rank from 0 to 1"));
  const auto global = [](Builder& k, const Ref&, const Ref& y) { k.of_block(y, 0); };
  CHECK(has(launched(2, 4, global), "has no counterpart in another block"));
  const auto leave = [](Builder& k, const Ref& tile, const Ref& y) {
    k.return_if(k.cluster_rank() == 1);
    k.sync_cluster();
    y(k.thread()) = k.of_block(tile, 0)(k.thread());
  };
  const ir::Kernel kernel = in_clusters(2, 2, leave);
  CHECK(has(error_of([&] { codegen::lower(kernel); }), "RETURN_BEFORE_BARRIER"));
}

TEST_CASE("a grid of run time must be a multiple of the cluster", "[language]") {
  Builder k("ragged");
  auto n = k.dim("n");
  auto y = k.output("y", DType::i32, {n});
  auto at = k.launch({n}, {.threads = 32, .cluster = 2});
  k.if_(k.thread() == 0, [&] { y(at.x) = k.cluster_rank(); });
  const ir::Kernel kernel = k.finish();
  HostTensor even(DType::i32, {6}), odd(DType::i32, {5});
  run_kernel(kernel, {&even});
  CHECK_THAT(even, HasValues([](int64_t i) { return i % 2; }));
  CHECK(has(error_of([&] { run_kernel(kernel, {&odd}); }),
            "the first extent of the grid is no multiple of the cluster"));
}

TEST_CASE("accesses to other blocks are counted", "[language]") {
  const ir::Kernel kernel = in_clusters(2, 4, [&](Builder& k, Ref tile, Ref y) {
    k.sync_cluster();
    y(k.thread()) = k.of_block(tile, 1 - k.cluster_rank())(k.thread());
  });
  const HostTensor result(DType::i32, {4, kThreads});
  const codegen::cpu::Argument arguments[] = {{.tensor = result.view()}};
  codegen::cpu::Counts counts;
  codegen::cpu::Executable(codegen::lower(kernel)).run(arguments, {.counts = &counts});
  CHECK(counts.cluster_requests == 4 * 2);
  CHECK(counts.cluster_bytes == 4 * kThreads * 4);
  CHECK(counts.cluster_barriers == 4 * 2);
  CHECK(counts.barriers == 0);
}
