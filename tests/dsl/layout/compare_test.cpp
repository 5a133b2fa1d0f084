// contains and find_collision against enumeration.

#include "dsl/layout/layout.h"
#include "tests/dsl/layout/layout_samples.h"
#include "tests/support/catch.h"

namespace tessera::layout {
namespace {

bool contains_by_enumeration(const Layout& large, const Layout& small) {
  for (const auto& point : all_points(large.shape())) {
    const std::set<int64_t> in_large = owners(large, point);
    for (const int64_t thread : owners(small, point)) {
      if (in_large.count(thread) == 0) return false;
    }
  }
  return true;
}

/// Some copies of `source` only, or copies of it in more threads.
Layout with_other_copies(Random& random, const Layout& source) {
  std::vector<Replica> replicas = source.replicas();
  if (!replicas.empty() && pick(random, 0, 1) == 0) {
    replicas.pop_back();
  } else {
    replicas.push_back({pick(random, 2, 3), pick(random, 1, 2 * source.num_threads())});
  }
  return Layout(source.shape(), source.digits(), replicas);
}

}  // namespace

TEST_CASE("contains on the layouts of a 64 x 128 tile (L06)", "[layout]") {
  const Layout by_four = split({64, 128}, 256, 4);
  const Layout by_eight = split({64, 128}, 256, 8);
  const Layout everywhere = replicated({64, 128}, 256);
  CHECK(contains(everywhere, by_four));
  CHECK(contains(everywhere, by_eight));
  CHECK(contains(by_four, by_four));
  CHECK_FALSE(contains(by_four, by_eight));
  CHECK_FALSE(contains(by_four, everywhere));
  CHECK_FALSE(contains(replicated({64, 128}, 128), by_four));  // threads 128 .. 255 hold nothing
}

TEST_CASE("contains looks at elements, not at padding", "[layout]") {
  const Layout five({5}, {{0, 1, 5, 1, 0}});
  const Layout eight({5}, {{0, 1, 8, 1, 0}});
  CHECK(contains(five, eight));
  CHECK(contains(eight, five));
  // 0 1 2 3 0 and 0 1 2 3 4 differ in the last element only.
  const Layout wrapped({5}, {{0, 1, 4, 1, 0}, {0, 4, 2, 0, 1}});
  CHECK_FALSE(contains(wrapped, five));
  CHECK(contains(Layout({4}, {{0, 1, 4, 1, 0}}), Layout({4}, {{0, 1, 4, 1, 0}})));
}

TEST_CASE("contains adds up distances over the axes", "[layout]") {
  // Each axis alone moves an element by copies of the large layout, both together do not.
  const Layout large({2, 2}, {{0, 1, 2, 0, 1}, {1, 1, 2, 0, 2}}, {{2, 1}});
  const Layout rows({2, 2}, {{0, 1, 2, 1, 0}, {1, 1, 2, 0, 1}});
  const Layout both({2, 2}, {{0, 1, 2, 1, 0}, {1, 1, 2, 1, 0}});
  CHECK(contains(large, rows));
  CHECK_FALSE(contains(large, both));
  CHECK(contains(Layout(large.shape(), large.digits(), {{3, 1}}), both));
}

TEST_CASE("contains agrees with enumeration on random layouts", "[layout]") {
  Random random(31);
  int contained = 0;
  int not_contained = 0;
  for (int round = 0; round < 1500; ++round) {
    const Layout a = random_layout(random);
    Layout b = with_other_copies(random, a);
    const auto rank = static_cast<int64_t>(a.shape().size());
    if (pick(random, 0, 3) == 0 && !b.digits().empty()) {
      // A thread digit more or less: its elements move by copies, or elsewhere.
      std::vector<Digit> digits = b.digits();
      Digit& digit =
          digits[static_cast<size_t>(pick(random, 0, static_cast<int64_t>(digits.size()) - 1))];
      digit.thread = digit.thread != 0 ? 0 : pick(random, 1, 4);
      digit.slot = digit.thread != 0 ? 0 : 1;
      b = Layout(b.shape(), digits, b.replicas());
    }
    CAPTURE(rank, to_string(a), to_string(b));
    for (const auto& [large, small] : {std::pair(a, b), std::pair(b, a)}) {
      const bool expected = contains_by_enumeration(large, small);
      REQUIRE(contains(large, small) == expected);
      (expected ? contained : not_contained) += 1;
    }
    REQUIRE(contains(a, a));
    REQUIRE(contains(replicated(a.shape(), std::max(a.num_threads(), b.num_threads())), a));
    REQUIRE(contains(replicate(a, 2), a));
  }
  CHECK(contained > 300);
  CHECK(not_contained > 300);
}

TEST_CASE("contains is transitive", "[layout]") {
  Random random(37);
  for (int round = 0; round < 300; ++round) {
    const Layout a = random_layout(random);
    const Layout b = with_other_copies(random, a);
    const Layout c = with_other_copies(random, b);
    if (contains(c, b) && contains(b, a)) REQUIRE(contains(c, a));
    if (contains(a, b) && contains(b, c)) REQUIRE(contains(a, c));
  }
}

TEST_CASE("a user formula that puts two rows into one register (L07)", "[layout]") {
  const auto layout = from_function({64}, [](const std::vector<int64_t>& at) {
    return Place{at[0] % 32, 0};
  });
  REQUIRE(layout);
  const auto collision = find_collision(*layout);
  REQUIRE(collision);
  CHECK(collision->first == std::vector<int64_t>{0});
  CHECK(collision->second == std::vector<int64_t>{32});
  CHECK(collision->thread == 0);
  CHECK(collision->slot == 0);
}

TEST_CASE("copies collide with elements and with copies", "[layout]") {
  const auto elements = find_collision(Layout({4}, {{0, 1, 4, 1, 0}}, {{2, 3}}));
  REQUIRE(elements);
  CHECK(elements->first == std::vector<int64_t>{0});
  CHECK(elements->second == std::vector<int64_t>{3});
  CHECK(elements->thread == 3);
  const auto copies = find_collision(Layout({2}, {{0, 1, 2, 0, 1}}, {{2, 2}, {2, 2}}));
  REQUIRE(copies);
  CHECK(copies->first == copies->second);
  CHECK(copies->thread == 2);
}

TEST_CASE("find_collision agrees with enumeration", "[layout]") {
  Random random(41);
  int collisions = 0;
  int free = 0;
  for (int round = 0; round < 1500; ++round) {
    const Layout good = random_layout(random);
    REQUIRE_FALSE(find_collision(good));
    std::vector<Digit> digits = good.digits();
    if (digits.empty()) continue;
    Digit& digit =
        digits[static_cast<size_t>(pick(random, 0, static_cast<int64_t>(digits.size()) - 1))];
    (digit.thread != 0 ? digit.thread : digit.slot) = pick(random, 0, 6);
    const Layout layout(good.shape(), digits, good.replicas());
    CAPTURE(to_string(layout));
    const auto collision = find_collision(layout);
    REQUIRE(collision.has_value() != is_injective(layout));
    (collision ? collisions : free) += 1;
    if (!collision) continue;
    for (const auto* index : {&collision->first, &collision->second}) {
      REQUIRE(owners(layout, *index).count(collision->thread) == 1);
      REQUIRE(layout.place(*index).slot == collision->slot);
    }
  }
  CHECK(collisions > 100);
  CHECK(free > 100);
}

}  // namespace tessera::layout
