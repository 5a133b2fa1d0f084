#include "tools/lib/calls/op_listing.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "dsl/base/error.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/table.h"
#include "kernels/views/dry_call.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"
#include "tests/tools/fake_op.h"
#include "tests/tools/spec_tables.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lib/calls/op_choice.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kContract = "tests/tools/contract.md";

TEST_CASE("an op's JSON has the fields of the contract", "[list]") {
  const Json json = Json::parse(list_json({tests::fake_op()}, ""));
  const Json& op = json.at("ops").at(0);
  CHECK(op.at("name") == "fake_add");
  CHECK(op.at("family") == "fake");
  CHECK(op.at("purpose") == "adds a number to every byte");
  CHECK(op.at("tensors").at(4) ==
        Json::parse(R"({"name": "total", "role": "inout", "optional": true, "accumulate": true,
                        "list": false, "dtypes": ["i64"], "shape": ["1"], "layout": "row_major", "presence": ""})"));
  CHECK(op.at("params") == Json::parse(R"([{"name": "amount", "type": "int", "allowed": "0..9"},
          {"name": "group", "type": "int", "default": 16, "allowed": [16, 32, "H"]},
          {"name": "sf_layout", "type": "enum", "default": "row_major",
           "allowed": ["row_major", "col_major_tma"]},
          {"name": "block", "type": "tuple", "default": null, "allowed": ">= 1"}])"));
}

TEST_CASE("the text listing shows the same to people", "[list]") {
  CHECK(list_text({tests::fake_op()}, "fake") ==
        "fake_add (fake): adds a number to every byte\n"
        "  in     x: u8 [T, H] rows\n"
        "  in     bias?: u8 [1] row_major\n"
        "  out    out: as x [T, H] row_major\n"
        "  out    out_sf: f32 [T, 1] SF(1,H) sf_layout\n"
        "  inout  total?: i64 [1] row_major, accumulates\n"
        "  -p     amount: int 0..9\n"
        "  -p     group: {16, 32, H} = 16\n"
        "  -p     sf_layout: {row_major, col_major_tma} = row_major\n"
        "  -p     block: tuple >= 1 or none = none\n");
}

TEST_CASE("scales are listed with a dtype and a shape", "[list]") {
  const auto listed = [](const char* op) { return list_text({kernels::find_op(op)}, ""); };
  CHECK(listed("per_token_cast")
            .find("  in     x_sf?: f32, packed i32 [ceil(T / x_block_size[0]), "
                  "ceil(H / x_block_size[1])] as x_sf_layout\n") != std::string::npos);
  CHECK(listed("per_token_cast")
            .find("  out    out_sf: f32, packed i32 [T, ceil(H / num_per_channels)] "
                  "as sf_layout\n") != std::string::npos);
  CHECK(listed("per_channel_cast_and_transpose")
            .find("  out    out_sf: f32 [ceil(T / num_per_tokens), H] "
                  "row_major\n") != std::string::npos);
  CHECK(listed("per_token_cast_to_e5m6").find(" [T, 1] as sf_layout\n") != std::string::npos);
  for (const kernels::OpInfo& op : kernels::ops()) {
    CAPTURE(op.name);
    CHECK(listed(op.name.c_str()).find("[]") == std::string::npos);
  }
}

TEST_CASE("an unknown family names the nearest", "[list]") {
  try {
    list_json({tests::fake_op()}, "fkae");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(std::string(e.what()) ==
          "tessera: unknown family 'fkae'\n"
          "  expected  fake\n"
          "  got       fkae\n"
          "  hint      did you mean 'fake'?");
  }
}

TEST_CASE("a word chooses an op, a family or all", "[list]") {
  kernels::OpInfo a, b, c;
  a.name = "topk_gate";
  a.family = "moe";
  b.name = "transpose";
  b.family = "transpose";
  c.name = "batched_transpose";
  c.family = "transpose";
  const std::vector<kernels::OpInfo> ops = {a, b, c};
  CHECK(choose_ops(ops, "all").size() == 3);
  CHECK(choose_ops(ops, "").size() == 3);
  CHECK(choose_ops(ops, "moe").size() == 1);
  CHECK(choose_ops(ops, "transpose").size() == 1);
  CHECK(choose_ops(ops, "transpose").front()->name == "transpose");
  CHECK_THROWS_AS(choose_ops(ops, "transpos"), Error);
}

TEST_CASE("the contract's tables are read as they are written", "[list][contract]") {
  const std::string markdown =
      "## 2. Operations\n"
      "### 2.1 moe (12)\n"
      "| op | in | out | parameters | GPU | CPU |\n"
      "|---|---|---|---|---|---|\n"
      "| gate | x: f32/bf16 [T,E/G] rows (E > 1); b?: SF(1,n) x_sf_layout, with bf16 only (iff x); "
      "y, z: f32 [T] "
      "| out: as x [T,K]; inout m?: i64 [T] any; acc g?, w?: f32 [1] "
      "| n int 1..E; m {16, H} (H: x); f {a, none} = none; t tuple = none; sf_layout = row_major; "
      "e float = 1e-6; r bool = false | B | B |\n"
      "| gate_back | x: as gate; z: as x [T] | out: f32 [T] | as above | B | B |\n"
      "| gate_any | x: i8 [..,W], rank >= 1; b: SF(1,n), powers of two | out: f32 [T] | | B | B |\n"
      "| gate_all | as gate_any, plus c: f32 [2]; y, z; out: as gate | acc grad_c?: f32, shape of "
      "c "
      "| | B | B |\n"
      "| gate_twice | x, z: as gate (n = 4); p?: i32 [T] | out: f32 [T] | a, b float = 1; n_a int "
      "= 0 | B | B |\n"
      "| gate_less | q: i32 [T]; tables as above | out: f32 [T] | as above without n_* | B | B |\n"
      "| gate_some | x: as twice | out: f32 [T] (skipped rows stay: inout) | a as above | B | B "
      "|\n"
      "## 3. Decisions\n"
      "| A1 | no op | x | y |\n";
  CHECK(tests::spec_ops(markdown) == std::vector<std::string>{"gate", "gate_back", "gate_any",
                                                              "gate_all", "gate_twice", "gate_less",
                                                              "gate_some"});
  CHECK(tests::spec_row(markdown, "A1").empty());
  const Json row = Json::parse(tests::spec_row(markdown, "gate"));
  CHECK(row.at("family") == "moe");
  CHECK(row.at("tensors").size() == 8);
  CHECK(row.at("tensors").at(0) ==
        Json::parse(R"({"name": "x", "role": "in", "optional": false, "accumulate": false,
          "list": false, "dtypes": ["f32", "bf16"], "shape": ["T", "E/G"], "layout": "rows"})"));
  CHECK(row.at("tensors").at(1).at("layout") == "SF(1,n) x_sf_layout");
  CHECK(row.at("tensors").at(1).at("optional") == true);
  CHECK(row.at("tensors").at(3).at("name") == "z");
  CHECK(row.at("tensors").at(5).at("role") == "inout");
  CHECK(row.at("tensors").at(6).at("accumulate") == true);
  CHECK(row.at("tensors").at(7).at("name") == "w");
  CHECK(row.at("tensors").at(7).at("accumulate") == true);
  CHECK(row.at("params") == Json::parse(R"([
    {"name": "n", "type": "int", "allowed": "1..E"},
    {"name": "m", "type": "int", "allowed": [16, "H"]},
    {"name": "f", "type": "enum", "default": null, "allowed": ["a", "none"]},
    {"name": "t", "type": "tuple", "default": null, "allowed": null},
    {"name": "sf_layout", "type": "enum", "default": "row_major",
     "allowed": ["row_major", "col_major_tma", "packed_ue8m0"]},
    {"name": "e", "type": "float", "default": 1e-6, "allowed": null},
    {"name": "r", "type": "bool", "default": false, "allowed": null}])"));
  // Entries of another row are written out; "as x" of a tensor x is a dtype.
  const Json back = Json::parse(tests::spec_row(markdown, "gate_back"));
  CHECK(back.at("tensors").size() == 3);
  CHECK(back.at("tensors").at(0) == row.at("tensors").at(0));
  CHECK(back.at("tensors").at(1).at("dtypes") == Json::parse(R"(["as x"])"));
  CHECK(back.at("params") == row.at("params"));
  // A rule behind a tensor is no part of its layout.
  const Json any = Json::parse(tests::spec_row(markdown, "gate_any"));
  CHECK(any.at("tensors").at(0).at("layout") == "row_major");
  CHECK(any.at("tensors").at(1).at("layout") == "SF(1,n)");
  // Names go on behind a semicolon, results of another row are inputs, gradients have a shape.
  const Json whole = Json::parse(tests::spec_row(markdown, "gate_all"));
  REQUIRE(whole.at("tensors").size() == 7);
  CHECK(whole.at("tensors").at(1) == any.at("tensors").at(1));
  CHECK(whole.at("tensors").at(3) == row.at("tensors").at(2));
  CHECK(whole.at("tensors").at(5).at("name") == "out");
  CHECK(whole.at("tensors").at(5).at("role") == "in");
  CHECK(whole.at("tensors").at(6).at("shape") == Json::parse(R"(["2"])"));
  // Names may share a type.
  const Json twice = Json::parse(tests::spec_row(markdown, "gate_twice"));
  CHECK(twice.at("tensors").at(0) == row.at("tensors").at(0));
  CHECK(twice.at("tensors").at(1) == row.at("tensors").at(3));
  CHECK(twice.at("params").at(0) ==
        Json::parse(R"({"name": "a", "type": "float", "default": 1.0, "allowed": null})"));
  CHECK(twice.at("params").at(1).at("name") == "b");
  const Json less = Json::parse(tests::spec_row(markdown, "gate_less"));
  CHECK(less.at("tensors").size() == 3);
  CHECK(less.at("tensors").at(1) == twice.at("tensors").at(2));
  CHECK(less.at("params").size() == 2);
  // The end of a name stands for it, and remarks may say what is read and written.
  const Json some = Json::parse(tests::spec_row(markdown, "gate_some"));
  CHECK(some.at("tensors").at(0) == twice.at("tensors").at(0));
  CHECK(some.at("tensors").at(1).at("role") == "inout");
  REQUIRE(some.at("params").size() == 1);
  CHECK(some.at("params").at(0) == twice.at("params").at(0));
}

TEST_CASE("the tests of every family leave out none", "[list]") {
  const std::set<std::string> tested = {"moe",      "quant", "transpose", "engram",    "mhc",
                                        "modeling", "gemm",  "serving",   "attention", "linear"};
  std::set<std::string> families;
  for (const kernels::OpInfo& op : kernels::ops()) families.insert(op.family);
  CHECK(families == tested);
}

TEST_CASE("tessera list --json equals the contract's tables for every op", "[list][contract]") {
  const std::string markdown = tests::read_text(test::in_source(kContract));
  const Json listed = Json::parse(list_json(kernels::ops(), ""));
  std::vector<std::string> names;
  for (const Json& op : listed.at("ops")) names.push_back(op.at("name").get<std::string>());
  REQUIRE(names.size() == kernels::ops().size());
  CHECK(tests::spec_ops(markdown) == names);
  for (Json op : listed.at("ops")) {
    const auto name = op.at("name").get<std::string>();
    CAPTURE(name);
    const std::string row = tests::spec_row(markdown, name);
    REQUIRE_FALSE(row.empty());
    CHECK_FALSE(op.at("purpose").get<std::string>().empty());
    op.erase("purpose");
    for (Json& tensor : op.at("tensors")) {
      tensor.erase("presence");  // rows state it in words
      if (tensor.at("layout").get<std::string>().rfind("SF(", 0) != 0) continue;
      tensor["dtypes"] = Json::array();  // the row does not state them
      tensor["shape"] = Json::array();
    }
    CHECK(op.dump(1) == Json::parse(row).dump(1));
  }
}

/// Ops of whose rows the specification says parts in sentences, or by the row above, or in another file.
const std::set<std::string> kInSentences = {"compress_fwd",
                                            "compress_state_write",
                                            "compress_decode",
                                            "compress_store",
                                            "compress_decode_store",
                                            "compress_prefill",
                                            "topk_select",  // its table has no table_row
                                            "moe_topk_gate_fwd",
                                            "apply_rotary",
                                            "norm_fwd_and_per_token_cast",
                                            "norm_bwd",
                                            "swiglu_bwd",
                                            "gather_pages",
                                            "paged_lengths",
                                            "slot_plan",
                                            "serving_plan",
                                            "hisparse_swap_in",
                                            "hisparse_replay",
                                            "hisparse_backup",
                                            "batched_transpose_weight_sf",
                                            "engram_gate_fwd",
                                            "engram_gate_bwd",
                                            "engram_hash",
                                            "engram_fwd",
                                            "engram_bwd",
                                            "engram_ngram_ids",
                                            "engram_embed",
                                            "engram_sinkhorn_momentum",
                                            "engram_sinkhorn_step",
                                            "engram_sinkhorn_finalize",
                                            "moe_plan",
                                            "moe_gather_cast",
                                            "swiglu_psum_cast",
                                            "combine_reduce",
                                            "moe_forward",
                                            "router_logits",
                                            "moe_gate",
                                            "mhc_boundary",
                                            "pre_big_fuse_and_norm",
                                            "kv_store",
                                            "kv_load",
                                            "kv_norm_rope_store",
                                            "q_norm_rope",
                                            "index_q_store",
                                            "mqa_logits",
                                            "paged_mqa_logits",
                                            "mqa_topk",
                                            "paged_mqa_topk",
                                            "candidate_blocks",
                                            "mqa_topk_blocks",
                                            "paged_mqa_topk_blocks",
                                            "sparse_mqa_logits",
                                            "sparse_mqa_topk",
                                            "gemm_fp8_grouped",
                                            "attention_varlen_fwd",
                                            "attention_bwd",
                                            "attention_varlen_bwd",
                                            "mla_decode",
                                            "mla_combine",
                                            "sparse_mla_fwd",
                                            "sparse_mla_decode",
                                            "causal_conv1d_fwd",
                                            "causal_conv1d_update",
                                            "rmsnorm_gated_fwd",
                                            "gated_delta_fwd",
                                            "gated_delta_varlen_fwd",
                                            "gated_delta_decode",
                                            "mxfp4_prepack",
                                            "mxfp4_decode",
                                            "gemm_mxfp4",
                                            "gemm_mxfp4_grouped",
                                            "gemm_mxfp4_masked"};

/// A specification with the names that `ops.md` 1.7 gives to all families.
std::string with_common_names(std::string text) {
  for (const auto& [other, name] :
       {std::pair("out_page_size", "page_size"), std::pair("out_pages", "page_table"),
        std::pair("block_size", "page_size"), std::pair("block_table", "page_table")}) {
    for (size_t at = 0; (at = text.find(other, at)) != std::string::npos;) {
      text.replace(at, std::strlen(other), name);
    }
  }
  return text;
}

TEST_CASE("the contract's rows equal those of the specification beside the repository",
          "[list][contract]") {
  const char* given = std::getenv("TESSERA_SPEC_DIR");
  const bool is_given = given != nullptr && *given != '\0';
  const std::string folder = is_given ? given : test::in_source("../shared/specs");
  for (const char* file : {"/ops.md", "/serving.md", "/attention.md"}) {
    if (std::filesystem::exists(folder + file)) continue;
    TESSERA_SKIP("no specification " + folder + file + " (set TESSERA_SPEC_DIR)");
  }
  const std::string contract = tests::read_text(test::in_source(kContract));
  const std::string specification =
      tests::read_text(folder + "/ops.md") +
      "\n### 2.8 serving (its tables stand in sections of their own)\n" +
      with_common_names(tests::read_text(folder + "/serving.md")) +
      "\n### 2.9 attention (the same)\n" +
      with_common_names(tests::read_text(folder + "/attention.md"));
  std::vector<std::string> names = tests::spec_ops(contract);
  std::erase_if(names, [](const std::string& name) { return kInSentences.contains(name); });
  // The specification may have more ops.
  std::vector<std::string> theirs = tests::spec_ops(specification);
  std::erase_if(theirs, [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) == names.end();
  });
  CHECK(theirs == names);
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK(tests::spec_row(contract, name) == tests::spec_row(specification, name));
  }
}

/// "T, ceil(H / block_size[1])" as expressions, with the numbers of the call's tuples in place.
std::vector<kernels::Expression> extents_of(std::string shape, const kernels::Params& params) {
  for (const auto& [name, value] : params) {
    const auto* list = std::get_if<std::vector<int64_t>>(&value);
    for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
      const std::string item = name + "[" + std::to_string(i) + "]";
      for (size_t at = 0; (at = shape.find(item)) != std::string::npos;) {
        shape.replace(at, item.size(), std::to_string((*list)[i]));
      }
    }
  }
  std::vector<kernels::Expression> extents;
  int depth = 0;
  std::string one;
  for (const char c : shape + ",") {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c != ',' || depth > 0) {
      one += c;
      continue;
    }
    extents.push_back(kernels::Expression::parse(one));
    one.clear();
  }
  return extents;
}

TEST_CASE("the shapes of the page of ops are those that calls give their outputs", "[list]") {
  int compared = 0;
  for (size_t i = 0; i < kernels::ops().size(); ++i) {
    const kernels::OpInfo& op = kernels::ops()[i];
    for (const kernels::BenchCase& example : op.examples) {
      const kernels::Params params = kernels::check_params(op, example.params);
      const kernels::Tensors inputs = kernels::views_of(example);
      const kernels::Call call(kernels::parsed(*kernels::all_ops()[i]), inputs, params);
      for (const kernels::OutputInfo& output : call.outputs()) {
        if (output.workspace) continue;
        const std::string stem = output.name.substr(0, output.name.find('.'));
        const auto tensor = std::find_if(op.tensors.begin(), op.tensors.end(),
                                         [&](const auto& one) { return one.name == stem; });
        REQUIRE(tensor != op.tensors.end());
        const TensorWords words = words_of(op, *tensor);
        CAPTURE(op.name, example.label, output.name, words.shape, to_string(output.shape));
        std::string inner = words.shape.substr(1, words.shape.size() - 2);
        if (inner.find("..") != std::string::npos) continue;  // any dimensions
        const bool may_lack_last = inner.ends_with('?');
        if (may_lack_last) inner.pop_back();
        std::vector<kernels::Expression> extents = extents_of(inner, params);
        const bool lacks_last = output.shape.rank + 1 == static_cast<int>(extents.size());
        if (may_lack_last && lacks_last) extents.pop_back();
        REQUIRE(static_cast<int>(extents.size()) == output.shape.rank);
        for (int d = 0; d < output.shape.rank; ++d) {
          int64_t expected = extents[static_cast<size_t>(d)].integer(call);
          if (d + 1 == output.shape.rank) {
            // The page's own words: packed scales, e2m1 as i8 and e5m6 as u8.
            if (output.dtype == DType::i32 && words.dtypes == "f32, packed i32") {
              expected = (expected + 3) / 4;
            }
            if (output.dtype == DType::i8) expected /= 2;
            if (words.dtypes.find("e5m6") != std::string::npos) expected = expected / 2 * 3;
          }
          CHECK(output.shape[d] == expected);
          ++compared;
        }
      }
    }
  }
  CHECK(compared > 500);
}

}  // namespace
}  // namespace tessera::tools
