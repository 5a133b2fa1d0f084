#include "tools/lib/peer_times.h"

#include <cmath>

#include "dsl/base/error.h"
#include "tests/support/catch.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tools {
namespace {

using kernels::BenchCase;
using kernels::OpInfo;
using kernels::ParamValue;
using kernels::Role;
using tests::TemporaryFolder;
using tests::write_text;
using Type = kernels::ParamInfo::Type;

OpInfo per_token_cast() {
  OpInfo op;
  op.name = "per_token_cast";
  op.tensors = {{"x", Role::in, false, false, false, {"bf16", "f32"}, {"T", "H"}, "rows"}};
  op.params = {
      {"format", Type::word, std::nullopt, {"e4m3", "e2m1"}, std::nullopt, ""},
      {"num_per_channels", Type::integer, std::nullopt, {"32", "128", "H"}, std::nullopt, ""},
      {"x_block_size", Type::tuple, ParamValue(), {}, std::nullopt, ""},
      {"sf_layout",
       Type::word,
       ParamValue(std::string("row_major")),
       {"row_major", "col_major_tma", "packed_ue8m0"},
       std::nullopt,
       ""},
      {"round_sf", Type::boolean, ParamValue(false), {}, std::nullopt, ""}};
  return op;
}

BenchCase bench_case(DType dtype, int64_t tokens, const std::string& sf_layout, bool round_sf) {
  BenchCase c;
  c.params = {{"format", ParamValue(std::string("e4m3"))},
              {"num_per_channels", ParamValue(int64_t{128})},
              {"sf_layout", ParamValue(sf_layout)},
              {"round_sf", ParamValue(round_sf)}};
  c.inputs = {{"x", dtype, {tokens, 7168}, {}}};
  return c;
}

const char* const kLines =
    R"({"kernel": "per_token_cast", "params": {"fmt": "e4m3", "hidden": 7168, "in_dtype": "fp32", "num_per_channels": 128, "num_tokens": 8001, "round_sf": true, "use_packed_ue8m0": true, "use_tma_aligned_col_major_sf": true, "x_block_size": null}, "time_us": 72.96}
{"kernel": "per_token_cast", "params": {"fmt": "e4m3", "hidden": 7168, "in_dtype": "e4m3", "num_per_channels": 128, "num_tokens": 8001, "round_sf": true, "use_packed_ue8m0": true, "use_tma_aligned_col_major_sf": true, "x_block_size": [128, 128]}, "time_us": 40.51}
{"kernel": "something_else", "params": {"n": 1}, "time_us": 1.0}

{"op": "per_token_cast", "params": {"T": 128, "H": 7168, "format": "e4m3", "num_per_channels": 128, "sf_layout": "row_major", "round_sf": false}, "time_us": 2.88}
)";

TEST_CASE("a peer line with values that mean nothing is named", "[peer]") {
  const TemporaryFolder folder;
  const std::string path = folder.path("a.jsonl");
  const auto error_of = [&](const std::string& line) {
    write_text(path, "\n" + line + "\n");
    try {
      PeerTimes::load(path);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::argument);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const std::string swiglu = R"({"kernel": "swiglu_forward_and_per_token_cast", "time_us": 1.0, )";
  const std::string gate = R"({"kernel": "top2_sum_gate", "time_us": 1.0, )";
  for (const std::string& line :
       {swiglu + R"("params": {"num_per_channels": 0}})",
        swiglu + R"("params": {"hidden": "wide"}})",
        swiglu + R"("params": {"hidden": 9223372036854775807, "num_per_channels": 2}})",
        swiglu + R"("bandwidth_gbs": "fast", "params": {"hidden": 128}})",
        swiglu + R"("bandwidth_gbs": 1e300, "params": {"hidden": 128}})",
        gate + R"("params": {"num_topk": 0, "num_shared_experts": 2}})",
        gate + R"("params": {"num_topk": 1.5}})",
        gate + R"("params": {"use_packed_ue8m0": "no"}})"}) {
    CAPTURE(line);
    CHECK(error_of(line).find("tessera: " + path + ": line 2 is no peer time\n") == 0);
  }
  CHECK(error_of(swiglu + R"("params": {"num_per_channels": 0}})")
            .find("\n  got       num_per_channels is 0") != std::string::npos);
}

TEST_CASE("sizes without end in a README of copy rates are no sizes", "[peer]") {
  const TemporaryFolder folder;
  write_text(folder.path("README.md"),
             "99999999999999999999 MiB 3310 GB/s, 0 MiB 1000, 8 MiB 3000 GB/s\n");
  const PeerTimes times = PeerTimes::load(folder.path(""));
  CHECK(times.copy_gbs(int64_t{8} << 20) == 3000);
  CHECK_FALSE(times.copy_gbs(int64_t{4} << 20).has_value());
}

TEST_CASE("peer lines match the case with the same facts and no other", "[peer]") {
  const TemporaryFolder folder;
  write_text(folder.path("a.jsonl"), kLines);
  const PeerTimes times = PeerTimes::load(folder.path("a.jsonl"));
  const OpInfo op = per_token_cast();
  CHECK(times.find(op, bench_case(DType::f32, 8001, "packed_ue8m0", true)) == 72.96);
  CHECK_FALSE(times.find(op, bench_case(DType::bf16, 8001, "packed_ue8m0", true)));
  CHECK_FALSE(times.find(op, bench_case(DType::f32, 8000, "packed_ue8m0", true)));
  CHECK_FALSE(times.find(op, bench_case(DType::f32, 8001, "row_major", true)));
  CHECK_FALSE(times.find(op, bench_case(DType::f32, 8001, "packed_ue8m0", false)));
  // In our names; the dtype is the first that the op takes.
  CHECK(times.find(op, bench_case(DType::bf16, 128, "row_major", false)) == 2.88);
  CHECK_FALSE(times.find(op, bench_case(DType::f32, 128, "row_major", false)));
}

TEST_CASE("a name that says nothing about the case is left out", "[peer]") {
  const TemporaryFolder folder;
  write_text(folder.path("a.jsonl"),
             R"({"kernel": "sinkhorn_fwd", "params": {"n": 4096, "h": 7168}, "time_us": 8.46})");
  const PeerTimes times = PeerTimes::load(folder.path("a.jsonl"));
  const OpInfo& op = kernels::find_op("sinkhorn_fwd");
  BenchCase c;
  c.inputs = {{"x", DType::f32, {4096, 4, 4}, {16, 4, 1}}};
  CHECK(times.find(op, c) == 8.46);
  c.params = {{"repeat", ParamValue(int64_t{3})}};
  CHECK_FALSE(times.find(op, c));
}

TEST_CASE("a folder brings the copy rates of its README", "[peer]") {
  const TemporaryFolder folder;
  write_text(folder.path("a.jsonl"), kLines);
  write_text(folder.path("README.md"),
             "Copy: 8 MiB 3000 GB/s, 32 MiB 4000,\n1 GiB 4200, 64 KiB 7. 256 MiB flush.\n");
  const PeerTimes times = PeerTimes::load(folder.path(""));
  CHECK_FALSE(times.empty());
  CHECK_FALSE(times.copy_gbs(int64_t{1} << 20));
  CHECK(times.copy_gbs(int64_t{8} << 20) == 3000.0);
  CHECK(std::abs(times.copy_gbs(int64_t{16} << 20).value() - 3500.0) < 1e-6);
  CHECK(times.copy_gbs(int64_t{1} << 30) == 4200.0);
  CHECK(times.copy_gbs(int64_t{8} << 30) == 4200.0);
}

TEST_CASE("peer lines of ops that cast back match codes, blocks and the layout of x", "[peer]") {
  const TemporaryFolder folder;
  write_text(
      folder.path("a.jsonl"),
      R"({"kernel": "cast_back_per_token", "params": {"fmt": "e2m1", "hidden": 7168, "num_per_channels": 128, "num_tokens": 8001, "out_dtype": "fp32", "round_sf": true, "use_packed_ue8m0": false, "use_tma_aligned_col_major_sf": false}, "time_us": 128.27}
{"kernel": "cast_back", "params": {"fmt": "e4m3", "hidden": 7168, "num_per_channels": 1, "num_per_tokens": 128, "num_tokens": 8001, "out_dtype": "bf16", "round_sf": false}, "time_us": 53.78}
)");
  const PeerTimes times = PeerTimes::load(folder.path("a.jsonl"));
  const auto time_of = [&](const std::string& op, const std::string& label) {
    const OpInfo& info = kernels::find_op(op);
    for (const BenchCase& c : info.bench) {
      if (c.label == label) return times.find(info, c).value_or(0.0);
    }
    return -1.0;
  };
  CHECK(time_of("per_token_cast_back", "T=8001 H=7168 e2m1 / 1x128 to f32") == 128.27);
  CHECK(time_of("per_token_cast_back", "T=8001 H=7168 e4m3 / 1x128 to f32") == 0.0);
  CHECK(time_of("per_token_cast_back", "T=8001 H=7168 e2m1 / 1x7168 to f32") == 0.0);
  CHECK(time_of("cast_back", "T=8001 H=7168 e4m3 / 128x1 to bf16") == 53.78);
  CHECK(time_of("cast_back", "T=8001 H=7168 e4m3 / 128x128 to bf16") == 0.0);
}

TEST_CASE("expanded rows of a swiglu line follow from its bytes", "[peer]") {
  const TemporaryFolder folder;
  write_text(
      folder.path("a.jsonl"),
      R"({"kernel": "swiglu_forward_and_per_token_cast", "params": {"enable_pos_to_expert": true, "hidden": 1024, "num_ep_ranks": 64, "num_experts": 4, "num_per_channels": 128, "num_tokens": 9979, "num_topk": 2, "round_sf": true, "swiglu_clamp_value": null, "use_packed_ue8m0": true, "use_tma_aligned_col_major_sf": true, "with_weights": false}, "time_us": 20.89, "bandwidth_gbs": 2474.0966}
{"op": "swiglu_forward_and_per_token_cast", "params": {"P": 8, "H": 2048, "num_per_channels": 128}, "time_us": 2.04}
)");
  const PeerTimes times = PeerTimes::load(folder.path("a.jsonl"));
  const OpInfo& op = kernels::find_op("swiglu_forward_and_per_token_cast");
  std::vector<std::pair<std::string, double>> found;
  for (const BenchCase& c : op.bench) {
    if (const auto us = times.find(op, c)) found.emplace_back(c.label, *us);
  }
  CHECK(found == std::vector<std::pair<std::string, double>>{
                     {"P=10080 H=1024 bf16 / 128 packed_ue8m0, experts", 20.89},
                     {"P=8 H=2048 bf16 / 128 row_major", 2.04}});
}

TEST_CASE("peer lines of routing and Engram ops say what is given", "[peer]") {
  const TemporaryFolder folder;
  write_text(
      folder.path("a.jsonl"),
      R"({"kernel": "reduce_fused", "params": {"hidden": 7168, "in_dtype": "bf16", "num_ep_ranks": 8, "num_experts": 9, "num_tokens": 18431, "num_topk": 6, "out_dtype": "bf16", "with_sf": true, "with_weights": true}, "time_us": 150.64}
{"kernel": "reduce_fused", "params": {"hidden": 7168, "in_dtype": "bf16", "num_ep_ranks": 8, "num_experts": 32, "num_tokens": 18578, "num_topk": 6, "out_dtype": "e4m3", "with_sf": true, "with_weights": true}, "time_us": 1.0}
{"op": "reduce_fused", "params": {"T": 128, "H": 7168, "K": 8}, "time_us": 9.63}
{"kernel": "expand_to_fused_with_sf", "params": {"hidden": 7168, "num_ep_ranks": 64, "num_experts": 4, "num_per_channels": 32, "num_tokens": 32515, "num_topk": 8, "round_sf": true, "use_packed_ue8m0": false, "use_tma_aligned_col_major_sf": false}, "time_us": 135.18}
{"kernel": "top2_sum_gate", "params": {"num_groups": 0, "num_routed_experts": 72, "num_shared_experts": 1, "num_topk": 6, "num_topk_groups": 0, "scoring_func": "sigmoid"}, "time_us": 4.72}
{"op": "top2_sum_gate", "params": {"T": 128, "E": 256, "num_topk": 8, "num_groups": 8, "num_topk_groups": 4, "scoring_func": "sigmoid", "routed_scaling_factor": 2.5}, "time_us": 6.45}
{"kernel": "get_fused_mapping", "params": {"alignment": 128, "num_ep_ranks": 64, "num_experts": 4, "num_tokens": 9813, "num_topk": 2}, "time_us": 7.06}
{"op": "get_fused_mapping", "params": {"T": 128, "K": 8, "num_experts": 256, "alignment": 16, "num_expanded_tokens": 5120, "force_no_sync": true}, "time_us": 6.34}
{"kernel": "engram_hash", "params": {"layers": 2, "ngram": 3, "num_tokens": 4001, "tables": 8}, "time_us": 4.53}
{"kernel": "engram_gate_fwd", "params": {"hc": 4, "hidden": 7168, "num_tokens": 8001, "save": false}, "time_us": 390.03}
)");
  const PeerTimes times = PeerTimes::load(folder.path("a.jsonl"));
  const auto found = [&](const std::string& op) {
    const OpInfo& info = kernels::find_op(op);
    std::vector<std::pair<std::string, double>> all;
    for (const BenchCase& c : info.bench) {
      if (const auto us = times.find(info, c)) all.emplace_back(c.label, *us);
    }
    return all;
  };
  using Found = std::vector<std::pair<std::string, double>>;
  // a line without a dtype means bf16, not the f32 that the op lists first
  CHECK(found("reduce_fused") == Found{{"T=18431 K=6 E=9 H=7168 bf16 x_sf weights", 150.64},
                                       {"T=128 K=8 E=256 H=7168 bf16 weights", 9.63}});
  CHECK(found("expand_to_fused_with_sf") ==
        Found{{"T=32515 K=8 E=4 H=7168 e4m3 / 32 row_major", 135.18}});
  CHECK(found("top2_sum_gate") == Found{{"T=36 E=72 K=6 sigmoid rank of 4 x 2, 1 shared", 4.72},
                                        {"T=128 E=256 K=8 sigmoid groups 4 of 8", 6.45}});
  CHECK(found("get_fused_mapping") ==
        Found{{"T=9813 K=2 E=4 A=128", 7.06}, {"T=128 K=8 E=256 A=16 P=5120", 6.34}});
  CHECK(found("engram_hash") == Found{{"T=4001 L=2 N=3 J=8", 4.53}});
  CHECK(found("engram_gate_fwd") == Found{{"T=8001 hc=4 D=7168", 390.03}});
}

TEST_CASE("peer files that are no such thing are refused", "[peer]") {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& text) {
    write_text(folder.path("a.jsonl"), text);
    try {
      PeerTimes::load(folder.path("a.jsonl"));
    } catch (const Error& e) {
      std::string what = e.what();
      return what.replace(what.find(folder.path("a.jsonl")), folder.path("a.jsonl").size(), "FILE");
    }
    return std::string("no error");
  };
  CHECK(message("{\"op\": \"x\"}\n") ==
        "tessera: FILE: line 1 is no peer time\n"
        "  expected  JSON lines with op or kernel, params and time_us\n"
        "  got       {\"op\": \"x\"}");
  CHECK(message("\nnot json").find("line 2 is no peer time") != std::string::npos);
  CHECK(message("{\"params\": {}, \"time_us\": 1}").find("names neither op nor kernel") !=
        std::string::npos);
  CHECK_THROWS_AS(PeerTimes::load(folder.path("missing")), Error);
}

}  // namespace
}  // namespace tessera::tools
