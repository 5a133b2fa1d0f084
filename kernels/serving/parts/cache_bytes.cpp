#include "kernels/serving/parts/cache_bytes.h"

#include <algorithm>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

constexpr int64_t kFewestCodes = 4;  // of an access

}  // namespace

CacheBytes::CacheBytes(Builder& k, CacheKind kind, const CacheAccess& access,
                       const std::string& prefix)
    : k_(k),
      kind_(kind),
      layout_(cache_layout(kind)),
      code_dtype_(code_dtype(layout_, access.is_raw)),
      scale_dtype_(access.is_raw ? DType::u32 : layout_.scale) {
  blocks_ = k.dim(prefix + "cache_blocks");
  const auto view = [&](const std::string& part, DType dtype, int64_t run) {
    const std::string name = prefix + part;
    const int64_t stride = std::max(layout_.stride_multiple, run * bits(dtype) / 8);
    const DimOptions apart{.multiple_of = 8 * stride / bits(dtype)};
    const Value columns = k.dim(name + "_columns", {.multiple_of = run});
    const TensorOptions options{.strides = {k.stride(name + "_stride", apart), 1},
                                .align = std::max<int64_t>(run * bits(dtype) / 8, 1),
                                .may_alias = access.is_output};
    return access.is_output ? k.output(name, dtype, {*blocks_, columns}, options)
                            : k.input(name, dtype, {*blocks_, columns}, options);
  };
  const int64_t codes =
      access.code_bytes > 0 ? 8 * access.code_bytes / bits(code_dtype_) : kFewestCodes;
  codes_ = view("cache", code_dtype_, codes);
  if (layout_.bf16_bytes() > 0) {
    rotated_ = view("cache_rotated", DType::bf16, access.bf16_bytes / bytes(DType::bf16));
  }
  if (layout_.scale_bytes > 0) scales_ = view("cache_scales", scale_dtype_, 1);
  page_size_ = k.scalar(prefix + "page_size", DType::i32);
}

CacheBytes::Slot CacheBytes::slot(const Value& location, const char* tensor) const {
  const bool is_plain = kind_.format == CacheFormat::bf16;
  auto block = k_.let("block", is_plain ? location : location / *page_size_);
  auto fits = k_.let("fits", block < *blocks_);
  if (tensor != nullptr) k_.report_unless(fits, out_of_range(tensor));
  auto offset = is_plain ? i32(0) : k_.let("offset", i32(location - block * *page_size_));
  return {k_.let("exists", location >= 0 && fits), i32(block), offset};
}

Ref CacheBytes::code(const Slot& slot, const Value& at) const {
  const auto first = i64(slot.offset) * (layout_.pitch() * 8 / bits(code_dtype_));
  return (*codes_)(slot.block, first + at).unchecked();
}

Ref CacheBytes::rotated(const Slot& slot, const Value& channel) const {
  const auto first = i64(slot.offset) * (layout_.pitch() / 2);
  return (*rotated_)(slot.block, first + (channel + (layout_.bf16_at() / 2 - layout_.coded)))
      .unchecked();
}

Ref CacheBytes::scale(const Slot& slot, const Value& at) const {
  const int64_t size = bytes(scale_dtype_);
  if (layout_.in_rows()) {
    const auto first = i64(slot.offset) * (layout_.pitch() / size);
    return (*scales_)(slot.block, first + (layout_.code_bytes() / size + at)).unchecked();
  }
  const auto first =
      layout_.pitch() / size * *page_size_ + layout_.scale_bytes / size * slot.offset;
  return (*scales_)(slot.block, first + at).unchecked();
}

Value CacheBytes::scale_value(const Value& stored) const {
  if (layout_.scale != DType::u8) return f32(stored);
  return reinterpret(DType::f32, cast(DType::u32, stored) << 23);
}

Value CacheBytes::scale_in_word(const Value& word, const Value& byte) const {
  if (layout_.scale == DType::f32) return reinterpret(DType::f32, word);
  const Value own = cast(DType::u8, word >> (8 * cast(DType::u32, byte)));
  return scale_value(layout_.scale == DType::u8 ? own : reinterpret(layout_.scale, own));
}

Value CacheBytes::value_of(const Value& code, const Value& scale) const {
  const Value product = f32(code) * scale;
  return kind_.format == CacheFormat::index_fp8 ? product : cast(DType::bf16, product);
}

Value CacheBytes::code_of_pair(const Value& pair, const Value& upper) const {
  // The exponent's bias is 126 less than a float's; the product also normalises 1/2.
  const Value both = cast(DType::u32, reinterpret(DType::u8, pair));
  const Value bits = both >> (4 * cast(DType::u32, upper));
  return reinterpret(DType::f32, (bits & 7u) << 22 | (bits & 8u) << 28) * 0x1p126f;
}

}  // namespace tessera::kernels::serving
