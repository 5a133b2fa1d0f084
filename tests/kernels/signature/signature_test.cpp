#include "kernels/signature/signature.h"

#include "dsl/base/error.h"
#include "tests/support/catch.h"

namespace tessera::kernels {
namespace {

TEST_CASE("a signature's rows become tensors, parameters, lets and rules", "[signature]") {
  const Signature s = Signature::parse("cast", R"(
    x       bf16/f32/e4m3 [T.., H] rows       # the rows
    x_sf?   SF(x_block_size) x_sf_layout      iff x is e4m3
    idx     i64 [T, K]                        values -1 .. E - 1
    list parts (L)  f32 [T, n]
    -> out  format [T, 2H] align 16
    -> out_sf  SF(1,group) sf_layout
    -> dot?, gate?  f32 [T]                   iff save
    -> inout seen?  i64 [3] any
    -> acc grad?    f32 [H]
    workspace?  f32 [bytes()]                 iff save
    param  format {e4m3, e2m1}
    param  x_block_size tuple = none          iff x_sf
    param  x_sf_layout, sf_layout = row_major
    param  group {16, 32, H}
    param  E int 1..1024
    param  eps, scale float = 1e-6
    param  save bool = true
    let    w = 2 * group
    let    P at most bound() trimmed by taken()
    need   H % 64 = 0                         if not group in {16, 32}
    limit  group <= 65536 on H "so many columns per scale are not supported"
    bucket T * K at 2048, 65536
  )");
  REQUIRE(s.tensors.size() == 11);
  const TensorRule& x = s.tensors[0];
  CHECK(x.dtypes == std::vector<std::string>{"bf16", "f32", "e4m3"});
  CHECK(x.has_token_dims);
  CHECK(x.shape[0].text() == "T");
  CHECK(x.layout == TensorRule::Layout::rows);
  CHECK(x.remark == "the rows");
  CHECK(s.tensors[1].optional);
  CHECK(s.tensors[1].presence->text() == "x is e4m3");
  CHECK(s.tensors[1].scales->matrix == "x");
  CHECK(s.tensors[1].layout_text() == "SF(x_block_size) x_sf_layout");
  CHECK(s.tensors[2].least->text() == "-1");
  CHECK(s.tensors[2].most->text() == "E - 1");
  CHECK(s.tensors[3].list == "L");
  CHECK(s.tensors[4].role == Role::out);
  CHECK(s.tensors[4].align == 16);
  CHECK(s.tensors[5].scales->matrix == "out");
  CHECK(s.tensors[7].name == "gate");
  CHECK(s.tensors[7].presence->text() == "save");
  CHECK(s.tensors[8].role == Role::inout);
  CHECK(s.tensors[9].accumulate);
  CHECK(s.tensors[10].is_workspace);
  CHECK(s.tensors[10].name == "workspace");
  CHECK(s.tensors[10].presence->text() == "save");
  CHECK_FALSE(s.tensors[10].is_input());
  CHECK(Signature::parse("cast", "workspaces  f32 [T]").tensors[0].is_input());
  REQUIRE(s.params.size() == 9);
  CHECK(s.params[2].allowed.size() == 3);
  CHECK(s.params[2].standard == ParamValue(std::string("row_major")));
  CHECK(s.params[4].type == ParamRule::Type::integer);
  CHECK_FALSE(s.params[4].standard.has_value());
  CHECK(s.params[5].range == "1..1024");
  CHECK(s.params[5].least == 1);
  CHECK(s.params[7].standard == ParamValue(1e-6));
  CHECK(s.lets[1].trimmed_by == "taken()");
  CHECK(s.needs[0].condition->text() == "not group in {16, 32}");
  CHECK(s.needs[0].blamed == "H");
  CHECK(s.needs[1].is_limit);
  CHECK(s.needs[1].blamed == "H");
  CHECK(s.needs[1].what == "so many columns per scale are not supported");
  CHECK(s.buckets[0].at == std::vector<int64_t>{2048, 65536});
}

TEST_CASE("a row of a signature that is not understood names itself", "[signature]") {
  const auto error = [](const char* text) {
    try {
      Signature::parse("op", text);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  CHECK(error("x bf16 T, H") ==
        "tessera: op: signature row 'x bf16 T, H': a tensor has no shape\n"
        "  expected  NAME dtypes [extents] layout\n"
        "  got       bf16 T, H");
  CHECK(error("x bf16 [T, H] columns").find("a layout is not known") != std::string::npos);
  CHECK(error("param n").find("accepted") != std::string::npos);  // a layout of scales, required
  CHECK(error("param n integer").find("a parameter has no type") != std::string::npos);
  CHECK(error("param n int 1..").find("an expression is not understood") != std::string::npos);
  CHECK(error("param n bool = maybe").find("a default is none of the values") != std::string::npos);
  CHECK(error("x bf16 [T]\nneed U = 0") ==
        "tessera: op: signature row 'U = 0': a name is not known\n"
        "  expected  a tensor, an extent, a parameter or a let\n"
        "  got       U");
  CHECK(error("x bf16 [T]\nx f32 [T]").find("a name stands twice") != std::string::npos);
  CHECK(error("-> sf SF(1,32)").find("nothing says which matrix is scaled") != std::string::npos);
  CHECK(error("x bf16 [H, T..]").find("token dimensions come first") != std::string::npos);
  CHECK(error("x bf16 [H?, T]").find("only the last extent may be absent") != std::string::npos);
  CHECK(error("x f32 [H]\n-> out f32 [H, T?]").find("a rule is missing") != std::string::npos);
  CHECK(error("x f32 [H, T if H = 3]").find("an input tells it by its rank") != std::string::npos);
}

TEST_CASE("the last extent of a tensor may be absent", "[signature]") {
  const Signature s = Signature::parse("op", R"(
    b_sf      f32 [G, N, B?]
    -> out_sf f32 [G, 2 * B if by_block()] align 16
  )");
  CHECK(s.tensors[0].may_lack_last);
  CHECK(s.tensors[0].shape[2].text() == "B");
  CHECK_FALSE(s.tensors[0].last_presence.has_value());
  CHECK(s.tensors[1].may_lack_last);
  CHECK(s.tensors[1].shape[1].text() == "2 * B");
  CHECK(s.tensors[1].last_presence->text() == "by_block()");
}

}  // namespace
}  // namespace tessera::kernels
