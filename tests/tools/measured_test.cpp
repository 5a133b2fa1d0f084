// Blocks of pages that are made from records, examples and Python modules.

#include "tools/lib/bench/measured.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "dsl/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"
#include "tests/tools/not_measured.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lib/calls/op_listing.h"
#include "tools/lib/docs/doc_pages.h"
#include "tools/lib/docs/example_source.h"
#include "tools/lib/docs/measured_page.h"

namespace tessera::tools {
namespace {

using tests::read_text;
using tests::TemporaryFolder;
using tests::write_text;

constexpr const char* kRun = "{\"run\": {\"card\": \"GPU\", \"date\": \"2026-11-01\"}}\n";

template <class Fn>
std::string error_of(const Fn& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a record of peers says which line is none", "[measured]") {
  const TemporaryFolder folder;
  const std::string path = folder.path("peers.jsonl");
  const auto read = [&](const std::string& text) {
    write_text(path, text);
    return read_peers(path);
  };
  const std::string good =
      "{\"op\": \"topk_gate\", \"case\": \"num_topk=6 E=72 T=4001\", \"peer\": \"A\", \"peer_us\": "
      "8}\n";
  const PeerRecord record = read(kRun + good);
  CHECK(record.run.card == "GPU");
  REQUIRE(record.cases.size() == 1);
  CHECK(record.cases[0].key == case_key("topk_gate", "T=4001 E=72 num_topk=6"));
  CHECK_FALSE(record.cases[0].us.has_value());
  CHECK(has(error_of([&] { read(good); }), "peers.jsonl: line 1 is none of this record"));
  CHECK(has(error_of([&] { read(""); }), "an empty file"));
  CHECK(has(error_of([&] { read(kRun + good + "{\"op\": \"topk_gate\"}\n"); }),
            "peers.jsonl: line 3 is none of this record\n"
            "  expected  op, case, peer and peer_us\n"));
  CHECK(has(error_of([&] {
              read(std::string(kRun) +
                   "{\"op\": \"no_op\", \"case\": \"T=1\", \"peer\": \"A\", \"peer_us\": 8}\n");
            }),
            "no shipped op has this name"));
}

TEST_CASE("a product counts the rows that its case computes", "[measured]") {
  const auto flops = [](const char* op, const char* text) {
    const kernels::OpInfo& info = kernels::find_op(op);
    return product_flops(info, info.case_of(text));
  };
  CHECK(flops("gemm_bf16", "M=64 N=128 K=256") == 2.0 * 64 * 128 * 256);
  CHECK(flops("gemm_fp8_k_grouped", "M=128 N=256 K=512 G=2") == 2.0 * 128 * 256 * 512);
  const double masked = flops("gemm_fp8_masked", "G=2 Mmax=256 N=128 K=128 mean=64");
  CHECK(masked > 0);
  CHECK(masked < 2.0 * 2 * 256 * 128 * 128);  // not of all rows that there is room for
  CHECK(flops("gemm_mxfp4", "M=64 N=100 K=256") == 2.0 * 64 * 100 * 256);
  CHECK(flops("gemm_mxfp4_grouped", "M=64 N=100 K=256 G=2 psum=given Fb=2") ==
        2.0 * 64 * 100 * 256);
  CHECK(flops("transpose", "R=64 C=64 x=bf16") == 0);
}

TEST_CASE("the first screen's means are those of the records", "[measured]") {
  const Records records = Records::load(test::in_source("."));
  // Every case of the peers has a time of ours, in the same run or in the record of the card.
  double sum = 0;
  int count = 0;
  const kernels::OpInfo& op = kernels::find_op("gemm_bf16");
  for (const kernels::BenchCase& one : op.bench) {
    const std::optional<PeerCase> found = records.find("cuBLAS", op, one);
    if (!found) continue;
    REQUIRE(found->us.has_value());
    sum += std::log(*found->us / found->peer_us);
    ++count;
  }
  REQUIRE(count > 10);
  CHECK(has(speed_text(records), fmt::format("{:.2f} of cuBLAS's", std::exp(sum / count))));
  const double peer_us = records.find("cuBLAS", op, op.case_of("M=8192 N=8192 K=8192"))->peer_us;
  CHECK(has(ratios_text(records), fmt::format("| cuBLAS {:.0f} |", peer_us)));
}

TEST_CASE("every op that has been measured stands in MEASURED.md", "[measured]") {
  const Records records = Records::load(test::in_source("."));
  const std::string text = measured_text(records);
  for (const kernels::OpInfo& op : kernels::ops()) {
    CAPTURE(op.name);
    CHECK(has(text, "| `" + op.name + "` |") != test::is_not_measured(op.name));
  }
}

TEST_CASE("the roofline is a picture that stands alone", "[measured][report]") {
  const std::string picture = roofline_picture(Records::load(test::in_source(".")));
  CHECK(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox="));
  CHECK(has(picture, "prefers-color-scheme: dark"));
  CHECK(has(picture, ">transpose</text>"));
  CHECK(has(picture, "class=\"roof dashed\""));
  CHECK_FALSE(has(picture, "gemm_bf16"));  // bound by its arithmetic
  CHECK(picture.ends_with("</svg>\n"));
}

TEST_CASE("the run of a record gives the copy rates of its card", "[measured][peer]") {
  const TemporaryFolder folder;
  const std::string path = folder.path("record.jsonl");
  const std::string line =
      "{\"op\": \"topk_gate\", \"case\": \"T=1 E=72 num_topk=6\", \"time_us\": 8}\n";
  write_text(path, "{\"run\": {\"copy_gbs\": [[8388608, 3000], [33554432, 3600]]}}\n" + line);
  const PeerTimes times = PeerTimes::load(path);
  CHECK(std::fabs(times.copy_gbs(int64_t{16} << 20).value() - 3300) < 1e-6);
  CHECK_FALSE(times.copy_gbs(int64_t{4} << 20).has_value());
  CHECK(PeerTimes::load(folder.path("")).copy_gbs(int64_t{8} << 20) == 3000);  // as a folder, too
  write_text(path, "{\"run\": {\"copy_gbs\": [[8388608, -1]]}}\n" + line);
  CHECK(has(error_of([&] { PeerTimes::load(path); }), "line 1 has a copy rate that is none"));
}

TEST_CASE("what bench records begins with its run", "[measured][bench]") {
  std::vector<BenchResult> results(3);
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].op = "topk_gate";
    results[i].label = "T=1 E=72 num_topk=6";
    results[i].timing.us = 8;
    results[i].bytes = int64_t{1} << (19 + 2 * i);  // 512 KiB, 2 MiB, 8 MiB
    results[i].copy_gbs = 1000.4 * static_cast<double>(i);
  }
  const TemporaryFolder folder;
  write_text(folder.path("r.jsonl"),
             run_line("GPU", "tessera bench all --record FILE", results) + bench_record(results));
  const RecordedRun run = read_run(folder.path("r.jsonl"));
  CHECK(run.card == "GPU");
  CHECK(run.date.size() == std::string("2026-11-29").size());
  CHECK(run.command == "tessera bench all --record FILE");
  const PeerTimes times = PeerTimes::load(folder.path("r.jsonl"));
  CHECK(times.copy_gbs(int64_t{1} << 20) == 1000);
  CHECK(times.copy_gbs(int64_t{4} << 20) == 2001);
  CHECK_FALSE(times.copy_gbs(int64_t{1} << 19).has_value());
}

TEST_CASE("parts of examples are cut out as they stand", "[measured][pages]") {
  const TemporaryFolder folder;
  const std::string path = folder.path("a.cpp");
  write_text(
      path,
      "int other() {\n  return 1;\n}\n\nts::ir::Kernel f(int n) {\n  one();\n\n  two();\n}\n");
  CHECK(function_text(path, "f") == "ts::ir::Kernel f(int n) {\n  one();\n\n  two();\n}\n");
  CHECK(kernel_lines(path) == 4);
  CHECK(lines_text(path, "1-2,6") == "int other() {\n  return 1;\n...\n  one();\n");
  CHECK(has(error_of([&] { function_text(path, "g"); }), "a page shows a part that is not there"));
  for (const char* wrong : {"8-99", "0-1", "2-1", "x", "1-2-3"}) {
    CAPTURE(wrong);
    CHECK(has(error_of([&] { lines_text(path, wrong); }), "expected  lines 1 to 9"));
  }
}

TEST_CASE("a Python module is listed with its calls and first sentences", "[measured][pages]") {
  const TemporaryFolder folder;
  const std::string good =
      "__all__ = [\"Gate\", \"imported\", \"sinkhorn\"]\n\n\n"
      "def sinkhorn(x: Tensor, *, repeat: int = 10,\n    pair: tuple[int, int] = (1, 2)) -> "
      "Tensor:\n"
      "    \"\"\"Makes matrices\n    nearly doubly stochastic. More.\n    \"\"\"\n\n\n"
      "class Gate(nn.Module):\n    \"\"\"A gate.\"\"\"\n\n"
      "    def __init__(self, hc: int, device: Any = None) -> None:\n        pass\n\n\n";
  write_text(folder.path("m.py"), good);
  CHECK(python_text(folder.path(""), "m.py") ==
        "| name | does |\n|---|---|\n"
        "| `Gate(hc, device=None)` | A gate |\n"
        "| `sinkhorn(x, *, repeat=10, pair=(1,2))` | Makes matrices nearly doubly stochastic |\n");
  write_text(folder.path("n.py"), "__all__ = [\"f\"]\n\n\ndef f(x):\n    return x\n\n\n");
  CHECK(
      has(error_of([&] { python_text(folder.path(""), "n.py"); }), "a name that has no docstring"));
}

TEST_CASE("a user's words find ops, parts of other words do not", "[measured][list]") {
  const auto names = [](const char* word) {
    std::string text;
    for (const kernels::OpInfo& op : find_ops(kernels::ops(), word)) text += op.name + " ";
    return text;
  };
  CHECK(names("Dequantise") ==
        "cast_back per_token_cast_back cast_back_e5m6 per_token_cast_and_cast_back ");
  CHECK(names("softmax") == "top2_sum_gate hash_gate attention_fwd ");
  CHECK(names("mm") == names("matmul"));
  CHECK_FALSE(has(names("mm"), "reduce_fused"));  // "summed"
  CHECK(has(names("RMSNorm"), "norm_fn_fwd"));
  CHECK(has(names("routing"), "topk_gate"));
  CHECK(has(names("quantize"), "per_block_cast "));
  CHECK(names("no such thing").empty());
  const std::string table = synonyms_text(kernels::ops());
  CHECK(has(table, "| unpermute | [`reduce_fused`](moe/README.md#reduce_fused) |"));
  CHECK_FALSE(has(table, "|  |\n"));  // a word that finds nothing
}

}  // namespace
}  // namespace tessera::tools
