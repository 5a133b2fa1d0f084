// Zero tokens, requests, windows and entries are ordinary in every op: a step of a server with nothing to do.
// Empty tensors have a null address here, as in torch.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <sstream>

#include "kernels/op.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/table.h"
#include "tests/support/catch.h"
#include "tests/support/ops/op_cases.h"

using namespace tessera;
using namespace tessera::test;

namespace {

/// Extents that count what a step has; the others are sizes of a model, or of the pools and tables of a server.
bool is_count(const kernels::Op& op, const std::string& symbol) {
  static const std::set<std::string> everywhere = {
      "T", "P", "B", "Y", "Mmax",
  };
  static const std::set<std::string> of_one = {
      "batched_transpose C",
      "batched_transpose R",
      "compress_fwd C",
      "compress_fwd N",
      "compress_prefill C",
      "compress_prefill N",
      "compress_store C",
      "compress_store N",
      "compress_state_write N",
      "engram_sinkhorn_finalize R",
      "engram_sinkhorn_momentum n",
      "engram_sinkhorn_step R",
      "gather_pages R",
      "gather_pages k",
      "gemm_bf16 M",
      "gemm_fp8_block M",
      "gemm_fp8_grouped M",
      "gemm_fp8_k_grouped K",
      "gemm_mxfp4 M",
      "gemm_mxfp4_grouped M",
      "hisparse_replay N",
      "hisparse_swap_in k",
      "hisparse_swap_in n",
      "topk_select L",
      "transpose C",
      "transpose R",
      "attention_fwd Sq",
      "attention_fwd Sk",
      "attention_bwd Sq",
      "attention_bwd Sk",
      "attention_varlen_fwd Tq",
      "attention_decode n",
      "attention_varlen_fwd Tk",
      "mla_decode n",
      "mla_combine R",
      "mla_combine Z",
      "sparse_mla_fwd S",
      "sparse_mla_fwd k",
      "sparse_mla_decode n",
      "sparse_mla_decode k",
      "sparse_mla_decode k2",
      "causal_conv1d_fwd S",
      "gated_delta_fwd S",
  };
  if (symbol == "B" && op.name.starts_with("sparse_mqa")) return false;  // S is a multiple of it
  return everywhere.contains(symbol) || of_one.contains(fmt::format("{} {}", op.name, symbol));
}

/// The symbols of the inputs that a case can set.
std::set<std::string> symbols_of(const kernels::Signature& signature) {
  std::set<std::string> symbols;
  for (const kernels::TensorRule& rule : signature.tensors) {
    if (!rule.is_input()) continue;
    for (const kernels::Expression& extent : rule.shape) {
      for (const std::string& name : extent.names()) {
        if (!name.ends_with("()") && signature.find_param(name) == nullptr) symbols.insert(name);
      }
    }
  }
  return symbols;
}

/// A case with some words set to 0.
std::string emptied(const std::string& label, const std::set<std::string>& symbols) {
  std::vector<std::string> words;
  std::istringstream text(label);
  for (std::string word; text >> word;) {
    if (!symbols.contains(word.substr(0, word.find('=')))) words.push_back(word);
  }
  for (const std::string& symbol : symbols) words.push_back(symbol + "=0");
  return fmt::format("{}", fmt::join(words, " "));
}

/// Integers of a step that does nothing: ids -1, counts and ends 0.
double idle_integer(const std::string& tensor) {
  static const std::set<std::string> zero = {
      "lengths",    "starts",      "start",     "row_start", "num_tokens",
      "masked_m",   "k_offsets",   "q_lengths", "k_lengths", "cu_q",
      "cu_k",       "psum",        "num_reqs",  "offsets",   "cu_seqlens",
      "miss_count", "topk_length", "k_start",   "k_end",     "extra_length"};
  static const std::set<std::string> one = {"vocab_sizes", "logical_count"};
  return one.contains(tensor) ? 1 : zero.contains(tensor) ? 0 : -1;
}

OpCase idle_case(const kernels::OpInfo& op, const std::string& text) {
  const kernels::BenchCase made = op.case_of(text);
  OpCase test;
  test.label = text;
  test.params = made.params;
  test.tolerance = Tolerance{1e-3, 1e-3};
  for (const kernels::BenchCase::Input& input : made.inputs) {
    HostTensor tensor = input.strides.rank == 0
                            ? HostTensor(input.dtype, input.shape)
                            : HostTensor(input.dtype, input.shape, input.strides);
    const bool is_integer = input.dtype == DType::i32 || input.dtype == DType::i64;
    for (int64_t i = 0; i < tensor.size(); ++i) {
      tensor.set_value(i, is_integer ? idle_integer(input.name) : 1);
    }
    test.inputs[input.name] = std::move(tensor);
  }
  kernels::Tensors views;
  for (const auto& [name, tensor] : test.inputs) views[name] = tensor.view();
  for (const kernels::OutputInfo& info :
       op.outputs(views, kernels::check_params(op, test.params))) {
    if (!info.starts_at_zero || test.inputs.contains(info.name)) continue;
    test.inputs[info.name] = HostTensor(info.dtype, info.shape);
    test.inputs[info.name].fill_bytes(std::byte{0});
  }
  return test;
}

/// Runs on the executor with null addresses for all that is empty.
HostTensors run_from_null(const kernels::OpInfo& op, const HostTensors& inputs,
                          const kernels::Params& given) {
  const kernels::Params params = kernels::check_params(op, given);
  kernels::Tensors views;
  HostTensors memory = inputs;
  const auto view_of = [](const HostTensor& tensor) {
    TensorView view = tensor.view();
    if (view.size() == 0) view.data = nullptr;
    return view;
  };
  for (const auto& [name, tensor] : memory) views[name] = view_of(tensor);
  for (const kernels::OutputInfo& info : op.outputs(views, params)) {
    if (memory.contains(info.name)) continue;
    memory.try_emplace(info.name, info.dtype, info.shape, info.strides, info.storage_elements);
    views[info.name] = view_of(memory.at(info.name));
  }
  op.run(views, params, nullptr);
  if (op.trim) op.trim(views, params, nullptr);
  HostTensors outputs;
  for (const kernels::TensorInfo& info : op.tensors) {
    for (auto& [name, tensor] : memory) {
      const bool is_it = info.list ? name.starts_with(info.name + ".") : name == info.name;
      if (!is_it || info.role == kernels::Role::in) continue;
      if (views.at(name).shape != tensor.shape()) {
        tensor = HostTensor(tensor.dtype(), views.at(name).shape);
      }
      outputs[name] = tensor;
    }
  }
  return outputs;
}

/// The first example that names a symbol, else the first.
const std::string& example_with(const kernels::OpInfo& op, const std::string& symbol) {
  for (const kernels::BenchCase& example : op.examples) {
    if (example.label.find(" " + symbol + "=") != std::string::npos) return example.label;
  }
  return op.examples.front().label;
}

void check_idle(const kernels::OpInfo& op, const std::set<std::string>& symbols) {
  const std::string text = emptied(example_with(op, *symbols.begin()), symbols);
  CAPTURE(op.name, text);
  std::string told = "no error";
  try {
    const OpCase test = idle_case(op, text);
    const Comparison same = compare_with_reference(
        op.name, test, [&](const HostTensors& inputs, const kernels::Params& params) {
          return run_from_null(op, inputs, params);
        });
    CHECK(same.report == "");
  } catch (const Error& error) {
    told = error.what();
  }
  CHECK(told == "no error");
}

}  // namespace

TEST_CASE("a step without tokens, requests or entries is an ordinary call of every op",
          "[signature][slow]") {
  const std::set<std::string> of_weights = {"engram_make_offsets", "fused_weight", "grad_w_reduce",
                                            "mxfp4_prepack", "mxfp4_decode"};
  for (const kernels::Op* op : kernels::all_ops()) {
    const kernels::OpInfo& info = kernels::find_op(std::string(op->name));
    std::set<std::string> counts;
    for (const std::string& symbol : symbols_of(kernels::parsed(*op).signature)) {
      if (is_count(*op, symbol)) counts.insert(symbol);
    }
    if (info.name == "round_to_tf32" || info.name == "cast" ||
        info.name == "unpack_from_e2m1fn_x2" || info.name == "batched_transpose_weight_sf") {
      counts.insert("T");
    }
    CAPTURE(info.name);
    CHECK(counts.empty() == of_weights.contains(info.name));
    for (const std::string& symbol : counts) check_idle(info, {symbol});
    if (counts.size() > 1) check_idle(info, counts);
  }
}
