#include "tests/tools/fake_op.h"

#include "kernels/checks/arg_check.h"

namespace tessera::tests {
namespace {

using kernels::OutputInfo;
using kernels::ParamInfo;
using kernels::Params;
using kernels::ParamValue;
using kernels::Role;
using kernels::Tensors;

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  kernels::ArgCheck check("fake_add");
  check.tensor("x", inputs).dtype(DType::u8).shape("T", "H").rows();
  check.optional("bias", inputs).dtype(DType::u8).shape(1);
  check.optional("total", inputs).dtype(DType::i64).shape(1);
  const int64_t tokens = check["T"], hidden = check["H"];
  OutputInfo out{"out", DType::u8, {tokens, hidden}, {hidden, 1}, tokens * hidden};
  OutputInfo sf{"out_sf", DType::f32, {tokens, 1}, {1, 1}, tokens};
  if (std::get<std::string>(params.at("sf_layout")) == "col_major_tma") {
    sf.strides = {1, (tokens + 3) / 4 * 4};
    sf.storage_elements = sf.strides[1];
  }
  return {out, sf};
}

void run(const Tensors& tensors, const Params& params, kernels::Stream) {
  outputs(tensors, params);
  const TensorView& x = tensors.at("x");
  const TensorView& out = tensors.at("out");
  const TensorView& sf = tensors.at("out_sf");
  const auto bias = tensors.find("bias");
  int64_t amount = std::get<int64_t>(params.at("amount"));
  if (bias != tensors.end()) amount += *static_cast<const uint8_t*>(bias->second.data);
  for (int64_t t = 0; t < x.shape[0]; ++t) {
    for (int64_t h = 0; h < x.shape[1]; ++h) {
      const uint8_t value =
          static_cast<const uint8_t*>(x.data)[t * x.strides[0] + h * x.strides[1]];
      static_cast<uint8_t*>(out.data)[t * out.strides[0] + h] =
          static_cast<uint8_t>(value + amount);
    }
    static_cast<float*>(sf.data)[t * sf.strides[0]] = static_cast<float>(t);
  }
  const auto total = tensors.find("total");
  if (total != tensors.end()) *static_cast<int64_t*>(total->second.data) += x.size();
}

}  // namespace

kernels::OpInfo fake_op() {
  kernels::OpInfo op;
  op.name = "fake_add";
  op.family = "fake";
  op.purpose = "adds a number to every byte";
  op.tensors = {
      {"x", Role::in, false, false, false, {"u8"}, {"T", "H"}, "rows", {}},
      {"bias", Role::in, true, false, false, {"u8"}, {"1"}, "row_major", {}},
      {"out", Role::out, false, false, false, {"as x"}, {"T", "H"}, "row_major", {}},
      {"out_sf", Role::out, false, false, false, {"f32"}, {"T", "1"}, "SF(1,H) sf_layout", {}},
      {"total", Role::inout, true, true, false, {"i64"}, {"1"}, "row_major", {}},
  };
  kernels::ParamInfo block = kernels::tuple("block", ParamValue());
  block.min = 1;
  op.params = {kernels::count("amount", "0..9", {}, 0),
               kernels::integer("group", {"16", "32", "H"}, 16),
               kernels::word("sf_layout", {"row_major", "col_major_tma"}, "row_major"), block};
  op.outputs = outputs;
  op.run = run;
  kernels::BenchCase example;
  example.label = "T=3 H=5";
  example.params = {{"amount", ParamValue(int64_t{2})}};
  example.inputs = {{"x", DType::u8, {3, 5}, {8, 1}}};
  op.examples = {example};
  return op;
}

}  // namespace tessera::tests
