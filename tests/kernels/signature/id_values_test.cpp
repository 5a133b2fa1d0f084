// Ids that nothing has: every op with an integer input refuses them by name, or says what they mean.

#include <fmt/format.h>

#include <limits>
#include <set>

#include "kernels/op.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/table.h"
#include "tests/support/catch.h"
#include "tests/support/ops/bench_inputs.h"
#include "tests/support/ops/op_errors.h"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int64_t kBeyond = std::numeric_limits<int32_t>::max(), kBelow = -2;

/// Values that an op takes, by its page: any negative id is padding, or the number is no id.
bool is_taken(const std::string& op, const std::string& tensor, int64_t value) {
  static const std::set<std::string> negatives = {
      "compress_plan page_table",
      "compress_plan_decode page_table",
      "gather_pages indices",
      "gather_pages page_table",
      "hisparse_replay miss_list",
      "inplace_unique_group_indices group_indices",
      "kv_load loc",
      "kv_norm_rope_store loc",
      "kv_store loc",
      "moe_topk_gate_bwd topk_idx",
      "per_channel_cast_fused pos_to_token",
      "serving_plan page_table",
      "slot_plan c128_pages",
      "slot_plan c4_pages",
      "slot_plan window_pages",
      "swiglu_backward_and_per_token_cast pos_to_token_topk",
      "swiglu_backward_and_per_token_cast token_topk_to_pos",
      "swiglu_forward_and_per_token_cast pos_to_token_topk",
      "top2_sum_gate to_physical_map",
      "topk_select page_table",
  };
  static const std::set<std::string> large = {
      "compress_plan_decode positions",  // a request may be as long
      "engram_hash vocab_sizes",
      "expand_to_fused pos_to_expert",  // the ops do not know how many experts there are
      "expand_to_fused_with_sf pos_to_expert",
      "paged_lengths lengths",
  };
  static const std::set<std::string> all = {
      "combine_reduce num_tokens",  // cut, as in all ops that take it
      "engram_embed multipliers",
      "engram_embed ngram_token_ids",
      "engram_ngram_ids history",
      "engram_ngram_ids token_ids",
      "engram_hash multipliers",
      "engram_hash ngram_token_ids",
      "engram_hash offsets",
      "engram_make_offsets vocab_sizes",
      "hash_gate num_tokens",
      "hisparse_backup num_reqs",
      "hisparse_swap_in hot_tokens",  // a slot may hold what nobody wants
      "hisparse_swap_in num_reqs",
      "mask_indices_by_tp indices",
      "mqa_topk page_table",  // scores decide which pages are looked up: one too large gives -1
      "paged_mqa_topk out_page_table",
      "sparse_mla_fwd indices",  // one that no key has is none
      "sparse_mla_decode indices",
      "sparse_mla_decode extra_indices",
      "sparse_mqa_logits blocks",  // -inf where there is no key
      "sparse_mqa_topk blocks",
      "sparse_mqa_topk out_page_table",
      "mask_padded_topk num_tokens",
      "mask_padded_topk topk_idx",
      "moe_forward num_tokens",
      "moe_gate num_tokens",
      "moe_gate to_physical_map",
      "moe_gate unmapped_topk_idx",
      "moe_plan num_tokens",
      "moe_topk_gate_fwd to_physical_map",    // any expert of any rank
      "moe_topk_gate_fwd unmapped_topk_idx",  // read where fix_routing_mask says so
      "norm_fwd_and_per_token_cast mega_moe_sf",
      "swiglu_forward_and_per_token_cast clamped_count",
      "swiglu_fwd clamped_count",
      "swiglu_forward_and_per_token_cast pos_to_expert",
      "top2_sum_gate unmapped_topk_idx",  // read where fix_routing_mask says so
  };
  const std::string name = op + " " + tensor;
  return all.contains(name) || (value < 0 ? negatives : large).contains(name);
}

/// The error of an example with all elements of one tensor set to a value.
std::string told_with(const kernels::OpInfo& op, const kernels::BenchCase& example,
                      const std::string& tensor, int64_t value) {
  OpCase test = case_of(example);
  HostTensor& ids = test.inputs.at(tensor);
  for (int64_t i = 0; i < ids.size(); ++i) ids.set_value(i, static_cast<double>(value));
  kernels::Tensors views;
  for (const auto& [name, input] : test.inputs) views[name] = input.view();
  for (const kernels::OutputInfo& info :
       op.outputs(views, kernels::check_params(op, test.params))) {
    test.inputs.try_emplace(info.name, info.dtype, info.shape, info.strides, info.storage_elements);
  }
  for (const auto& [name, input] : test.inputs) views[name] = input.view();
  return run_error(op.name, views, test.params);
}

}  // namespace

TEST_CASE("an id that nothing has is refused by every op that takes ids, with its argument",
          "[signature][values][slow]") {
  for (const kernels::Op* op : kernels::all_ops()) {
    const kernels::OpInfo& info = kernels::find_op(std::string(op->name));
    std::set<std::string> seen;
    for (const kernels::BenchCase& example : info.examples) {
      for (const kernels::BenchCase::Input& input : example.inputs) {
        const bool is_integer = input.dtype == DType::i32 || input.dtype == DType::i64;
        const kernels::TensorRule* rule = kernels::parsed(*op).signature.find_tensor(input.name);
        if (!is_integer || rule == nullptr || rule->scales) continue;
        if (input.name == "x_sf" || input.name == "a_sf") continue;  // exponents
        if (!seen.insert(input.name).second) continue;
        for (const int64_t value : {kBeyond, kBelow}) {
          if (is_taken(info.name, input.name, value)) continue;
          const std::string text = told_with(info, example, input.name, value);
          CAPTURE(info.name, input.name, value, text);
          CHECK(text.starts_with(fmt::format("tessera: {}: ", info.name)));
          CHECK(text.find(fmt::format("'{}'", input.name)) != std::string::npos);
          CHECK(text.find("\n  expected  ") != std::string::npos);
          const size_t got = text.find("\n  got       ");
          REQUIRE(got != std::string::npos);
          CHECK(text.find(fmt::format("{}", value), got) != std::string::npos);
        }
      }
    }
  }
}
