// The wait for the product of a take, and the arrival that frees its stage, sink to where the sums are needed.

#include <fmt/format.h>

#include "codegen/passes/clear_in_products.h"
#include "codegen/waits/place_waits.h"
#include "tests/support/catch.h"
#include "tests/support/program_text.h"

using namespace tessera;
using test::body_text;
using test::read_body;

namespace {

std::string memory(int stages) {
  return fmt::format(R"(
  shared full: u64[{0}] at byte 0, mbarriers of 1 arrivals, ring 0 full
  shared empty: u64[{0}] at byte 0, mbarriers of 4 arrivals, ring 0 empty
  shared a: bf16[64, 128]
  shared r: bf16[64, 128], ring 0
  shared s: i32[128]
  undeclared registers c: f32[32]
  undeclared registers d: f32[32]
  undeclared registers sum: f32[32]
)",
                     stages);
}

/// A take of stage `stage` that multiplies to `sums`.
std::string take(const std::string& sums, int stage) {
  return fmt::format(
      "mbarrier wait full[{1}], phase 0\n"
      "fence of registers {0}[0 .. +32]\n"
      "{0}[0 .. +32] += wgmma matrix of 64 rows a[open .. +8] at [0, 64], proved * matrix of 64 "
      "rows "
      "a[open .. +8] at [0, 0], proved\n"
      "commit products\n"
      "wait until 0 groups pending of products, {0}[0 .. +32]\n"
      "mbarrier arrive empty[{1}], of the warp at 1 blocks\n",
      sums, stage);
}
std::string add(const std::string& sums) {
  return fmt::format("unrolled i = 0; < 32; += 1\n  x = load {}[i]\n  store sum[i] = x\n", sums);
}

struct Sunk {
  std::string text;
  size_t notes = 0;
  std::string last_note = {};  // of the product that stands first
};
Sunk sunk(const std::string& body, int stages = 4) {
  codegen::Program program = read_body(128, memory(stages), body);
  std::vector<std::string> notes;
  codegen::place_product_waits(program, notes);
  return {body_text(program), notes.size(), notes.empty() ? std::string() : notes.back()};
}

/// The text behind the first `mark`.
std::string after(const std::string& text, const std::string& mark) {
  const size_t at = text.find(mark);
  REQUIRE(at != std::string::npos);
  return text.substr(at + mark.size());
}

}  // namespace

TEST_CASE("a product is awaited below the next one", "[passes][wgmma][roles]") {
  const Sunk two = sunk(take("c", 0) + take("d", 1) + add("c") + add("d"));
  CHECK(two.notes == 2);
  // Both run; then c is there and its stage is free, then d.
  const std::string rest = after(two.text, "full[1], phase 0");
  const std::string waits = after(rest, "commit products\n");
  CHECK(waits.find("wait until 1 groups pending of products, c[0 .. +32]\nwarp barrier\n"
                   "if thread % 32 == 0\n  mbarrier arrive empty[0]\n") == 0);
  CHECK(after(waits, "wait until 0 groups pending of products, d").find("empty[1]") !=
        std::string::npos);
  CHECK(waits.find("load c[i]") < waits.find("products, d"));
}

TEST_CASE("explain says below what a product is awaited", "[passes][wgmma][roles]") {
  const auto says = [](const std::string& body, const std::string& words) {
    const std::string note = sunk(body).last_note;
    CAPTURE(note);
    CHECK(note.ends_with(": awaited below " + words));
  };
  says(take("c", 0) + add("d") + add("c"), "a loop over other registers");
  says(take("c", 0) + take("d", 1) + add("c"), "the next product");
}

TEST_CASE("a product is awaited at once where nothing can pass", "[passes][wgmma][roles]") {
  const auto stays = [](const std::string& body, int stages = 4) {
    const Sunk result = sunk(body, stages);
    const std::string arrival = ", of the warp at 1 blocks";
    std::string expected = body_text(read_body(128, memory(stages), body));
    for (size_t end; (end = expected.find(arrival)) != std::string::npos;) {
      const size_t begin = expected.rfind('\n', end) + 1;
      expected = expected.substr(0, begin) + "warp barrier\nif thread % 32 == 0\n  " +
                 expected.substr(begin, end - begin) + expected.substr(end + arrival.size());
    }
    return result.notes == 0 && result.text == expected;
  };
  CHECK(stays(take("c", 0)));
  CHECK(stays(take("c", 0) + add("c")));
  CHECK(stays(take("c", 0) + take("c", 1)));            // its own sums
  CHECK(stays(take("c", 0) + "barrier\n" + add("d")));  // another thread may follow
  CHECK(stays(take("c", 0) + "store a[open] = 1 at [0, 0], proved\n"));  // an operand
  // With one stage the next turn waits for this arrival.
  CHECK(stays(take("c", 0) + take("d", 0) + add("d"), 1));
  // How many turns a loop takes is not known.
  CHECK(
      stays(take("c", 0) + "for j = 0; < 3; += 1\n  mbarrier wait full[1], phase 0\n" + add("c")));
  CHECK_FALSE(stays(take("c", 0) + take("d", 1) + add("c"), 2));
}

TEST_CASE("fewer products wait than a ring has stages", "[passes][wgmma][roles]") {
  const std::string body = take("c", 0) + take("d", 1) + take("d", 0) + add("d") + add("c");
  // d is needed by its second product; c may pass one turn of a ring of two stages, not two.
  CHECK(sunk(body, 2).text.find("products, c") < sunk(body, 2).text.rfind("full[0], phase 0"));
  CHECK(sunk(body, 3).notes >= 1);
}

namespace {

/// A product of `steps` instructions of 32 clocks to c, without a stage to free.
std::string product(const std::string& sums, int steps = 1) {
  std::string text = fmt::format("fence of registers {}[0 .. +32]\n", sums);
  for (int i = 0; i < steps; ++i) {
    text += fmt::format(
        "{}[0 .. +32] += wgmma matrix of 64 rows a[open .. +8] at [0, 64], proved * matrix of 64 "
        "rows "
        "a[open .. +8] at [0, 0], proved\n",
        sums);
  }
  return text +
         fmt::format("commit products\nwait until 0 groups pending of products, {}[0 .. +32]\n",
                     sums);
}
std::string exchange(const std::string& sums) {
  return fmt::format(
      "unrolled i = 0; < 32; += 1\n  x = load {0}[i]\n  y = shuffle_xor(x, 1)\n  store {0}[i] = "
      "y\n",
      sums);
}
std::string take_of(int steps) {
  return "mbarrier wait full[0], phase 0\n" + product("c", steps) +
         "mbarrier arrive empty[0], of the warp at 1 blocks\n";
}

}  // namespace

TEST_CASE("a product in the middle of a take is awaited below the next one",
          "[passes][wgmma][roles]") {
  const std::string text = sunk(product("c") + product("d") + add("c") + add("d")).text;
  const std::string waits = after(text, "fence of registers d");
  CHECK(waits.find("wait until 1 groups pending of products, c[0 .. +32]\n") <
        waits.find("load c[i]"));
  CHECK(waits.find("load c[i]") <
        waits.find("wait until 0 groups pending of products, d[0 .. +32]\n"));
  CHECK(waits.find("wait until 0 groups pending of products, d[0 .. +32]\n") <
        waits.find("load d[i]"));
}

TEST_CASE("a product of tiles of rings passes stores and barriers inside its take",
          "[passes][wgmma][roles]") {
  const std::string stores = "store s[thread] = 1, proved\nnamed barrier 1 of 128 threads\n";
  const std::string arrival = "mbarrier arrive empty[0], of the warp at 1 blocks\n";
  const auto passes = [&](std::string body) {
    for (size_t at; (at = body.find(" a[open")) != std::string::npos;) body[at + 1] = 'r';
    const std::string text = sunk("mbarrier wait full[0], phase 0\n" + body).text;
    return text.find("named barrier 1") < text.find("products, c[0 .. +32]");
  };
  CHECK(passes(product("c") + add("d") + stores + add("c") + arrival));
  // An operand; a stage that would be free later.
  CHECK_FALSE(passes(product("c") + add("d") + "store r[open] = 1 at [0, 0], proved\n" + stores +
                     add("c") + arrival));
  CHECK_FALSE(passes(product("c") + arrival + add("d") + stores + add("c")));
  // Other threads may write after the barrier.
  const std::string text = sunk(product("c") + add("d") + stores + add("c")).text;
  CHECK(text.find("products, c[0 .. +32]") < text.find("store s["));
}

TEST_CASE("a wait below an exchange of lanes names half of what was computed last",
          "[passes][wgmma][roles]") {
  const std::string text = sunk(product("c") + exchange("d") + add("c")).text;
  CHECK(after(text, "store d[i]")
            .find("wait until 0 groups pending of products, c[0 .. +32], below "
                  "d[0 .. +16]\n") != std::string::npos);
  CHECK(sunk(product("c") + add("d") + add("c")).text.find("below") == std::string::npos);
  // Work above a later product stays there by itself.
  CHECK(sunk(product("c") + exchange("d") + product("sum") + add("c")).text.find("below") ==
        std::string::npos);
}

TEST_CASE("the last product of a take passes an exchange if it takes as long",
          "[passes][wgmma][roles]") {
  const auto passes = [](int steps, const std::string& work) {
    const std::string text = sunk(take_of(steps) + work + add("c")).text;
    return text.find("store d[i]") < text.find("wait until 0 groups pending of products, c");
  };
  CHECK(passes(16, exchange("d")));
  CHECK_FALSE(passes(15, exchange("d")));
  const std::string branch =
      "if thread < 7\n  unrolled i = 0; < 32; += 1\n    store d[i] = 0\n" + add("d");
  CHECK(passes(16, branch));
  CHECK_FALSE(passes(15, branch));
}

TEST_CASE("sums that begin at zero are cleared by their product while another runs",
          "[passes][wgmma]") {
  const auto cleared = [](const std::string& body) {
    codegen::Program program = read_body(128, memory(4), body);
    codegen::clear_in_products(program);
    return body_text(program);
  };
  const auto fill = [](const std::string& sums, const std::string& value = "0", int count = 32) {
    return fmt::format("unrolled i = 0; < {}; += 1\n  store {}[i] = {}\n", count, sums, value);
  };
  const std::string two = cleared(fill("c") + fill("d") + product("c") + product("d", 2));
  CHECK(two.find("store d") == std::string::npos);
  CHECK(two.find("store c[i] = 0") != std::string::npos);  // nothing else is in flight
  CHECK(two.find("fence of registers\nd[0 .. +32] = wgmma") != std::string::npos);
  CHECK(two.find("d[0 .. +32] += wgmma") != std::string::npos);  // the second step adds
  const auto stays = [&](const std::string& body) {
    return cleared(body) == body_text(read_body(128, memory(4), body));
  };
  CHECK(stays(fill("d") + product("d") + product("c")));
  CHECK(stays(fill("d", "1") + product("c") + product("d")));
  CHECK(stays(fill("d", "-0.0") + product("c") + product("d")));  // another sum than from +0
  CHECK(stays(fill("d", "0", 31) + product("c") + product("d")));
  CHECK(stays(fill("d") + product("c") + add("d") + product("d")));
  CHECK(stays(fill("d") + product("c") + "if thread < 7\n  store d[0] = 1\n" + product("d")));
}
