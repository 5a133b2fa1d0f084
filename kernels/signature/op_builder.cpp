#include "kernels/signature/op_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "dsl/base/error.h"

namespace tessera::kernels {
namespace {

/// The contract's words for its symbols; dims in generated code have these names.
std::string word_of(std::string_view symbol) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"T", "tokens"}, {"P", "positions"}, {"L", "layers"},
      {"B", "batch"},  {"R", "rows"},      {"C", "cols"}};
  for (const auto& [name, word] : kWords) {
    if (name == symbol) return std::string(word);
  }
  return std::string(symbol);
}

class Statics final : public Scope {
 public:
  explicit Statics(const std::map<std::string, int64_t, std::less<>>& values) : values_(&values) {}
  std::optional<ParamValue> find(std::string_view name) const override {
    const auto found = values_->find(name);
    if (found == values_->end()) return std::nullopt;
    return found->second;
  }
  std::string dtype_word(std::string_view) const override { return {}; }

 private:
  const std::map<std::string, int64_t, std::less<>>* values_;
};

}  // namespace

OpBuilder::OpBuilder(const Op& op, std::initializer_list<Static> statics, std::string name)
    : dsl::Builder(name.empty() ? std::string(op.name) : std::move(name)), op_(&parsed(op)) {
  for (const Static& fixed : statics) statics_.emplace(fixed.symbol, fixed.value);
}

dsl::Value OpBuilder::extent(std::string_view symbol, SourceLoc loc) {
  const auto found = dims_.find(symbol);
  if (found != dims_.end()) return found->second;
  return dims_.emplace(symbol, dim(word_of(symbol), {}, loc)).first->second;
}

dsl::Arg OpBuilder::arg(const Expression& extent, SourceLoc loc) {
  const Statics scope(statics_);
  const std::vector<std::string> names = extent.names();
  if (std::all_of(names.begin(), names.end(), [&](const auto& name) { return scope.find(name); })) {
    return extent.integer(scope);
  }
  const auto name = extent.single_name();
  TESSERA_CHECK(name.has_value(), fmt::format("{}: the extent {} needs a constant for each name",
                                              op_->op->name, extent.text()));
  return this->extent(*name, loc);
}

dsl::Ref OpBuilder::tensor(std::string_view name, Options options, SourceLoc loc) {
  const TensorRule* rule = op_->signature.find_tensor(name.substr(0, name.find('.')));
  TESSERA_CHECK(rule != nullptr && !rule->scales,
                fmt::format("{} declares no plain tensor {}", op_->op->name, name));
  if (!options.dtype) {
    TESSERA_CHECK(rule->dtypes.size() == 1 && dtype_named(rule->dtypes.front()),
                  fmt::format("{}: tensor {} has several dtypes", op_->op->name, name));
    options.dtype = dtype_named(rule->dtypes.front());
  }
  std::vector<dsl::Arg> shape;
  for (const Expression& extent : rule->shape) shape.push_back(arg(extent, loc));
  dsl::TensorOptions declared;
  declared.align = options.align > 0 ? options.align : bytes(*options.dtype);
  std::string in_kernel(name);
  std::replace(in_kernel.begin(), in_kernel.end(), '.', '_');
  if (rule->layout == TensorRule::Layout::rows && shape.size() == 2) {
    declared.strides = {stride(in_kernel + "_stride", {}, loc), 1};
  }
  if (rule->role == Role::in) {
    return input(in_kernel, *options.dtype, std::move(shape), declared, loc);
  }
  return output(in_kernel, *options.dtype, std::move(shape), declared, loc);
}

dsl::Value OpBuilder::param(std::string_view name, SourceLoc loc) {
  const ParamRule* rule = op_->signature.find_param(name);
  TESSERA_CHECK(rule != nullptr, fmt::format("{} has no parameter {}", op_->op->name, name));
  return scalar(std::string(name),
                rule->type == ParamRule::Type::floating ? DType::f32 : DType::i32, loc);
}

}  // namespace tessera::kernels
