// paged_mqa_logits: scores of the keys of a paged cache for the newest tokens of requests.
//
// Dtypes   q e4m3, the cache index_fp8 (e4m3 with an f32 scale per key), weights f32; logits f32|bf16
// Method   see parts/logits_kernel.cpp
// Maths    that of mqa_logits. A row depends on no other request, on neither page size nor table.

#include <algorithm>

#include "kernels/registry/all_ops.h"
#include "kernels/serving/indexer/parts/logits_call.h"
#include "kernels/signature/case_values.h"

namespace tessera::kernels {
namespace {

void require(const Call& c) {
  serving::require_heads(c);
  serving::require_index_cache(c);
}

void launches(const Call& c, Launches& go) {
  serving::add_logits_of_pages(c, go, {c.given("logits"), c.flag("clean")});
}

}  // namespace

const Op paged_mqa_logits_op{
    .name = "paged_mqa_logits",
    .family = "serving",
    .purpose = "scores of the keys of a paged cache for queries of several heads",
    .signature = R"(
      q           e4m3 [B, n, h, D]                # the last n tokens of each request
      cache       u8 [P, bytes] rows               # pages of page_size * D codes, then page_size scales of f32: index_fp8
      weights     f32 [B*n, h] rows
      lengths     i32 [B, n]                       values 0 .. max_len
      page_table  i32 [B, Q] rows                  # pages of a request; behind its length any value
      -> logits   logits_dtype [B*n, max_len] rows
      param  max_len int >= 0
      param  logits_dtype {f32, bf16} = f32
      param  clean bool = true                     # columns without a key are -inf; keys without a page always
      param  page_size int = 64
      need   1 <= page_size <= 1048576
      limit  max_len <= 1073741824 "so many columns are not supported"
      limit  B * n * h <= 2130706431 on q "so many queries are not supported"
    )",
    .launches = launches,
    .check = require,
    .check_values = serving::require_index_pages,
    .examples = R"(
      B=3 n=1 h=64 D=128 P=20 Q=5 bytes=8448 max_len=300; B=2 n=3 h=32 D=64 P=9 Q=4 bytes=4352 max_len=256 logits_dtype=bf16
      B=2 n=2 h=8 D=32 P=20 Q=30 bytes=432 max_len=200 page_size=12 clean=false)",
    .bench = R"(
      B=256 n=1 h=64 D=128 P=32768 Q=128 bytes=8448 max_len=8192; B=64 n=1 h=64 D=128 P=65536 Q=1024 bytes=8448 max_len=65536
      B=1 n=1 h=64 D=128 P=4096 Q=4096 bytes=8448 max_len=262144; B=64 n=4 h=64 D=128 P=65536 Q=1024 bytes=8448 max_len=65536)",
    .values = {{"page_table", scattered_page}, {"lengths", serving::cached_keys}},
    .bytes = [](const Case& c) {
      const int64_t rows = c["B"] * c["n"], keys = std::min(c["Q"] * c["page_size"], c["max_len"]);
      const int64_t element = c.params().contains("logits_dtype") && c.find("logits_dtype") &&
                                      std::get<std::string>(c.params().at("logits_dtype")) == "bf16"
                                  ? 2
                                  : 4;
      return c["B"] * keys * (c["D"] + 4) + rows * (c["h"] * (c["D"] + 4) + c["max_len"] * element);
    }};

}  // namespace tessera::kernels
