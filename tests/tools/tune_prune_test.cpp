// Candidates that the counts of the executor spare the measuring (T9).

#include "tools/lib/tune/tune_prune.h"

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tools/lib/tune/tuner.h"

namespace tessera::tools {

TEST_CASE("a candidate with more work and no more threads is not measured (T9)", "[tune]") {
  const std::vector<CandidateWork> work = {{100, 10, 8, 1024},   // the standard one
                                           {100, 10, 8, 1024},   // the same
                                           {100, 20, 8, 1024},   // more conflicts
                                           {100, 20, 8, 2048},   // but more threads
                                           {90, 20, 8, 1024},    // but fewer sectors
                                           {100, 10, 8, 512},    // fewer threads alone
                                           {101, 10, 9, 1024}};  // more of two
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f", "g"};
  const std::vector<std::string> reasons = needless(work, names);
  CHECK(reasons == std::vector<std::string>{
                       "", "",
                       "not measured: 100 sectors, 20 bank conflicts, 8 barrier waits; a has 100, "
                       "10, 8",
                       "", "", "",
                       "not measured: 101 sectors, 10 bank conflicts, 9 barrier waits; a has 100, "
                       "10, 8"});
  // The standard choice is measured whatever the others do.
  CHECK(needless({{100, 10, 8, 64}, {1, 0, 0, 64}}, {"a", "b"}) ==
        std::vector<std::string>{"", ""});
}

TEST_CASE("a small case has the Specs of its case (T9)", "[tune]") {
  const kernels::OpInfo& transpose = kernels::find_op("transpose");
  const kernels::BenchCase one = transpose.case_of("R=8064 C=7168 x=bf16 x.strides=14336,1");
  const kernels::BenchCase small = small_case(transpose, one, {9, 0, 'a'});
  CHECK(small.label == "R=128 C=256 x=bf16 x.strides=14336,1");
  CHECK(open_choices(transpose, small, {9, 0, 'a'}).at(0).facts.spec ==
        open_choices(transpose, one, {9, 0, 'a'}).at(0).facts.spec);
  const kernels::OpInfo& post = kernels::find_op("post_fwd");
  CHECK(small_case(post, post.case_of("T=8192 n=4 H=7168"), {9, 0, 'a'}).label ==
        "T=64 n=4 H=7168");
  CHECK(small_case(post, post.case_of("T=1 n=4 H=7168"), {9, 0, 'a'}).label == "T=1 n=4 H=7168");
}

TEST_CASE("transposes with bank conflicts are not measured (T9)", "[tune]") {
  const kernels::OpInfo& op = kernels::find_op("transpose");
  const kernels::BenchCase one = op.case_of("R=8064 C=7168 x=bf16 x.strides=14336,1");
  const auto asked = open_choices(op, one, {9, 0, 'a'});
  REQUIRE(asked.size() == 1);
  const auto all = candidates(*asked[0].space, asked[0].facts);
  const auto reasons = needless_candidates(op, one, asked[0], {9, 0, 'a'});
  REQUIRE(reasons.size() == all.size());
  CHECK(reasons[0].empty());
  size_t num_skipped = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    num_skipped += reasons[i].empty() ? 0 : 1;
    // 64 columns of 128 rows: warps store rows of the tile that lie in the same banks.
    if (all[i] == kernels::jit::TuneChoice{128, 64, 512}) CHECK(!reasons[i].empty());
  }
  CHECK(num_skipped < all.size() / 2);
}

}  // namespace tessera::tools
