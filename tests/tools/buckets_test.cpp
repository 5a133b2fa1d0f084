// A number of tokens that no call has had needs no new kernel, unless it lies in another bucket of the
// signature.

#include "kernels/signature/buckets.h"

#include <algorithm>
#include <set>

#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/table.h"
#include "tests/support/catch.h"
#include "tools/lib/images/bundle_maker.h"

namespace tessera::kernels {
namespace {

std::set<std::string> specs_of(const OpInfo& info, const ParsedOp& op, const std::string& text) {
  std::set<std::string> specs;
  for (const runtime::KernelRequest& request :
       tools::requests_of(info, Case(op, text).bench_case(), {9, 0, 'a'})) {
    specs.insert(request.spec.value_or(""));
  }
  return specs;
}

/// The case with another number of tokens; empty if it has none.
std::string with_tokens(const std::string& text, int64_t tokens) {
  for (const char* symbol : {"T=", "P="}) {
    const size_t at = text.rfind(symbol, 0) == 0 ? 0 : text.find(std::string(" ") + symbol);
    if (at == std::string::npos) continue;
    const size_t value = text.find('=', at) + 1;
    const size_t end = std::min(text.find(' ', value), text.size());
    return text.substr(0, value) + std::to_string(tokens) + text.substr(end);
  }
  return {};
}

bool has_tokens(const TensorRule& rule) {
  return !rule.shape.empty() && (rule.shape[0].text() == "T" || rule.shape[0].text() == "P");
}

TEST_CASE("the cases of the buckets begin where they do", "[signature][buckets]") {
  const ParsedOp& norm = parsed(norm_fn_fwd_op);
  CHECK(cases_of_buckets(norm, "T=13 n=4 H=1280") ==
        std::vector<std::string>{"T=0 n=4 H=1280", "T=1 n=4 H=1280", "T=129 n=4 H=1280",
                                 "T=513 n=4 H=1280"});
  const ParsedOp& mapping = parsed(get_fused_mapping_op);
  CHECK(cases_of_buckets(mapping, "T=9 K=6 num_experts=9 alignment=1") ==
        std::vector<std::string>{
            "T=0 K=6 num_experts=9 alignment=1", "T=1 K=6 num_experts=9 alignment=1",
            "T=342 K=6 num_experts=9 alignment=1", "T=10923 K=6 num_experts=9 alignment=1"});
  CHECK(cases_of_buckets(parsed(post_fwd_op), "T=5 n=4 H=7168") ==
        std::vector<std::string>{"T=0 n=4 H=7168"});
  CHECK(cases_of_buckets(parsed(expand_to_fused_op), "T=37 K=8 E=9 entries=97 H=7168 x=bf16") ==
        std::vector<std::string>{"T=37 K=8 E=9 entries=97 H=7168 x=bf16 P=0",
                                 "T=0 K=8 E=9 entries=97 H=7168 x=bf16"});
  CHECK(cases_of_buckets(parsed(transpose_op), "R=5 C=7").empty());
}

TEST_CASE("after the cases of the buckets no number of tokens needs another kernel",
          "[signature][buckets][slow]") {
  for (const Op* op : all_ops()) {
    if (op->family == "transpose") continue;  // matrices without tokens
    if (op->name == "cast") continue;         // a tensor whose elements are T
    // T are keys, whose number decides by how many blocks topk_select reads a row.
    if (op->name == "mqa_topk" || op->name == "mqa_topk_blocks") continue;
    const ParsedOp& of_op = parsed(*op);
    const OpInfo& info = find_op(std::string(op->name));
    for (const std::string& text : case_lines(op->examples)) {
      if (text.find("mega_moe_sf=") != std::string::npos) continue;  // R has to grow with T
      if (with_tokens(text, 1).empty()) {
        CHECK(std::none_of(of_op.signature.tensors.begin(), of_op.signature.tensors.end(),
                           [](const TensorRule& rule) { return has_tokens(rule); }));
        continue;
      }
      std::set<std::string> warm = specs_of(info, of_op, text);
      for (const std::string& other : cases_of_buckets(of_op, text)) {
        warm.merge(specs_of(info, of_op, other));
      }
      const bool by_128 = op->name.find("per_channel_cast") != std::string::npos;  // whole runs
      for (int64_t n = 0; n <= int64_t{1} << 20; n = n * 3 / 2 + 1) {
        const int64_t tokens = by_128 ? (n + 127) / 128 * 128 : n;
        CAPTURE(op->name, text, tokens);
        for (const std::string& spec : specs_of(info, of_op, with_tokens(text, tokens))) {
          CHECK(warm.contains(spec));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
