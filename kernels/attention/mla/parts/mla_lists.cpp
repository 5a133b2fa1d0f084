#include "kernels/attention/mla/parts/mla_lists.h"

#include "kernels/checks/value_check.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Ref;
using dsl::Value;

constexpr auto kI32 = DType::i32;

Value length_of(dsl::Builder& k, const std::optional<Ref>& lengths, const Value& most,
                const Value& request, const char* reported) {
  if (!lengths) return most;
  Value given = (*lengths)(request);
  if (reported != nullptr) k.report_unless(given >= 0 && given <= most, out_of_range(reported));
  return k.let("length_of_list", min(max(given, 0), most));
}

}  // namespace

Value ListLengths::first(dsl::Builder& k, const Value& request, bool reports) const {
  return length_of(k, lengths, columns, request, reports ? "topk_length" : nullptr);
}

Value ListLengths::second(dsl::Builder& k, const Value& request, bool reports) const {
  return length_of(k, extra_lengths, *extra_columns, request, reports ? "extra_length" : nullptr);
}

Value ListLengths::places(dsl::Builder& k, const Value& request, bool reports) const {
  const Value of_first = first(k, request, reports);
  if (!extra_columns) return of_first;
  const Value of_second = second(k, request, reports);
  const Value padded = first_blocks() * kLatentKeys;
  return k.let("places", select(of_second > 0, padded + of_second, of_first));
}

Value ListLengths::most_places() const {
  return extra_columns ? first_blocks() * kLatentKeys + *extra_columns : columns;
}

MlaLists::MlaLists(PagedTensors& t, const MlaSpec& s)
    : cache(t.k, s.listed,
            {.is_raw = true, .code_bytes = s.code_bytes, .bf16_bytes = s.code_bytes}),
      lengths{t.columns, t.lengths, std::nullopt, std::nullopt} {
  if (s.extra.format == serving::CacheFormat::none) return;
  dsl::Builder& k = t.k;
  const serving::CacheAccess access{
      .is_raw = true, .code_bytes = s.extra_code_bytes, .bf16_bytes = s.extra_code_bytes};
  extra_cache.emplace(k, s.extra, access, "extra_");
  lengths.extra_columns = k.dim("extra_columns");
  const Value of_request = k.stride("extra_of_request"), of_token = k.stride("extra_of_token");
  extra_indices = k.input("extra_indices", kI32, {t.batch, t.tokens, *lengths.extra_columns},
                          {.strides = {of_request, of_token, 1}, .align = 4});
  if (s.has_extra_lengths != 0) {
    lengths.extra_lengths = k.input("extra_length", kI32, {t.batch}, {.align = 4});
  }
}

}  // namespace tessera::kernels::attention
