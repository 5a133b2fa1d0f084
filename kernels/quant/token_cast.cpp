#include "kernels/quant/token_cast.h"

#include <algorithm>
#include <numeric>

#include "kernels/alignment.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kMaxGroup = 1024 * 64;  // what the threads of a block hold of one row

int64_t round_up(int64_t a, int64_t b) {
  return num_blocks(a, b) * b;
}

}  // namespace

bool is_ordinary_group(int64_t group) {
  return group == 16 || group == 32 || group == 64 || group == 128;
}

TokenCastSpec spec_of(const TensorView& x, const TokenCast& call) {
  const TensorView rows = codes_view(x);
  TokenCastSpec s;
  s.in = rows.dtype;
  s.format = call.format;
  s.sf_layout = call.sf_layout;
  s.x_sf_layout = call.x_sf_layout;
  s.round_sf = call.round_sf;
  s.align = static_cast<uint8_t>(common_alignment({x}));
  s.stride_multiple =
      static_cast<int16_t>(std::gcd(x.shape[0] <= 1 ? 0 : rows.strides[0], int64_t{16}));
  s.hidden = static_cast<int32_t>(call.hidden);
  s.group = static_cast<int32_t>(call.group);
  s.block_rows = static_cast<int32_t>(call.block_rows);
  s.block_cols = static_cast<int32_t>(call.block_cols);
  return s;
}

TokenTile whole_row_tile(int64_t hidden, int64_t vector, int64_t most) {
  for (const int64_t threads : {128, 256, 512, 1024}) {
    const int64_t lanes = std::gcd(hidden / vector, threads);
    if (hidden % vector == 0 && hidden / lanes <= most) {
      return {threads / lanes, hidden, static_cast<int>(threads), hidden, 1};
    }
    const int64_t padded = round_up(hidden, threads * vector);
    if (padded / threads <= most) {
      return {1, padded, static_cast<int>(threads), padded, 1};
    }
  }
  return {1, hidden, 1024, hidden, 1};
}

TokenTile pick_token_tile(const TokenCastSpec& s, int64_t groups_together) {
  if (!is_ordinary_group(s.group)) return whole_row_tile(s.hidden, s.in == DType::f32 ? 4 : 8);
  constexpr int64_t kElements = 4096;
  const int64_t least = std::max<int64_t>(128, s.group * groups_together);
  int64_t cols = 1024;
  while (cols > least && round_up(s.hidden, cols) * 8 > s.hidden * int64_t{9}) cols /= 2;
  return {kElements / cols, cols, 128, s.group, cols / s.group};
}

TokenCast check_token_cast(ArgCheck& check, const Tensors& tensors, const Params& params) {
  check.tensor("x", tensors).dtype({DType::bf16, DType::f32}).shape("T", "H").rows();
  return check_cast_params(check, params);
}

TokenCast check_cast_params(ArgCheck& check, const Params& params) {
  TokenCast call;
  check.in_range("H", 0, INT32_MAX, ErrorKind::unsupported);
  call.hidden = check["H"];
  call.group = std::get<int64_t>(params.at("num_per_channels"));
  check.require(
      is_ordinary_group(call.group) || (call.group == call.hidden && call.hidden % 64 == 0),
      "num_per_channels", "parameter 'num_per_channels' is out of range",
      "16, 32, 64, 128 or H = " + std::to_string(call.hidden) + " where H is a multiple of 64",
      std::to_string(call.group));
  check.require(is_ordinary_group(call.group) || call.hidden <= kMaxGroup, "num_per_channels",
                "one scale for so many columns is not supported",
                "at most " + std::to_string(kMaxGroup), std::to_string(call.group),
                ErrorKind::unsupported);
  call.num_groups = num_blocks(call.hidden, call.group);
  check.bind("C", call.num_groups, "ceil(H / num_per_channels)");
  if (std::get<std::string>(params.at("format")) == "e2m1") {
    call.format = DType::e2m1;
    check.multiple_of("H", 2);
  }
  check_scale_params(check, params, call);
  return call;
}

void check_scale_params(const ArgCheck& check, const Params& params, TokenCast& call) {
  if (params.contains("sf_layout")) call.sf_layout = sf_layout_of(params, "sf_layout");
  if (params.contains("round_sf")) call.round_sf = std::get<bool>(params.at("round_sf"));
  check.require(call.sf_layout != SfLayout::packed_ue8m0 || call.round_sf, "sf_layout",
                "packed_ue8m0 scales are powers of two", "round_sf=true", "round_sf=false");
}

void check_codes_input(ArgCheck& check, const std::string& name, const Tensors& tensors) {
  const auto x = tensors.find(name);
  const bool pairs = x != tensors.end() && x->second.dtype == DType::i8;
  check.tensor(name, tensors).dtype({DType::e4m3, DType::i8}).shape("T", pairs ? "W" : "H").rows();
  if (!pairs) return;
  check.in_range("W", 0, INT32_MAX / 2, ErrorKind::unsupported);
  check.bind("H", check["W"] * 2, "2 * W, two e2m1 codes per byte", name);
}

OutputInfo codes_output(const std::string& name, DType format, const Dims& logical) {
  Dims shape = logical;
  if (format == DType::e2m1) shape[1] /= 2;
  return {name, format == DType::e2m1 ? DType::i8 : format, shape, row_major_strides(shape),
          num_elements(shape)};
}

void check_codes_output(ArgCheck& check, const std::string& name, const Tensors& tensors,
                        DType format) {
  if (format != DType::e2m1) {
    check.output(name, tensors).dtype(format).shape("T", "H").row_major().aligned(16);
    return;
  }
  check.bind("H/2", check["H"] / 2, "H / 2, two e2m1 codes per byte");
  check.output(name, tensors).dtype(DType::i8).shape("T", "H/2").row_major().aligned(16);
}

TensorView codes_view(const TensorView& codes) {
  if (codes.dtype != DType::i8) return codes;
  return {codes.data,
          DType::e2m1,
          {codes.shape[0], codes.shape[1] * 2},
          {codes.strides[0] * 2, codes.strides[1]},
          codes.device};
}

ParamInfo format_param() {
  return word("format", {"e4m3", "e2m1"});
}

ParamInfo group_param() {
  return integer("num_per_channels", {"16", "32", "64", "128", "H"});
}

BenchCase token_cast_case(int64_t tokens, int64_t hidden, DType in, DType format, int64_t group) {
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " H=" + std::to_string(hidden) + " " +
            std::string(name(in)) + " / " + std::to_string(group) +
            (format == DType::e2m1 ? " e2m1" : "");
  c.params = {{"format", std::string(name(format))}, {"num_per_channels", group}};
  c.inputs.push_back({"x", in, {tokens, hidden}});
  return c;
}

int64_t codes_bytes(int64_t tokens, int64_t hidden, DType format) {
  return tokens * hidden * bits(format) / 8;
}

int64_t scale_bytes(int64_t tokens, int64_t num_groups, SfLayout layout) {
  return tokens * (layout == SfLayout::packed_ue8m0 ? num_blocks(num_groups, 4) : num_groups) * 4;
}

}  // namespace tessera::kernels
