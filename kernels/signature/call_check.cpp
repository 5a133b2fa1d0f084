// Checks a call against its signature. call.cpp has what kernels ask of the call later.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "kernels/checks/value_check.h"
#include "kernels/signature/call.h"

namespace tessera::kernels {

Call::Call(const ParsedOp& op, const Tensors& tensors, const Params& params)
    : parsed_(&op), tensors_(&tensors), params_(&params), check_(op.op->name) {
  for (const TensorRule& rule : op.signature.tensors) {
    if (!rule.has_token_dims || !rule.is_input() || !has(rule.name)) continue;
    const int others = static_cast<int>(rule.shape.size()) - 1;
    token_rank_ = std::max(rule.may_lack_token_dims ? 0 : 1, given(rule.name).rank() - others);
    break;
  }
  check_param_presence();
  check_known_needs();
  for (const TensorRule& rule : op.signature.tensors) {
    if (!rule.is_input()) continue;
    check_presence(rule);
    if (!rule.list.empty()) check_length(rule);
    for (const std::string& name : names_of(rule)) check_input(rule, name);
    check_known_needs();
  }
  for (const TensorRule& rule : op.signature.tensors) {
    if (!rule.scales || rule.is_input()) continue;
    for (const Expression& part : rule.scales->block) check_block_size(part);
  }
  for (const ParamRule& param : op.signature.params) check_range(param);
  for (const NeedRule& need : op.signature.needs) check_need(need);
  if (op.op->check != nullptr) op.op->check(*this);
}

void Call::check_presence(const TensorRule& rule) const {
  if (!rule.presence) return;
  const bool wanted = rule.presence->holds(*this);
  const bool is_given = has(rule.name);
  if (wanted && !is_given && !rule.accumulate) {
    check_.require(false, rule.name, fmt::format("argument '{}' is missing", rule.name),
                   fmt::format("a tensor named {} where {}", rule.name, rule.presence->text()),
                   values_of(*rule.presence, nullptr), ErrorKind::argument, "PRESENCE");
  }
  check_.require(wanted || !is_given, rule.name,
                 fmt::format("argument '{}' goes with other arguments only", rule.name),
                 fmt::format("a tensor only where {}", rule.presence->text()),
                 values_of(*rule.presence, nullptr), ErrorKind::argument, "PRESENCE");
}

/// The first list of a given extent defines it; other lists must match. A list has no gaps.
void Call::check_length(const TensorRule& rule) {
  int64_t given = 0;
  while (has(fmt::format("{}.{}", rule.name, given))) ++given;
  const std::string missing = fmt::format("{}.{}", rule.name, given), prefix = rule.name + ".";
  const auto all = std::count_if(tensors_->begin(), tensors_->end(), [&](const auto& tensor) {
    return tensor.first.starts_with(prefix) && !is_absent(tensor.second);
  });
  check_.require(given == all, missing, fmt::format("argument '{}' is missing", missing),
                 fmt::format("{} tensors without a gap", all), "no tensor of this name",
                 ErrorKind::argument, "PRESENCE");
  if (!check_.known(rule.list)) {
    check_.bind(rule.list, given, fmt::format("tensors of {}", rule.name), rule.name);
  }
  const int64_t length = (*this)[rule.list];
  check_.require(given == length, rule.name,
                 fmt::format("list '{}' has the wrong length", rule.name),
                 check_.known(rule.list)->text, fmt::format("{} tensors", given),
                 ErrorKind::argument, "SHAPE");
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
  check_type(rule, tensor, given(name).dtype);
  solve_extents(rule, name);
}

/// Checks dtype, shape and layout.
void Call::check_type(const TensorRule& rule, ArgCheck::Tensor& tensor, DType stored_dtype) {
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
  const Packing packing = packing_of(rule, stored_dtype);
  for (size_t i = 0; i < num_extents(rule); ++i) {
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
    case TensorRule::Layout::any1:
      tensor.rows_or_columns();
      break;
  }
  constexpr int64_t kWorkspaceAlign = 16;  // kernels access scratch memory by vectors
  if (rule.is_workspace) tensor.aligned(kWorkspaceAlign);
  if (rule.align > 0) tensor.aligned(rule.align);
}

/// Binds an extent that follows from others, so that messages show its origin.
void Call::bind_known(const Expression& extent) {
  if (check_.known(extent.text()) || extent.names().empty()) return;
  if (const auto name = extent.single_name()) {
    if (const LetRule* let = parsed_->signature.find_let(*name)) {
      const bool asks_op = let->value.text().ends_with("()");
      check_.bind(*name, (*this)[*name], asks_op ? *name : let->value.text());
    } else if (name->ends_with("()") || parsed_->signature.find_param(*name) != nullptr) {
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
  if (rule.has_token_dims && token_rank_ != 1 && !check_.known(rule.shape[0].text())) {
    int64_t tokens = 1;
    for (int t = 0; t < token_rank_; ++t) {
      if (__builtin_mul_overflow(tokens, view.shape[t], &tokens)) tokens = INT64_MAX;
    }
    check_.bind(rule.shape[0].text(), tokens, "the product of the token dimensions", name);
  }
  for (size_t i = 0; i < num_extents(rule); ++i) {
    const Expression& extent = rule.shape[i];
    const int dim = first + static_cast<int>(i);
    if (packing != Packing::none && i + 1 == rule.shape.size()) {
      if (check_.known(extent.text())) continue;
      const bool pairs = packing == Packing::pairs;
      const std::string stored = extent.text() + (pairs ? "/2" : "*3/2");
      const std::string got = fmt::format("{} = {}", stored, view.shape[dim]);
      check_.require(view.shape[dim] <= INT64_MAX / 4, name,
                     fmt::format("argument '{}' is too large", name),
                     fmt::format("{} <= {}", stored, INT64_MAX / 4), got, ErrorKind::unsupported);
      check_.require(pairs || view.shape[dim] % 3 == 0, name,
                     fmt::format("argument '{}' has the wrong shape", name),
                     "two codes in three bytes", got, ErrorKind::argument, "SHAPE");
      check_.bind(extent.text(), pairs ? view.shape[dim] * 2 : view.shape[dim] / 3 * 2,
                  pairs ? fmt::format("two e2m1 codes per byte of {}", name)
                        : fmt::format("2 / 3 of {} dim {}, twelve bits per code", name, dim),
                  name);
      continue;
    }
    if (extent.single_name() || extent.names().empty()) continue;
    const auto solution = extent.solve(view.shape[dim], *this);
    if (!solution) continue;
    check_.require(
        solution->value.has_value(), name, fmt::format("argument '{}' has the wrong shape", name),
        fmt::format("an integer {} with {} = the extent", solution->name, extent.text()),
        fmt::format("{} in dimension {}", view.shape[dim], dim), ErrorKind::argument, "SHAPE");
    check_.bind(solution->name, *solution->value,
                fmt::format("{} = {} of {} dim {}", extent.text(), view.shape[dim], name, dim),
                name);
  }
}

/// Checks the parameter of the block size.
void Call::check_block_size(const Expression& part) const {
  const ParamValue value = part.value(*this);
  const auto* list = std::get_if<std::vector<int64_t>>(&value);
  if (list == nullptr) return;
  constexpr int64_t kLargest = int64_t{1} << 30;
  const bool fits = list->size() == 2 &&
                    std::all_of(list->begin(), list->end(),
                                [](int64_t extent) { return 1 <= extent && extent <= kLargest; });
  check_.require(fits, part.text(), fmt::format("parameter '{}' has a wrong value", part.text()),
                 "rows,columns, each from 1 to 2^30", to_string(value));
}

ScaleBlocks Call::blocks_of(const TensorRule& rule) const {
  for (const Expression& part : rule.scales->block) check_block_size(part);
  return scale_blocks(parsed_->signature, rule, scale_layout(rule, *params_), *this);
}

void Call::check_scales(const TensorRule& rule, const std::string& name, bool is_output) {
  const ScaleBlocks blocks = blocks_of(rule);
  const bool is_by_row = rule.scales->matrix.empty() || rule.scales->block.front().text() == "1";
  const TensorRule& matrix = rule.scales->matrix.empty() ? rule : this->rule(rule.scales->matrix);
  const std::string row_symbol =
      is_by_row ? matrix.shape[0].text() : fmt::format("rows of {}", name);
  const std::string column_symbol = fmt::format("columns of {}", name);
  if (!check_.known(row_symbol)) check_.bind(row_symbol, blocks.rows, blocks.row_formula);
  if (!check_.known(column_symbol)) {
    check_.bind(column_symbol, blocks.columns, blocks.column_formula);
  }
  const SfLayout layout = scale_layout(rule, *params_);
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
                    to_string(params_->at(param.name))),
        ErrorKind::argument, "PRESENCE");
  }
}

void Call::check_range(const ParamRule& param) const {
  if (!param.most || !has_value(param.name)) return;
  // A parameter beyond a `limit` is unsupported, not wrong: check_need reports it.
  const bool has_limit =
      std::any_of(parsed_->signature.needs.begin(), parsed_->signature.needs.end(),
                  [&](const NeedRule& need) { return need.is_limit && need.blamed == param.name; });
  if (has_limit && std::get<int64_t>(params_->at(param.name)) > param.most->integer(*this)) return;
  const int64_t least = param.least.value_or(INT64_MIN);  // 0 columns included
  check_.param_in_range(param.name, std::get<int64_t>(params_->at(param.name)), least,
                        std::max(param.most->integer(*this), least));
}

/// Checks the rules on parameters, presence and bound extents; they take precedence in messages.
void Call::check_known_needs() const {
  const std::function<bool(const Expression&)> is_known = [&](const Expression& rule) {
    const std::vector<std::string> names = rule.names();
    return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      if (const LetRule* let = parsed_->signature.find_let(name)) {
        const bool asks_op = let->value.text().find("()") != std::string::npos;
        return !asks_op && is_known(let->value) &&
               !std::holds_alternative<std::monostate>(let->value_of(name, *this));
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
      need.is_limit ? ErrorKind::unsupported : ErrorKind::argument, is_param ? "VALUE" : "SHAPE");
}

/// The tensor that an extent came from; tensors and parameters map to themselves.
std::string Call::blamed_argument(const std::string& name) const {
  const auto known = check_.known(name);
  if (known && !known->argument.empty()) return known->argument;
  if (const LetRule* let = parsed_->signature.find_let(name)) {
    for (const std::string& inner : let->value.names()) {
      if (inner != name) return blamed_argument(inner);
    }
  }
  return name;
}

/// The values of a rule's names, and their origins.
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

void Call::check_output(const TensorRule& rule, const std::string& name) {
  if (!has(name)) {
    const OutputInfo wanted = output(rule, name);
    std::vector<std::string> names;
    for (const auto& [one, view] : *tensors_) names.push_back(one);
    throw Error({.kind = ErrorKind::argument,
                 .op = std::string(op().name),
                 .what = fmt::format("argument '{}' is missing", name),
                 .argument = name,
                 .expected = to_string(
                     TensorView(nullptr, wanted.dtype, wanted.shape, wanted.strides, device())),
                 .got = fmt::format("{}", fmt::join(names, ", ")),
                 .hint = wanted.workspace ? "workspace_of(call) gives its dtype and shape" : "",
                 .code = "NAME"});
  }
  if (rule.scales) {
    check_scales(rule, name, true);
    return;
  }
  ArgCheck::Tensor tensor = check_.output(name, *tensors_);
  check_type(rule, tensor, given(name).dtype);
}

void Call::check_run() {
  for (const TensorRule& rule : parsed_->signature.tensors) {
    if (rule.role == Role::in || !is_asked_for(rule)) continue;
    if (rule.is_workspace)
      check_.memory();  // addresses decide how much scratch memory a call needs
    for (const std::string& name : names_of(rule)) {
      if (rule.role == Role::out || !has(name)) check_output(rule, name);
    }
  }
  check_.memory();
  for (const TensorRule& rule : parsed_->signature.tensors) {
    if (!rule.least || !has(rule.name)) continue;
    require_values(check_, rule.name, given(rule.name), rule.least->integer(*this),
                   rule.most->integer(*this));
  }
  if (op().check_values != nullptr) op().check_values(*this);
}

}  // namespace tessera::kernels
