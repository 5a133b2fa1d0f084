#include "kernels/signature/call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/alignment.h"
#include "kernels/quant/scale_layout.h"
#include "kernels/value_check.h"

namespace tessera::kernels {
namespace {

using Packing = Call::Packing;

int64_t stored_columns(Packing packing, int64_t columns) {
  return packing == Packing::pairs         ? columns / 2
         : packing == Packing::twelve_bits ? columns / 2 * 3
                                           : columns;
}

}  // namespace

std::optional<DType> dtype_named(std::string_view word) {
  for (const DType dtype :
       {DType::f32, DType::f16, DType::bf16, DType::i8, DType::u8, DType::i32, DType::u32,
        DType::i64, DType::u64, DType::boolean, DType::e4m3, DType::e5m2, DType::e2m1}) {
    if (tessera::name(dtype) == word) return dtype;
  }
  return std::nullopt;
}

Call::Call(const ParsedOp& op, const Tensors& tensors, const Params& params)
    : parsed_(&op), tensors_(&tensors), params_(&params), check_(op.op->name) {
  for (const TensorRule& rule : op.signature.tensors) {
    if (!rule.has_token_dims || !rule.is_input() || !has(rule.name)) continue;
    const int others = static_cast<int>(rule.shape.size()) - 1;
    token_rank_ = std::max(1, given(rule.name).rank() - others);
    break;
  }
  check_param_presence();
  check_known_needs();
  for (const TensorRule& rule : op.signature.tensors) {
    if (!rule.is_input()) continue;
    check_presence(rule);
    for (const std::string& name : names_of(rule)) check_input(rule, name);
    check_known_needs();
  }
  for (const ParamRule& param : op.signature.params) check_range(param);
  for (const NeedRule& need : op.signature.needs) check_need(need);
  if (op.op->check != nullptr) op.op->check(*this);
}

// ---- names

std::optional<ParamValue> Call::find(std::string_view name) const {
  if (const auto known = check_.known(name)) return known->value;
  for (const LetRule& let : parsed_->signature.lets) {
    for (size_t i = 0; i < let.symbols.size(); ++i) {
      if (let.symbols[i] != name) continue;
      const ParamValue value = let.value.value(*this);
      if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
        if (i < list->size()) return (*list)[i];
        return ParamValue();
      }
      return value;
    }
  }
  if (const auto param = params_->find(std::string(name)); param != params_->end()) {
    return param->second;
  }
  if (parsed_->signature.find_tensor(name) != nullptr) return ParamValue(has(name));
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

Packing Call::packing_of(const TensorRule& rule, DType stored) const {
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

// ---- checks

void Call::check_presence(const TensorRule& rule) const {
  if (!rule.presence || rule.accumulate) return;
  const bool wanted = rule.presence->holds(*this);
  const bool is_given = has(rule.name);
  if (wanted && !is_given) {
    check_.require(false, rule.name, fmt::format("argument '{}' is missing", rule.name),
                   fmt::format("a tensor named {} where {}", rule.name, rule.presence->text()),
                   values_of(*rule.presence, nullptr));
  }
  check_.require(wanted || !is_given, rule.name,
                 fmt::format("argument '{}' goes with other arguments only", rule.name),
                 fmt::format("a tensor only where {}", rule.presence->text()),
                 values_of(*rule.presence, nullptr));
}

void Call::check_input(const TensorRule& rule, const std::string& name) {
  if (rule.scales) {
    if (has(name) || !rule.optional) check_scales(rule, name, false);
    return;
  }
  const bool may_lack = rule.optional || rule.accumulate;
  ArgCheck::Tensor tensor =
      rule.role == Role::inout
          ? (may_lack ? check_.optional_output(name, *tensors_) : check_.output(name, *tensors_))
          : (may_lack ? check_.optional(name, *tensors_) : check_.tensor(name, *tensors_));
  if (!has(name)) return;
  check_type(rule, tensor, &given(name));
  solve_extents(rule, name);
}

/// Dtype, shape and layout; `view` is null where outputs are described.
void Call::check_type(const TensorRule& rule, ArgCheck::Tensor& tensor, const TensorView* view) {
  const bool is_movable = rule.dtypes.front().starts_with("bytes");
  if (is_movable) {
    tensor.movable();
  } else if (rule.role == Role::out || rule.dtypes.size() == 1) {
    tensor.dtype(declared_dtype(rule));
  } else {
    std::vector<DType> dtypes;
    for (const std::string& word : rule.dtypes) {
      dtypes.push_back(word == "e2m1"   ? DType::i8
                       : word == "e5m6" ? DType::u8
                                        : *dtype_named(word));
    }
    tensor.dtype(dtypes);
  }
  std::vector<Extent> extents;
  const Packing packing = packing_of(rule, view->dtype);
  for (size_t i = 0; i < rule.shape.size(); ++i) {
    const Expression& extent = rule.shape[i];
    if (i == 0 && rule.has_token_dims) {
      for (int t = 0; t < token_rank_; ++t) {
        extents.emplace_back(token_rank_ == 1 ? extent.text()
                                              : fmt::format("{}{}", extent.text(), t));
      }
      continue;
    }
    if (packing != Packing::none && i + 1 == rule.shape.size()) {
      const std::string stored = extent.text() + (packing == Packing::pairs ? "/2" : "*3/2");
      if (const auto known = find(extent.text()); known && !check_.known(stored)) {
        check_.bind(stored, stored_columns(packing, std::get<int64_t>(*known)),
                    packing == Packing::pairs ? "two e2m1 codes per byte" : "twelve bits per code");
      }
      extents.emplace_back(stored);
      continue;
    }
    if (extent.names().empty()) {
      extents.emplace_back(extent.integer(*this));
      continue;
    }
    bind_known(extent);
    extents.emplace_back(extent.text());
  }
  tensor.shape_of(extents);
  switch (rule.layout) {
    case TensorRule::Layout::row_major:
      tensor.row_major();
      break;
    case TensorRule::Layout::rows:
      tensor.rows();
      break;
    case TensorRule::Layout::any:
      tensor.any_strides();
      break;
  }
  if (rule.align > 0) tensor.aligned(rule.align);
}

/// Gives an extent that follows from others its value, so that messages show where it comes from.
void Call::bind_known(const Expression& extent) {
  if (check_.known(extent.text()) || extent.names().empty()) return;
  if (const auto name = extent.single_name()) {
    for (const LetRule& let : parsed_->signature.lets) {
      if (let.symbols.front() != *name) continue;
      const bool is_function = let.value.text().ends_with("()");
      check_.bind(*name, (*this)[*name], is_function ? *name : let.value.text());
      return;
    }
    if (parsed_->signature.find_param(*name) != nullptr) {
      check_.bind(*name, (*this)[*name], *name);
    }
    return;
  }
  for (const std::string& name : extent.names()) {
    if (!find(name)) return;
  }
  check_.bind(extent.text(), extent.integer(*this), extent.text());
}

void Call::solve_extents(const TensorRule& rule, const std::string& name) {
  const TensorView& view = given(name);
  const Packing packing = packing_of(rule, view.dtype);
  const int first = rule.has_token_dims ? token_rank_ - 1 : 0;
  if (rule.has_token_dims && token_rank_ > 1 && !check_.known(rule.shape[0].text())) {
    int64_t tokens = 1;
    for (int t = 0; t < token_rank_; ++t) {
      if (__builtin_mul_overflow(tokens, view.shape[t], &tokens)) tokens = INT64_MAX;
    }
    check_.bind(rule.shape[0].text(), tokens, "the product of the token dimensions", name);
  }
  for (size_t i = 0; i < rule.shape.size(); ++i) {
    const Expression& extent = rule.shape[i];
    const int dim = first + static_cast<int>(i);
    if (packing != Packing::none && i + 1 == rule.shape.size()) {
      if (check_.known(extent.text())) continue;
      const bool pairs = packing == Packing::pairs;
      const std::string stored = extent.text() + (pairs ? "/2" : "*3/2");
      check_.require(view.shape[dim] <= INT64_MAX / 4 && (pairs || view.shape[dim] % 3 == 0), name,
                     fmt::format("argument '{}' has the wrong shape", name),
                     pairs ? "two codes per byte" : "two codes in three bytes",
                     fmt::format("{} = {}", stored, view.shape[dim]));
      check_.bind(extent.text(), pairs ? view.shape[dim] * 2 : view.shape[dim] / 3 * 2,
                  pairs ? fmt::format("two e2m1 codes per byte of {}", name)
                        : fmt::format("2 / 3 of {} dim {}, twelve bits per code", name, dim),
                  name);
      continue;
    }
    if (extent.single_name() || extent.names().empty()) continue;
    const auto solution = extent.solve(view.shape[dim], *this);
    if (!solution) continue;
    check_.require(solution->value.has_value(), name,
                   fmt::format("argument '{}' has the wrong shape", name),
                   fmt::format("an integer {} with {} = the extent", solution->name, extent.text()),
                   fmt::format("{} in dimension {}", view.shape[dim], dim));
    check_.bind(solution->name, *solution->value,
                fmt::format("{} = {} of {} dim {}", extent.text(), view.shape[dim], name, dim),
                name);
  }
}

Call::Blocks Call::blocks_of(const TensorRule& rule) const {
  const TensorRule::Scales& scales = *rule.scales;
  if (scales.matrix.empty()) {
    const bool packed = sf_layout_of(*params_, scales.layout_param) == SfLayout::packed_ue8m0;
    return {rule.shape[0].integer(*this), rule.shape[1].integer(*this) * (packed ? 4 : 1),
            rule.shape[0].text(), rule.shape[1].text()};
  }
  const TensorRule& matrix = this->rule(scales.matrix);
  TESSERA_CHECK(matrix.shape.size() == 2, "scales of something else than a matrix");
  std::vector<int64_t> block;
  for (const Expression& part : scales.block) {
    const ParamValue value = part.value(*this);
    if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
      constexpr int64_t kLargest = int64_t{1} << 30;
      check_.require(list->size() == 2 && (*list)[0] >= 1 && (*list)[1] >= 1 &&
                         (*list)[0] <= kLargest && (*list)[1] <= kLargest,
                     part.text(), fmt::format("parameter '{}' has a wrong value", part.text()),
                     "rows,columns, each from 1 to 2^30", to_string(value));
      block = *list;
    } else if (std::holds_alternative<std::monostate>(value)) {
      block = {1, std::max<int64_t>(matrix.shape[1].integer(*this), 1)};  // none: one per row
    } else {
      block.push_back(std::max<int64_t>(std::get<int64_t>(value), 1));
    }
  }
  const auto formula = [&](size_t dim) {
    return fmt::format("ceil({} / {})", matrix.shape[dim].text(), block[dim]);
  };
  return {num_blocks(matrix.shape[0].integer(*this), block[0]),
          num_blocks(matrix.shape[1].integer(*this), block[1]), formula(0), formula(1)};
}

void Call::check_scales(const TensorRule& rule, const std::string& name, bool is_output) {
  const Blocks blocks = blocks_of(rule);
  const bool is_by_row = rule.scales->matrix.empty() || rule.scales->block.front().text() == "1";
  const TensorRule& matrix = rule.scales->matrix.empty() ? rule : this->rule(rule.scales->matrix);
  const std::string row_symbol =
      is_by_row ? matrix.shape[0].text() : fmt::format("rows of {}", name);
  const std::string column_symbol = fmt::format("columns of {}", name);
  if (!check_.known(row_symbol)) check_.bind(row_symbol, blocks.rows, blocks.row_formula);
  if (!check_.known(column_symbol)) {
    check_.bind(column_symbol, blocks.columns, blocks.column_formula);
  }
  const SfLayout layout = rule.scales->layout_param.empty()
                              ? SfLayout::row_major
                              : sf_layout_of(*params_, rule.scales->layout_param);
  if (is_output) {
    check_scale_output(check_, name, *tensors_, layout, row_symbol, column_symbol);
  } else {
    check_scale_input(check_, name, *tensors_, layout, row_symbol, column_symbol);
  }
}

void Call::check_param_presence() const {
  for (const ParamRule& param : parsed_->signature.params) {
    if (!param.presence) continue;
    const bool wanted = param.presence->holds(*this);
    check_.require(
        wanted == has_value(param.name), param.name,
        fmt::format("parameter '{}' {}", param.name,
                    wanted ? "is missing" : "goes with other arguments only"),
        fmt::format("{} where {}", wanted ? "a value" : "a value only", param.presence->text()),
        fmt::format("{}, {} = {}", values_of(*param.presence, nullptr), param.name,
                    to_string(params_->at(param.name))));
  }
}

void Call::check_range(const ParamRule& param) const {
  if (!param.most || !has_value(param.name)) return;
  const int64_t least = param.least.value_or(INT64_MIN);  // of no columns at all, too
  check_.param_in_range(param.name, std::get<int64_t>(params_->at(param.name)), least,
                        std::max(param.most->integer(*this), least));
}

/// The rules of parameters, presence and extents that have been read: what they blame comes first.
void Call::check_known_needs() const {
  const std::function<bool(const Expression&)> is_known = [&](const Expression& rule) {
    const std::vector<std::string> names = rule.names();
    return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      for (const LetRule& let : parsed_->signature.lets) {
        if (std::count(let.symbols.begin(), let.symbols.end(), name) > 0) {
          if (let.value.text().find("()") != std::string::npos || !is_known(let.value)) {
            return false;
          }
          const auto value = find(name);  // none: a list that is too short
          return value && !std::holds_alternative<std::monostate>(*value);
        }
      }
      return check_.known(name) || parsed_->signature.find_param(name) != nullptr ||
             parsed_->signature.find_tensor(name) != nullptr;
    });
  };
  for (const ParamRule& param : parsed_->signature.params) {
    if (param.most && is_known(*param.most)) check_range(param);
  }
  for (const NeedRule& need : parsed_->signature.needs) {
    if (is_known(need.rule) && (!need.condition || is_known(*need.condition))) check_need(need);
  }
}

void Call::check_need(const NeedRule& need) const {
  if (need.condition && !need.condition->holds(*this)) return;
  if (need.rule.holds(*this)) return;
  const bool is_param = parsed_->signature.find_param(need.blamed) != nullptr;
  const std::string argument = blamed_argument(need.blamed);
  std::string what = need.what;
  if (what.empty() && need.is_limit) {
    what = fmt::format("{} '{}' beyond this limit is not supported",
                       is_param ? "parameter" : "argument", argument);
  } else if (what.empty()) {
    what = is_param ? fmt::format("parameter '{}' is out of range", argument)
                    : fmt::format("argument '{}' has the wrong shape", argument);
  }
  check_.require(
      false, argument, what,
      need.rule.text() + (need.condition ? " where " + need.condition->text() : std::string()),
      values_of(need.rule, need.condition ? &*need.condition : nullptr),
      need.is_limit ? ErrorKind::unsupported : ErrorKind::argument);
}

/// The tensor that an extent came from; tensors and parameters are their own.
std::string Call::blamed_argument(const std::string& name) const {
  const auto known = check_.known(name);
  if (known && !known->argument.empty()) return known->argument;
  for (const LetRule& let : parsed_->signature.lets) {
    if (std::count(let.symbols.begin(), let.symbols.end(), name) == 0) continue;
    for (const std::string& inner : let.value.names()) {
      if (inner != name) return blamed_argument(inner);
    }
  }
  return name;
}

/// The values of the names of a rule and where they come from.
std::string Call::values_of(const Expression& rule, const Expression* condition) const {
  std::vector<std::string> names = rule.names();
  if (condition != nullptr) {
    for (const std::string& name : condition->names()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::vector<std::string> texts;
  for (const std::string& name : names) {
    if (const auto known = check_.known(name)) {
      texts.push_back(known->text);
    } else if (parsed_->signature.find_tensor(name) != nullptr) {
      texts.push_back(has(name) ? fmt::format("{} of {}", name, dtype_word(name))
                                : fmt::format("no {}", name));
    } else if (const auto value = find(name)) {
      texts.push_back(fmt::format("{} = {}", name, to_string(*value)));
    }
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

// ---- outputs

bool Call::is_asked_for(const TensorRule& rule) const {
  if (rule.role == Role::in) return false;
  if (rule.accumulate) return true;
  if (rule.role == Role::inout) return has(rule.name);
  if (!rule.optional) return true;
  return rule.presence ? rule.presence->holds(*this) : has(rule.name);
}

OutputInfo Call::output(const TensorRule& rule, const std::string& name) const {
  if (rule.scales) {
    const Blocks blocks = blocks_of(rule);
    return scale_output(name,
                        rule.scales->layout_param.empty()
                            ? SfLayout::row_major
                            : sf_layout_of(*params_, rule.scales->layout_param),
                        blocks.rows, blocks.columns);
  }
  const DType dtype = declared_dtype(rule);
  const Packing packing = packing_of(rule, dtype);
  Dims shape;
  for (size_t i = 0; i < rule.shape.size(); ++i) {
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

void Call::check_output(const TensorRule& rule, const std::string& name) {
  if (rule.scales) {
    check_scales(rule, name, true);
    return;
  }
  ArgCheck::Tensor tensor = check_.output(name, *tensors_);
  check_type(rule, tensor, &given(name));
}

void Call::check_run() {
  for (const TensorRule& rule : parsed_->signature.tensors) {
    if (rule.role != Role::out || !is_asked_for(rule)) continue;
    for (const std::string& name : names_of(rule)) check_output(rule, name);
  }
  check_.memory();
  for (const TensorRule& rule : parsed_->signature.tensors) {
    if (!rule.least || !has(rule.name)) continue;
    require_values(check_, rule.name, given(rule.name), rule.least->integer(*this),
                   rule.most->integer(*this));
  }
  if (op().check_values != nullptr) op().check_values(*this);
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
  flat.strides = Dims{view.strides[token_rank_ - 1]};
  int64_t expected = 0;  // stride that the next larger dimension must have
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
    const SfLayout layout = found.scales->layout_param.empty()
                                ? SfLayout::row_major
                                : sf_layout_of(*params_, found.scales->layout_param);
    if (found.role == Role::in) return read_scales(view, layout);
    const Blocks blocks = blocks_of(found);
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
  return common_alignment(*tensors_, tensors);
}

}  // namespace tessera::kernels
