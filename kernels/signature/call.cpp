#include "kernels/signature/call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "kernels/signature/scale_layout.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
int64_t Call::stored_columns(Packing packing, int64_t columns) {
  return packing == Packing::pairs         ? columns / 2
         : packing == Packing::twelve_bits ? columns / 2 * 3
                                           : columns;
}

std::optional<DType> dtype_named(std::string_view word) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i8, DType::u8, DType::i16,
                            DType::u16, DType::i32, DType::u32, DType::i64, DType::u64,
                            DType::boolean, DType::e4m3, DType::e5m2, DType::e2m1}) {
    if (tessera::name(dtype) == word) return dtype;
  }
  return std::nullopt;
}

// ---- names

std::optional<ParamValue> Call::find(std::string_view name) const {
  if (const auto known = check_.known(name)) return known->value;
  if (const LetRule* let = parsed_->signature.find_let(name)) return let->value_of(name, *this);
  if (const auto param = params_->find(std::string(name)); param != params_->end()) {
    return param->second;
  }
  if (const TensorRule* tensor = parsed_->signature.find_tensor(name)) {
    return ParamValue(has(tensor->list.empty() ? tensor->name : tensor->name + ".0"));
  }
  for (const CallFunction& function : op().functions) {
    if (name.ends_with("()") && name.substr(0, name.size() - 2) == function.name) {
      return ParamValue(function.value(*this));
    }
  }
  return std::nullopt;
}

std::string Call::dtype_word(std::string_view tensor) const {
  if (!has(tensor)) return {};
  return std::string(tessera::name(dtype(tensor)));
}

const TensorRule& Call::rule(std::string_view name) const {
  const TensorRule* found = parsed_->signature.find_tensor(name.substr(0, name.find('.')));
  TESSERA_CHECK(found != nullptr, fmt::format("{} has no tensor {}", op().name, name));
  return *found;
}

std::vector<std::string> Call::names_of(const TensorRule& rule) const {
  if (rule.list.empty()) return {rule.name};
  std::vector<std::string> names;
  int64_t count = 0;
  if (const auto known = find(rule.list)) {
    count = std::get<int64_t>(*known);
  } else {
    while (has(fmt::format("{}.{}", rule.name, count))) ++count;
  }
  for (int64_t i = 0; i < count; ++i) names.push_back(fmt::format("{}.{}", rule.name, i));
  return names;
}

const TensorView& Call::given(std::string_view name) const {
  static const TensorView absent;
  const auto found = tensors_->find(std::string(name));
  return found == tensors_->end() ? absent : found->second;
}

bool Call::has(std::string_view tensor) const {
  return !is_absent(given(tensor));
}

int64_t Call::operator[](std::string_view symbol) const {
  const auto found = find(symbol);
  const auto* value = found ? std::get_if<int64_t>(&*found) : nullptr;
  TESSERA_CHECK(value != nullptr, fmt::format("{} has no integer {}", op().name, symbol));
  return *value;
}

int32_t Call::i32(std::string_view symbol) const {
  const int64_t value = (*this)[symbol];
  check_.require(value == static_cast<int32_t>(value), blamed_argument(std::string(symbol)),
                 "an extent of 2^31 and more is not supported", "at most 2147483647",
                 fmt::format("{} = {}", symbol, value), ErrorKind::unsupported);
  return static_cast<int32_t>(value);
}

double Call::number(std::string_view param) const {
  return std::get<double>(params_->at(std::string(param)));
}

bool Call::flag(std::string_view param) const {
  return std::get<bool>(params_->at(std::string(param)));
}

std::string_view Call::word(std::string_view param) const {
  const auto* word = std::get_if<std::string>(&params_->at(std::string(param)));
  return word == nullptr ? std::string_view() : *word;
}

bool Call::has_value(std::string_view param) const {
  return !std::holds_alternative<std::monostate>(params_->at(std::string(param)));
}

Device Call::device() const {
  for (const auto& [name, view] : *tensors_) {
    if (!is_absent(view)) return view.device;
  }
  return Device::cpu();
}

// ---- dtypes

DType Call::declared_dtype(const TensorRule& rule) const {
  if (rule.role == Role::out && rule.dtypes.size() > 1) {
    if (const auto of_call = find(rule.name + "_dtype()")) {
      return static_cast<DType>(std::get<int64_t>(*of_call));
    }
  }
  for (const std::string& word : rule.dtypes) {
    if (word.starts_with("as ")) return given(word.substr(3)).dtype;
    std::string name = word;
    if (parsed_->signature.find_param(word) != nullptr) name = std::string(this->word(word));
    if (name.empty()) continue;  // none: the next word decides
    if (name == "e2m1") return DType::i8;
    if (name == "e5m6") return DType::u8;
    if (const auto dtype = dtype_named(name)) return *dtype;
  }
  internal_error(fmt::format("{}: no dtype of {}", op().name, rule.name));
}

size_t Call::num_extents(const TensorRule& rule) const {
  const size_t all = rule.shape.size();
  if (!rule.may_lack_last) return all;
  const bool is_there = rule.last_presence ? rule.last_presence->holds(*this)
                                           : given(rule.name).rank() != static_cast<int>(all) - 1;
  return is_there ? all : all - 1;
}

Call::Packing Call::packing_of(const TensorRule& rule, DType stored) const {
  for (const std::string& word : rule.dtypes) {
    if (word.starts_with("as ")) return packing_of(this->rule(word.substr(3)), stored);
    const bool is_param = parsed_->signature.find_param(word) != nullptr;
    const std::string_view name = is_param ? this->word(word) : std::string_view(word);
    if (stored == DType::i8 && name == "e2m1") return Packing::pairs;
    if (stored == DType::u8 && name == "e5m6") return Packing::twelve_bits;
  }
  return Packing::none;
}

DType Call::dtype(std::string_view name) const {
  if (parsed_->signature.find_param(name) != nullptr) return *dtype_named(word(name));
  const TensorRule& found = rule(name);
  const TensorView& view = given(name);
  const DType stored = is_absent(view) ? declared_dtype(found) : view.dtype;
  return packing_of(found, stored) == Packing::pairs ? DType::e2m1 : stored;
}

// ---- outputs

bool Call::is_asked_for(const TensorRule& rule) const {
  if (rule.role == Role::in) return false;
  if (rule.role == Role::inout && !rule.accumulate) return has(rule.name);
  if (rule.accumulate) return !rule.presence || rule.presence->holds(*this);
  if (!rule.optional) return true;
  return rule.presence ? rule.presence->holds(*this) : has(rule.name);
}

bool Call::writes(std::string_view output) const {
  const TensorRule* found = parsed_->signature.find_tensor(output);
  return found != nullptr && is_asked_for(*found);
}

OutputInfo Call::output(const TensorRule& rule, const std::string& name) const {
  if (rule.scales) {
    const ScaleBlocks blocks = blocks_of(rule);
    return scale_output(name, scale_layout(rule, *params_), blocks.rows, blocks.columns);
  }
  // An accumulator that the caller gives keeps its dtype.
  const DType dtype = rule.accumulate && has(name) ? given(name).dtype : declared_dtype(rule);
  const Packing packing = packing_of(rule, dtype);
  Dims shape;
  for (size_t i = 0; i < num_extents(rule); ++i) {
    if (i == 0 && rule.has_token_dims) {
      const int most = kMaxRank - static_cast<int>(rule.shape.size()) + 1;
      const auto input =
          std::find_if(parsed_->signature.tensors.begin(), parsed_->signature.tensors.end(),
                       [](const TensorRule& one) { return one.has_token_dims && one.is_input(); });
      check_.require(token_rank_ <= most, input->name, "so many token dimensions are not supported",
                     fmt::format("at most {}", most), fmt::format("{}", token_rank_),
                     ErrorKind::unsupported);
      for (int t = 0; t < token_rank_; ++t) {
        shape.push_back(token_rank_ == 1 ? (*this)[rule.shape[0].text()]
                                         : check_[fmt::format("{}{}", rule.shape[0].text(), t)]);
      }
      continue;
    }
    const int64_t extent = rule.shape[i].integer(*this);
    const bool is_packed = packing != Packing::none && i + 1 == rule.shape.size();
    shape.push_back(is_packed ? stored_columns(packing, extent) : extent);
  }
  OutputInfo info = row_major_output(name, dtype, shape);
  info.workspace = rule.is_workspace;
  info.starts_at_zero = rule.accumulate;
  return info;
}

std::vector<OutputInfo> Call::outputs() const {
  std::vector<OutputInfo> made;
  for (const TensorRule& rule : parsed_->signature.tensors) {
    if (!is_asked_for(rule) || (rule.role == Role::inout && !rule.accumulate)) continue;
    for (const std::string& name : names_of(rule)) made.push_back(output(rule, name));
  }
  return made;
}

bool Call::is_empty() const {
  for (const TensorRule& rule : parsed_->signature.tensors) {
    if (!is_asked_for(rule) || rule.is_workspace) continue;
    for (const std::string& name : names_of(rule)) {
      const bool is_given = has(name);
      if ((is_given ? given(name).size() : num_elements(output(rule, name).shape)) > 0)
        return false;
    }
  }
  return true;
}

void Call::trim(Tensors& tensors, Stream stream) const {
  for (const LetRule& let : parsed_->signature.lets) {
    if (let.trimmed_by.empty()) continue;
    for (const TrimFunction& trim : op().trims) {
      if (let.trimmed_by != std::string(trim.name) + "()") continue;
      const int64_t taken = trim.value(*this, stream);
      for (const TensorRule& rule : parsed_->signature.tensors) {
        if (rule.role != Role::out || tensors.count(rule.name) == 0) continue;
        for (size_t i = 0; i < rule.shape.size(); ++i) {
          if (rule.shape[i].text() == let.symbols.front()) {
            tensors.at(rule.name).shape[static_cast<int>(i)] = taken;
          }
        }
      }
    }
  }
}

// ---- what kernels take

TensorView Call::with_one_token_dim(const TensorRule& rule, const TensorView& view) const {
  if (token_rank_ == 1) return view;
  TensorView flat = view;
  flat.shape = Dims{1};
  flat.strides = Dims{token_rank_ == 0 ? view.size() : view.strides[token_rank_ - 1]};
  int64_t expected = 0;  // the stride that the next larger dimension must have
  for (int i = token_rank_ - 1; i >= 0; --i) {
    if (view.shape[i] == 1) continue;
    check_.require(expected == 0 || view.strides[i] == expected || view.size() == 0, rule.name,
                   "rows of several token dimensions must lie evenly apart", "even strides",
                   to_string(view), ErrorKind::unsupported);
    if (expected == 0) flat.strides[0] = view.strides[i];
    expected = view.strides[i] * view.shape[i];
  }
  for (int i = 0; i < token_rank_; ++i) flat.shape[0] *= view.shape[i];
  for (int i = token_rank_; i < view.rank(); ++i) {
    flat.shape.push_back(view.shape[i]);
    flat.strides.push_back(view.strides[i]);
  }
  return flat;
}

TensorView Call::tensor(std::string_view name) const {
  const TensorRule& found = rule(name);
  const TensorView& view = given(name);
  if (is_absent(view)) return view;
  if (found.scales) {
    const SfLayout layout = scale_layout(found, *params_);
    if (found.role == Role::in) return read_scales(view, layout);
    const ScaleBlocks blocks = blocks_of(found);
    return written_scales(view, layout, blocks.rows, blocks.columns);
  }
  if (packing_of(found, view.dtype) == Packing::pairs) {
    TensorView codes = view;
    codes.dtype = DType::e2m1;
    const int last = view.rank() - 1;
    codes.shape[last] *= 2;
    for (int i = 0; i < last; ++i) codes.strides[i] *= 2;
    return codes;
  }
  return found.has_token_dims ? with_one_token_dim(found, view) : view;
}

int32_t Call::align(std::initializer_list<const char*> tensors) const {
  int32_t alignment = 16;
  for (const char* tensor : tensors) {
    for (const std::string& name : names_of(rule(tensor))) {
      alignment = std::gcd(alignment, common_alignment(*tensors_, {name.c_str()}));
    }
  }
  return alignment;
}

}  // namespace tessera::kernels
