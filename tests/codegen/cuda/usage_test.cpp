// Which statements are printed, where loads are printed, and what variables are called.

#include "codegen/cuda/emit.h"
#include "codegen/cuda/names.h"
#include "codegen/cuda/source_text.h"
#include "tests/codegen/cuda/thrown.h"
#include "tests/support/catch.h"
#include "tests/support/program_builder.h"

namespace tessera {
namespace {

using test::contains;
using test::thrown;

using ir::CollectiveKind;
using ir::Expr;
using test::ArrayRef;
using test::f32;
using test::number;
using test::ProgramBuilder;
using test::wide;

bool prints(const ProgramBuilder& k, const std::string& text) {
  const std::string kernel = codegen::cuda::emit_kernel_text(k.finish());
  INFO(kernel);
  return kernel.find(text) != std::string::npos;
}

TEST_CASE("a load used once is printed where it is used", "[codegen][cuda]") {
  ProgramBuilder k("sample");
  const ArrayRef x = k.input("x", DType::f32, {number(128)});
  const ArrayRef y = k.output("y", DType::f32, {number(128)});
  const Expr element = k.load("element", x, wide(k.thread()));

  SECTION("used once") {
    k.store(y, wide(k.thread()), element);
    CHECK(prints(k, "  y[thread] = x[thread];\n"));
  }
  SECTION("used twice") {
    k.store(y, wide(k.thread()), element * element);
    CHECK(prints(k, "  const float element = x[thread];\n  y[thread] = element * element;\n"));
  }
  SECTION("used in a loop, which would read it again") {
    k.loop("i", number(0), number(4), number(1),
           [&](const Expr& i) { k.store(y, wide(i), element); });
    CHECK(prints(k, "const float element = x[thread];"));
  }
  SECTION("used in a branch, which would not always read it") {
    k.branch(k.thread() < number(5), [&] { k.store(y, wide(k.thread()), element); });
    CHECK(prints(k, "const float element = x[thread];"));
  }
  SECTION("used behind a store to another array: x is read only") {
    k.store(y, wide(k.thread()), f32(0));
    k.store(y, wide(k.thread()), element);
    CHECK(prints(k, "y[thread] = x[thread];"));
  }
  SECTION("not used: not printed") {
    k.store(y, wide(k.thread()), f32(0));
    CHECK_FALSE(prints(k, "x[thread]"));
  }
}

TEST_CASE("a load stays before what may change its memory", "[codegen][cuda]") {
  ProgramBuilder k("sample");
  const ArrayRef y = k.output("y", DType::f32, {number(128)});
  const ArrayRef z = k.output("z", DType::f32, {number(128)});
  const ArrayRef tile = k.shared("tile", DType::f32, {number(128)});
  const ArrayRef other_tile = k.shared("other_tile", DType::f32, {number(128)});
  const ArrayRef kept = k.registers("kept", DType::f32, 2, true);
  const std::string declared = "const float element = ";

  SECTION("a store to the same tensor") {
    const Expr element = k.load("element", y, wide(k.thread()));
    k.store(y, wide(k.thread()), f32(1));
    k.store(z, wide(k.thread()), element);
    CHECK(prints(k, declared));
  }
  SECTION("a store to a tensor that may be the same memory") {
    const Expr element = k.load("element", y, wide(k.thread()));
    k.store(z, wide(k.thread()), f32(1));
    k.store(z, wide(k.thread()), element);
    CHECK(prints(k, declared));
  }
  SECTION("a store to another array of the arena, whose bytes may overlap") {
    const Expr element = k.load("element", tile, k.thread());
    k.store(other_tile, k.thread(), f32(1));
    k.store(z, wide(k.thread()), element);
    CHECK(prints(k, declared));
  }
  SECTION("a barrier") {
    const Expr element = k.load("element", tile, k.thread());
    k.barrier();
    k.store(z, wide(k.thread()), element);
    CHECK(prints(k, declared));
  }
  SECTION("a collective, which orders the memory of its warp") {
    const Expr element = k.load("element", tile, k.thread());
    const Expr any = k.collective("any", CollectiveKind::vote_any, {k.thread() < number(3)});
    k.store(z, wide(k.thread()), select(any, element, f32(0)));
    CHECK(prints(k, declared));
  }
  SECTION("a store in a nested body") {
    const Expr element = k.load("element", y, wide(k.thread()));
    k.branch(k.thread() < number(5), [&] { k.store(y, wide(k.thread()), f32(1)); });
    k.store(z, wide(k.thread()), element);
    CHECK(prints(k, declared));
  }
  SECTION("registers change only by their own name") {
    const Expr element = k.load("element", kept, number(0));
    k.barrier();
    k.store(z, wide(k.thread()), element);
    CHECK(prints(k, "z[thread] = kept[0];"));
  }
  SECTION("registers written by a vector load") {
    const Expr element = k.load("element", kept, number(0));
    k.load({kept, number(0)}, y, wide(k.thread()), 2);
    k.store(z, wide(k.thread()), element);
    CHECK(prints(k, declared));
  }
  SECTION("registers written by a conversion") {
    const ArrayRef half = k.registers("half_registers", DType::f16, 2, true);
    const Expr element = k.load("element", kept, number(0));
    k.convert({kept, number(0)}, {half, number(0)}, 2);
    k.store(z, wide(k.thread()), element);
    CHECK(prints(k, declared));
  }
  SECTION("an index that moves with the load that needs it") {
    const ArrayRef ids = k.output("ids", DType::i32, {number(128)});
    const Expr id = k.load("id", ids, wide(k.thread()));
    const Expr element = k.load("element", y, wide(id));
    k.store(ids, wide(k.thread()), number(0));
    k.store(z, wide(k.thread()), element);
    CHECK(prints(k, "const float element = y[ids[thread]];"));
  }
}

TEST_CASE("a guarded load reads as a conditional", "[codegen][cuda]") {
  ProgramBuilder k("sample");
  const Expr count = k.dim("count");
  const ArrayRef x = k.input("x", DType::f32, {count});
  const ArrayRef flags = k.input("flags", DType::boolean, {count});
  const ArrayRef y = k.output("y", DType::f32, {count});
  const Expr inside = k.thread() < count;
  const Expr element = k.load("element", x, wide(k.thread()), inside);
  k.store(y, wide(k.thread()), element * f32(2), inside);
  const Expr flag = k.load("flag", flags, wide(k.thread()), inside);
  k.store(y, wide(k.thread()), f32(0), flag);
  CHECK(prints(k,
               "  if (thread < count) y[thread] = (thread < count ? x[thread] : 0.0f) * 2.0f;\n"
               "  if (thread < count && flags[thread]) y[thread] = 0.0f;\n"));
}

TEST_CASE("a guarded store that does not fit one line gets braces", "[codegen][cuda]") {
  ProgramBuilder k("sample");
  const Expr count = k.dim("number_of_elements_in_the_whole_tensor");
  const ArrayRef y = k.output("y_with_a_long_name", DType::f32, {count});
  k.store(y, wide(k.thread() * number(16) + number(7)), f32(0), k.thread() * number(16) < count);
  CHECK(prints(k,
               "  if (thread * 16 < number_of_elements_in_the_whole_tensor) {\n"
               "    y_with_a_long_name[thread * 16 + 7] = 0.0f;\n"
               "  }\n"));
}

TEST_CASE("long lines break at 100 columns, outside brackets and after commas", "[codegen][cuda]") {
  codegen::cuda::SourceText out;
  const std::string a(40, 'a');
  const std::string b(40, 'b');
  out.line("const float x = f(" + a + ", " + b + ");");
  out.line("const float total = f(" + a + ") + f(" + b + ");");
  out.line("f(" + a + " + " + b + ", (1 + 2), 34567);");
  CHECK(out.str() == "const float x = f(" + a + ",\n    " + b + ");\n" + "const float total = f(" +
                         a + ") +\n    f(" + b + ");\n" + "f(" + a + " + " + b +
                         ", (1 + 2),\n    34567);\n");
}

TEST_CASE("nothing that has no effect is printed", "[codegen][cuda]") {
  ProgramBuilder k("sample");
  const ArrayRef x = k.input("x", DType::f32, {number(128)});
  const ArrayRef y = k.output("y", DType::f32, {number(128)});
  k.shared("unused_tile", DType::f32, {number(128)});
  k.registers("unused_registers", DType::f32, 4);
  k.block("unused_block", 2);
  const Expr id = k.let("unused_id", k.thread() + number(1));
  const Expr chained = k.let("unused_chain", id * number(2));
  k.load("unused_element", x, wide(chained));
  k.branch(k.thread() < number(3), [&] { k.let("unused_inside", k.thread()); });
  k.loop("unused_i", number(0), number(4), number(1), [](const Expr&) {});
  k.store(y, ir::constant(DType::i64, 0), f32(0));
  const std::string text = codegen::cuda::emit_kernel_text(k.finish());
  CHECK(text.find("unused") == std::string::npos);
  CHECK(text.find("thread =") == std::string::npos);
  CHECK(text.find("  y[0ll] = 0.0f;\n}\n") != std::string::npos);
}

TEST_CASE("names avoid C++, CUDA, the device functions and each other", "[codegen][cuda]") {
  codegen::cuda::Names names;
  int objects[12] = {};
  CHECK(names.declare(&objects[0], "x_frag") == "x_frag");
  CHECK(names.declare(&objects[1], "x_frag") == "x_frag_2");
  CHECK(names.declare(&objects[2], "x_frag") == "x_frag_3");
  CHECK(names.declare(&objects[3], "float") == "float_");
  CHECK(names.declare(&objects[4], "threadIdx") == "threadIdx_");
  CHECK(names.declare(&objects[5], "bf16_to_f32") == "bf16_to_f32_");
  CHECK(names.declare(&objects[6], "float") == "float_2");
  CHECK(names.declare(&objects[7], "__reserved") == "reserved");
  CHECK(names.declare(&objects[8], "row - 1") == "row_1");
  CHECK(names.declare(&objects[9], "2nd") == "v2nd");
  CHECK(names.declare(&objects[10], "") == "value");
  CHECK(contains(thrown([&] { names.of(&objects[11]); }), "outside its scope"));
}

TEST_CASE("names avoid the functions that the text calls", "[codegen][cuda]") {
  const std::string called = GENERATE("abs", "printf", "atomicAdd", "atomicMax", "fmaxf", "NULL");
  CHECK(codegen::cuda::Names().fresh(called) == called + "_");
}

TEST_CASE("names avoid the author's device functions", "[codegen][cuda]") {
  codegen::cuda::Names names;
  names.reserve("half_it");
  names.enter();
  CHECK(names.fresh("half_it") == "half_it_2");
}

TEST_CASE("sibling scopes reuse names, nested ones do not", "[codegen][cuda]") {
  codegen::cuda::Names names;
  int objects[3] = {};
  names.enter();
  CHECK(names.declare(&objects[0], "i") == "i");
  names.enter();
  CHECK(names.declare(&objects[1], "i") == "i_2");
  names.leave();
  names.leave();
  names.enter();
  CHECK(names.declare(&objects[2], "i") == "i");
}

TEST_CASE("what the thread IR forbids is an internal error that names the array",
          "[codegen][cuda]") {
  ProgramBuilder k("sample");
  const ArrayRef x = k.input("x", DType::f32, {number(128)});
  const ArrayRef codes = k.output("codes", DType::e2m1, {number(128)});
  const ArrayRef kept = k.registers("kept", DType::f32, 8);
  const auto zero = ir::constant(DType::i64, 0);
  std::string expected;
  SECTION("a vector that no instruction moves") {
    k.load({kept, number(0)}, x, zero, 3);
    expected = "a load of 12 bytes from 'x'";
  }
  SECTION("a store to a read-only tensor") {
    k.store(x, zero, f32(0));
    expected = "a store to 'x', which is read only";
  }
  SECTION("a store of half a byte") {
    k.store(codes, zero, ir::float_constant(DType::e2m1, 1));
    expected = "a store of one e2m1 to 'codes' would tear the byte it shares";
  }
  SECTION("a vote of half a warp") {
    k.collective("any", CollectiveKind::vote_any, {k.thread() < number(1)}, 16);
    expected = "warp_any over part of a warp";
  }
  const std::string message = thrown([&] { codegen::cuda::emit(k.finish()); });
  CAPTURE(message);
  CHECK(contains(message, expected));
}

}  // namespace
}  // namespace tessera
