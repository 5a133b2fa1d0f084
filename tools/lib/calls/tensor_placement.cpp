#include "tools/lib/calls/tensor_placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "dsl/base/error.h"
#include "dsl/base/nearest_name.h"

namespace tessera::tools {
namespace {

constexpr std::string_view kStrides = "strides.";  // of keys of the metadata

[[noreturn]] void fail(const kernels::OpInfo& op, const std::string& tensor, std::string expected,
                       std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .op = op.name,
               .what = fmt::format("argument '{}' has the wrong strides", tensor),
               .argument = tensor,
               .expected = std::move(expected),
               .got = std::move(got)});
}

/// The word of the layout parameter of a scale tensor ("SF(1,num_per_channels) sf_layout"); empty
/// for other tensors.
std::string scale_layout(const kernels::OpInfo& op, const std::string& tensor,
                         const kernels::Params& params) {
  for (const kernels::TensorInfo& info : op.tensors) {
    if (info.name != tensor || !info.layout.starts_with("SF(")) continue;
    const size_t space = info.layout.rfind(") ");
    if (space == std::string::npos) return "row_major";
    const auto param = params.find(info.layout.substr(space + 2));
    if (param == params.end()) return "row_major";
    const auto* word = std::get_if<std::string>(&param->second);
    return word == nullptr ? "row_major" : *word;
  }
  return {};
}

bool is_column_major(const std::string& layout) {
  return layout == "col_major_tma" || layout == "packed_ue8m0";
}

/// Rows of column-major scales are padded to a multiple of four, so that columns start at 16 bytes.
int64_t padded_rows(int64_t rows) {
  return (rows + 3) / 4 * 4;
}

Dims parse_strides(const kernels::OpInfo& op, const std::string& tensor, const Dims& shape,
                   const std::string& text) {
  const auto refuse = [&] {
    fail(
        op, tensor,
        fmt::format("{} strides, such as {}", shape.rank, fmt::join(row_major_strides(shape), ",")),
        fmt::format("'{}'", text));
  };
  Dims strides;
  if (shape.rank == 0 && text.empty()) return strides;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (true) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 0 || strides.rank == shape.rank) refuse();
    strides.push_back(value);
    if (next == end) break;
    if (*next != ',') refuse();
    at = next + 1;
  }
  if (strides.rank != shape.rank) refuse();
  return strides;
}

/// Elements from the first to one past the last. Refuses overflow and overlap.
int64_t checked_span(const kernels::OpInfo& op, const std::string& tensor, DType dtype,
                     const Dims& shape, const Dims& strides) {
  if (num_elements(shape) == 0) return 0;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, extent
  for (int i = 0; i < shape.rank; ++i) {
    if (shape[i] > 1) dims.emplace_back(strides[i], shape[i]);
  }
  std::sort(dims.begin(), dims.end());
  const std::string got = fmt::format("shape {}, strides {}", to_string(shape), to_string(strides));
  int64_t span = 1;
  for (const auto& [stride, extent] : dims) {
    if (stride < span) fail(op, tensor, "strides that do not overlap", got);
    int64_t reach = 0;
    if (__builtin_mul_overflow(stride, extent - 1, &reach) ||
        __builtin_add_overflow(span, reach, &span) || span > INT64_MAX / (2 * bytes(dtype))) {
      fail(op, tensor, "less than 2^62 bytes", got);
    }
  }
  return span;
}

void check_scale_strides(const kernels::OpInfo& op, const std::string& tensor,
                         const std::string& layout, const Dims& shape, const Dims& strides) {
  if (shape.rank != 2 || num_elements(shape) == 0) return;  // the op reports a wrong rank
  const int unit = is_column_major(layout) ? 0 : 1;
  const int other = 1 - unit;
  const bool unit_fits = shape[unit] == 1 || strides[unit] == 1;
  const bool other_fits = shape[other] == 1 || strides[other] >= shape[unit];
  if (unit_fits && other_fits) return;
  fail(op, tensor,
       unit == 0 ? fmt::format("strides 1,{} or a wider column ({})", padded_rows(shape[0]), layout)
                 : fmt::format("strides {},1 or a wider row ({})", shape[1], layout),
       fmt::format("strides {}", fmt::join(strides, ",")));
}

/// Calls fn(logical offset, storage offset, count) for each run of the innermost dimension, in
/// elements.
template <class Fn>
void for_each_row(const Dims& shape, const Dims& strides, const Fn& fn) {
  const int last = shape.rank - 1;
  const int64_t row = shape.rank == 0 ? 1 : shape[last];
  const int64_t rows = row == 0 ? 0 : num_elements(shape) / row;
  Dims index = shape;
  std::fill(index.values.begin(), index.values.end(), 0);
  int64_t offset = 0;
  for (int64_t r = 0; r < rows; ++r) {
    fn(r * row, offset, row);
    for (int d = last - 1; d >= 0; --d) {  // count up, like an odometer
      offset += strides[d];
      if (++index[d] < shape[d]) break;
      offset -= index[d] * strides[d];
      index[d] = 0;
    }
  }
}

template <class Element>
void copy_row(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
              int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride * int64_t{sizeof(Element)},
                from + i * from_stride * int64_t{sizeof(Element)}, sizeof(Element));
  }
}

void copy_row(int64_t element_bytes, const std::byte* from, int64_t from_stride, std::byte* to,
              int64_t to_stride, int64_t count) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count * element_bytes));
    return;
  }
  switch (element_bytes) {
    case 1:
      return copy_row<uint8_t>(from, from_stride, to, to_stride, count);
    case 2:
      return copy_row<uint16_t>(from, from_stride, to, to_stride, count);
    case 4:
      return copy_row<uint32_t>(from, from_stride, to, to_stride, count);
    case 8:
      return copy_row<uint64_t>(from, from_stride, to, to_stride, count);
    default:
      internal_error(fmt::format("elements of {} bytes", element_bytes));
  }
}

}  // namespace

Placement place_input(const kernels::OpInfo& op, const std::string& tensor, DType dtype,
                      const Dims& shape, const kernels::Params& params,
                      const std::map<std::string, std::string>& metadata) {
  const std::string layout = scale_layout(op, tensor, params);
  const auto given = metadata.find(std::string(kStrides) + tensor);
  Placement placement;
  if (given != metadata.end()) {
    placement.strides = parse_strides(op, tensor, shape, given->second);
    placement.storage_elements = checked_span(op, tensor, dtype, shape, placement.strides);
    if (!layout.empty()) check_scale_strides(op, tensor, layout, shape, placement.strides);
    return placement;
  }
  placement.strides = row_major_strides(shape);
  placement.storage_elements = num_elements(shape);
  if (is_column_major(layout) && shape.rank == 2 && placement.storage_elements > 0) {
    placement.strides = {1, padded_rows(shape[0])};
    placement.storage_elements = shape[1] * padded_rows(shape[0]);
  }
  return placement;
}

void check_stride_names(const kernels::OpInfo& op, const kernels::Tensors& given,
                        const std::map<std::string, std::string>& metadata) {
  for (const auto& [key, text] : metadata) {
    if (!key.starts_with(kStrides)) continue;
    const std::string name = key.substr(kStrides.size());
    if (given.contains(name)) continue;
    std::vector<std::string> names;
    for (const auto& [known, view] : given) names.push_back(known);
    throw Error({.kind = ErrorKind::argument,
                 .op = op.name,
                 .what = fmt::format("metadata '{}' belongs to no tensor of the file", key),
                 .argument = name,
                 .expected = fmt::format("strides of {}", fmt::join(names, ", ")),
                 .got = key,
                 .hint = did_you_mean(name, names)});
  }
}

std::string strides_text(const Dims& shape, const Dims& strides) {
  if (num_elements(shape) == 0 || strides == row_major_strides(shape)) return {};
  return fmt::format("{}", fmt::join(strides, ","));
}

void scatter(std::span<const std::byte> logical, const Dims& shape, const Dims& strides,
             int64_t element_bytes, std::span<std::byte> storage) {
  const int64_t step = shape.rank == 0 ? 1 : strides[shape.rank - 1];
  for_each_row(shape, strides, [&](int64_t from, int64_t to, int64_t count) {
    copy_row(element_bytes, logical.data() + from * element_bytes, 1,
             storage.data() + to * element_bytes, step, count);
  });
}

void gather(std::span<const std::byte> storage, const Dims& shape, const Dims& strides,
            int64_t element_bytes, std::span<std::byte> logical) {
  const int64_t step = shape.rank == 0 ? 1 : strides[shape.rank - 1];
  for_each_row(shape, strides, [&](int64_t to, int64_t from, int64_t count) {
    copy_row(element_bytes, storage.data() + from * element_bytes, step,
             logical.data() + to * element_bytes, 1, count);
  });
}

}  // namespace tessera::tools
