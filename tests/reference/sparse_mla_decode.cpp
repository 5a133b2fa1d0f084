// sparse_mla_decode by definition: the entries of both lists as rows, then one query row after another.

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <variant>

#include "tests/reference/attention_rows.h"
#include "tests/reference/cache_entry.h"
#include "tests/reference/mla.h"
#include "tests/reference/numeric.h"

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;
using Mistake = MlaMistake;

constexpr double kLog2E = 1.4426950408889634;
constexpr int64_t kBlock = 64, kValueWidth = 512;

template <class T>
T param(const Params& params, const std::string& name, T fallback) {
  const auto found = params.find(name);
  if (found == params.end() || std::holds_alternative<std::monostate>(found->second)) {
    return fallback;
  }
  return std::get<T>(found->second);
}

int64_t blocks_of(int64_t entries) {
  return (entries + kBlock - 1) / kBlock;
}

/// One list of the tokens of a call.
struct List {
  const HostTensor* cache = nullptr;
  const HostTensor* indices = nullptr;
  EntryOptions entry;
  std::string length;  // tensor
  int64_t width = 0;

  int64_t count() const { return indices == nullptr ? 0 : indices->shape()[2]; }
};

List list_of(const HostTensors& in, const Params& params, const std::string& prefix,
             Mistake mistake) {
  List list;
  list.width = in.at("q").shape()[3];
  list.length = prefix.empty() || mistake == Mistake::one_length ? "topk_length" : "extra_length";
  if (!in.contains(prefix + "cache")) return list;
  list.cache = &in.at((mistake == Mistake::first_cache ? "" : prefix) + "cache");
  list.indices = &in.at(prefix + "indices");
  const auto format = param<std::string>(params, "format", "");
  const std::string own = param<std::string>(params, prefix + "format", "none");
  list.entry.format = own == "none" || mistake == Mistake::first_cache ? format : own;
  const std::string pages = mistake == Mistake::one_page_size ? "" : prefix;
  list.entry.page_size = param<int64_t>(params, pages + "page_size", 64);
  list.entry.in_rows = (param<std::string>(params, "cache_order", "planes") == "rows") !=
                       (mistake == Mistake::other_order);
  return list;
}

/// The row of entry j of a token; nothing for one that is none.
std::optional<std::vector<float>> row_of(const List& list, int64_t token, int64_t j,
                                         Mistake mistake) {
  const auto slot = static_cast<int64_t>(list.indices->value(token * list.count() + j));
  const int64_t slots = list.cache->shape()[0] * list.entry.page_size;
  if (slot < 0 || slot >= slots) return std::nullopt;
  std::vector<float> values = load_entry(*list.cache, slot, list.width, list.entry);
  if (mistake == Mistake::exchanges_nibbles && list.entry.format.ends_with("fp4")) {
    for (size_t i = 0; i < values.size(); i += 2) std::swap(values[i], values[i + 1]);
  }
  return values;
}

/// Entries of a token as numbers, in their places.
class Entries {
 public:
  void add(const List& list, int64_t token, int64_t length, Mistake mistake) {
    for (int64_t j = 0; j < list.count(); ++j) {
      auto row = j < length ? row_of(list, token, j, mistake) : std::nullopt;
      if (!row && j < length && mistake == Mistake::missing_page) {
        row = std::vector<float>(static_cast<size_t>(list.width), 0);
      }
      std::vector<Number> numbers;
      for (const float value : row.value_or(std::vector<float>())) {
        numbers.push_back(number_of(DType::bf16, encode(DType::bf16, static_cast<double>(value))));
      }
      rows_.push_back(std::move(numbers));
    }
  }
  void pad() { rows_.resize(static_cast<size_t>(blocks_of(std::ssize(rows_)) * kBlock)); }

  std::vector<const Number*> pointers() const {
    std::vector<const Number*> entries;
    for (const auto& row : rows_) entries.push_back(row.empty() ? nullptr : row.data());
    return entries;
  }

 private:
  std::vector<std::vector<Number>> rows_;  // empty: none
};

}  // namespace

HostTensor chosen_rows(const HostTensors& in, const Params& params, const std::string& prefix) {
  const List list = list_of(in, params, prefix, Mistake::none);
  const int64_t rows = list.indices->size();
  HostTensor made(DType::bf16, {rows, list.width});
  for (int64_t i = 0; i < rows; ++i) {
    const auto row = row_of(list, i / list.count(), i % list.count(), Mistake::none);
    for (int64_t d = 0; d < list.width; ++d) {
      const float value = row ? (*row)[static_cast<size_t>(d)] : 0.0F;
      made.set_bits(i * list.width + d, encode(DType::bf16, static_cast<double>(value)));
    }
  }
  return made;
}

HostTensors sparse_mla_decode(const HostTensors& in, const Params& params, Mistake mistake) {
  const HostTensor& q = in.at("q");
  const int64_t requests = q.shape()[0], tokens = q.shape()[1], heads = q.shape()[2],
                width = q.shape()[3];
  const List first =
                 list_of(in, params, "", mistake == Mistake::other_order ? mistake : Mistake::none),
             second = list_of(in, params, "extra_", mistake);
  const auto c = static_cast<float>(std::get<double>(params.at("sm_scale")) * kLog2E);
  const int64_t splits = param<int64_t>(params, "num_splits", 1);
  const int64_t blocks = blocks_of(first.count()) + blocks_of(second.count());
  const int64_t part_len = std::max<int64_t>((blocks + splits - 1) / splits, 1) * kBlock;
  const bool is_f32 = param<std::string>(params, "out_dtype", "bf16") == "f32";
  const std::vector<Number> queries = numbers_of(q);
  HostTensor out(is_f32 ? DType::f32 : DType::bf16, {requests, tokens, heads, kValueWidth});
  HostTensor lse(DType::f32, {requests, heads, tokens});
  for (int64_t token = 0; token < requests * tokens; ++token) {
    const int64_t request = mistake == Mistake::length_of_token ? token % requests : token / tokens;
    Entries of_token;
    for (const List* list : {&first, &second}) {
      if (list == &second && mistake == Mistake::forgets_second) continue;
      int64_t length = length_of(in, list->length.c_str(), request, list->count());
      if (mistake == Mistake::behind_length) length = std::min(length + 1, list->count());
      of_token.add(*list, token, length, mistake);
      if (mistake != Mistake::unpadded) of_token.pad();
    }
    of_token.pad();
    const std::vector<const Number*> entries = of_token.pointers();
    const auto places = std::ssize(entries);
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t row = token * heads + head;
      std::optional<float> scale, sink;
      if (in.contains("q_scale")) {
        const int64_t at = mistake == Mistake::first_scale ? token * heads : row;
        scale = static_cast<float>(in.at("q_scale").value(at));
      }
      if (in.contains("attn_sink")) sink = static_cast<float>(in.at("attn_sink").value(head));
      std::vector<MlaPart> parts;
      for (int64_t at = 0; at == 0 || at < places; at += part_len) {
        const auto of_part = std::span(entries).subspan(
            static_cast<size_t>(at), static_cast<size_t>(std::min(part_len, places - at)));
        parts.push_back(mla_part(&queries[static_cast<size_t>(row * width)], width, of_part,
                                 scale ? c * *scale : c, mistake));
        if (mistake == Mistake::sink_per_part && sink) {
          parts.back().l += exp2_of(std::fma(*sink, static_cast<float>(kLog2E), -parts.back().ms));
        }
      }
      MlaRow result = mla_combined(std::move(parts), sink ? &*sink : nullptr, mistake);
      if (scale && !(std::isfinite(*scale) && *scale > 0)) {
        const float nan = std::numeric_limits<float>::quiet_NaN();
        result = {std::vector<float>(kValueWidth, nan), nan};
      }
      for (int64_t d = 0; d < kValueWidth; ++d) {
        const auto value = static_cast<double>(result.out[static_cast<size_t>(d)]);
        out.set_bits(row * kValueWidth + d, encode(out.dtype(), value));
      }
      const int64_t at = (token / tokens * heads + head) * tokens + token % tokens;
      lse.set_value(at, static_cast<double>(result.lse));
    }
  }
  return {{"out", std::move(out)}, {"lse", std::move(lse)}};
}

}  // namespace tessera::reference
