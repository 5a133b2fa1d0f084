#include "tools/lib/calls/kernel_op.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"
#include "kernels/jit/argument_binder.h"
#include "kernels/jit/host_expr.h"
#include "kernels/jit/jit.h"
#include "kernels/jit/view_check.h"
#include "kernels/signature/param_grammar.h"
#include "kernels/views/dry_call.h"

namespace tessera::tools {
namespace {

using kernels::BenchCase;
using kernels::OpInfo;
using kernels::ParamInfo;
using kernels::Params;
using kernels::ParamValue;
using kernels::TensorInfo;
using kernels::Tensors;
using kernels::jit::Scalar;

/// The dims, then the scalars, of one call.
using Slots = std::vector<int64_t>;

[[noreturn]] void fail(const std::string& op, const std::string& argument, std::string what,
                       std::string expected, std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .op = op,
               .what = std::move(what),
               .argument = argument,
               .expected = std::move(expected),
               .got = std::move(got)});
}

/// Whether the statements take values from a tensor, atomic operations included.
bool reads(const ir::Body& body, const ir::Buffer* tensor) {
  return std::any_of(body.begin(), body.end(), [&](const ir::Stmt& stmt) {
    const ir::BufferRef* from = nullptr;
    if (const auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) from = &load->buffer;
    if (const auto* copy = std::get_if<ir::Copy>(&stmt.node)) from = &copy->from.buffer;
    if (const auto* atomic = std::get_if<ir::Atomic>(&stmt.node)) from = &atomic->buffer;
    if (from != nullptr) return &codegen::storage_of(**from) == tensor;
    if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) return reads(loop->body, tensor);
    const auto* branch = std::get_if<ir::If>(&stmt.node);
    return branch != nullptr && (reads(branch->then, tensor) || reads(branch->otherwise, tensor));
  });
}

bool is_dim(const ir::Expr& expr, const ir::VarRef& dim) {
  return expr->op == ir::Op::var && expr->var == dim;
}

bool has_dim(const ir::Buffer& tensor, const ir::VarRef& dim) {
  const auto is_it = [&](const ir::Expr& expr) { return is_dim(expr, dim); };
  return std::any_of(tensor.shape.begin(), tensor.shape.end(), is_it) ||
         std::any_of(tensor.strides.begin(), tensor.strides.end(), is_it);
}

std::vector<std::string> texts(const std::vector<ir::Expr>& exprs) {
  std::vector<std::string> list;
  for (const ir::Expr& expr : exprs) list.push_back(ir::to_string(expr));
  return list;
}

std::string layout_text(const ir::Buffer& tensor) {
  ir::Expr stride = ir::constant(DType::i64, 1);
  for (size_t d = tensor.shape.size(); d-- > 0;) {
    if (!ir::equal(tensor.strides[d], stride)) {
      return fmt::format("strides [{}]", fmt::join(texts(tensor.strides), ", "));
    }
    stride = stride * ir::cast(DType::i64, tensor.shape[d]);
  }
  return "row_major";
}

ParamInfo dim_param(const ir::VarRef& dim, kernels::Default def) {
  return kernels::count(dim->name, "", std::move(def), 0);
}

ParamInfo scalar_param(const ir::VarRef& scalar) {
  if (scalar->type == DType::boolean)
    return {scalar->name, ParamInfo::Type::boolean, {}, {}, {}, ""};
  if (is_float(scalar->type)) return kernels::number(scalar->name);
  ParamInfo param = kernels::integer(scalar->name, {});
  if (!is_signed(scalar->type)) param.min = 0;
  return param;
}

Scalar scalar_of(const ir::Var& scalar, const ParamValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* number = std::get_if<double>(&value)) return *number;
  const auto* integer = std::get_if<int64_t>(&value);
  TESSERA_CHECK(integer != nullptr, "scalar '" + scalar.name + "' was not checked");
  return *integer;
}

/// Values from `lowest` to `highest`, the same for the same element on every machine.
std::function<int64_t(int64_t)> values_in(int64_t lowest, int64_t highest) {
  return [=](int64_t i) {
    const uint64_t count = static_cast<uint64_t>(highest) - static_cast<uint64_t>(lowest) + 1;
    uint64_t mixed = (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15;
    mixed = (mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93;
    mixed ^= mixed >> 32;
    return static_cast<int64_t>(static_cast<uint64_t>(lowest) +
                                (count == 0 ? mixed : mixed % count));
  };
}

struct FoundDim {
  int64_t value = 0;
  std::string origin;  // "x dim 0"
};
/// The dim in the first tensor that has it alone as an extent, else as a stride.
std::optional<FoundDim> find_dim(const ir::Kernel& kernel, const ir::VarRef& dim,
                                 const Tensors& given) {
  for (const bool of_strides : {false, true}) {
    for (const ir::BufferRef& tensor : kernel.tensors) {
      const auto found = given.find(tensor->name);
      if (found == given.end()) continue;
      const std::vector<ir::Expr>& exprs = of_strides ? tensor->strides : tensor->shape;
      const Dims& numbers = of_strides ? found->second.strides : found->second.shape;
      for (int d = 0; d < numbers.rank; ++d) {
        if (!is_dim(exprs[static_cast<size_t>(d)], dim)) continue;
        return FoundDim{numbers[d],
                        fmt::format("{} {} {}", tensor->name, of_strides ? "stride" : "dim", d)};
      }
    }
  }
  return std::nullopt;
}

/// A kernel and what was made of it once; shared by the functions of its OpInfo.
class KernelOp {
 public:
  KernelOp(std::string name, ir::Kernel kernel)
      : name_(std::move(name)),
        kernel_(std::move(kernel)),
        binder_(name_, kernel_, kernels::jit::Author::caller) {}

  std::vector<TensorInfo> tensors() const;
  std::vector<ParamInfo> params() const;
  BenchCase case_of(const std::string& text, const OpInfo& op) const;

  std::vector<kernels::OutputInfo> outputs(const Tensors& inputs, const Params& params) const;
  /// The kernel, or nothing for a call without work. Checks all arguments but their memory.
  std::vector<ir::Kernel> launched(const Tensors& tensors, const Params& params) const;
  void run(const Tensors& tensors, const Params& params, kernels::Stream stream);

 private:
  struct CaseWord {
    bool is_given = true;
    std::function<int64_t(int64_t)> values = {};
  };
  CaseWord case_word(const ir::Buffer& tensor, const std::string& value) const;
  Slots slots_of(const Tensors& given, const Params& params) const;
  void check_kind(const ir::Buffer& tensor, const TensorView& view) const;
  Dims evaluate(const std::vector<ir::Expr>& exprs, const Slots& slots) const;
  std::vector<Scalar> scalars_of(const Params& params) const;
  void add_scalars(Slots& slots, const Params& params) const;
  std::vector<TensorView> arguments(const Tensors& tensors) const;

  std::string name_;
  ir::Kernel kernel_;
  kernels::jit::ArgumentBinder binder_;
  std::once_flag lowered_;
  std::optional<kernels::jit::Function> function_;
};

std::vector<TensorInfo> KernelOp::tensors() const {
  std::vector<TensorInfo> list;
  for (const ir::BufferRef& tensor : kernel_.tensors) {
    TensorInfo info;
    info.name = tensor->name;
    const bool in_place = tensor->is_output && reads(kernel_.body, tensor.get());
    info.role = in_place            ? kernels::Role::inout
                : tensor->is_output ? kernels::Role::out
                                    : kernels::Role::in;
    info.optional = tensor->optional || in_place;
    info.dtypes = {std::string(name(tensor->dtype))};
    info.shape = texts(tensor->shape);
    info.layout = layout_text(*tensor);
    list.push_back(std::move(info));
  }
  return list;
}

std::vector<ParamInfo> KernelOp::params() const {
  std::vector<ParamInfo> list;
  for (const ir::VarRef& dim : kernel_.dims) {
    bool always = false, at_times = false;
    for (const ir::BufferRef& tensor : kernel_.tensors) {
      if (!has_dim(*tensor, dim)) continue;
      always = always || (!tensor->is_output && !tensor->optional);
      at_times = at_times || !tensor->is_output || reads(kernel_.body, tensor.get());
    }
    if (always) continue;
    list.push_back(dim_param(dim, at_times ? kernels::Default(ParamValue()) : kernels::Default()));
  }
  for (const ir::VarRef& scalar : kernel_.scalars) list.push_back(scalar_param(scalar));
  return list;
}

/// The words of a case about an input: "0..255" or "none".
KernelOp::CaseWord KernelOp::case_word(const ir::Buffer& tensor, const std::string& value) const {
  if (tensor.optional && value == "none") return {.is_given = false};
  const auto refuse = [&](std::string expected) {
    fail(name_, tensor.name, fmt::format("tensor '{}' cannot have these values", tensor.name),
         std::move(expected), fmt::format("'{}'", value));
  };
  if (!is_integer(tensor.dtype)) {
    refuse(tensor.optional ? "none, for an optional tensor that is not given"
                           : "no word: only values of integers can be chosen");
  }
  const std::string range = fmt::format("two values of {} in order, such as 0..15{}",
                                        name(tensor.dtype), tensor.optional ? ", or none" : "");
  const size_t dots = value.find("..");
  if (dots == std::string::npos) refuse(range);
  int64_t lowest = 0, highest = 0;
  const char* const middle = value.data() + dots;
  const char* const end = value.data() + value.size();
  const auto low = std::from_chars(value.data(), middle, lowest);
  const auto high = std::from_chars(middle + 2, end, highest);
  const bool is_read =
      low.ec == std::errc() && low.ptr == middle && high.ec == std::errc() && high.ptr == end;
  if (!is_read || lowest > highest || !Scalar(lowest).slot(tensor.dtype) ||
      !Scalar(highest).slot(tensor.dtype)) {
    refuse(range);
  }
  return {.values = values_in(lowest, highest)};
}

BenchCase KernelOp::case_of(const std::string& text, const OpInfo& op) const {
  // Dims and scalars are read like the parameters of a call that needs them all.
  OpInfo words;
  words.name = name_;
  for (const ir::VarRef& dim : kernel_.dims) words.params.push_back(dim_param(dim, {}));
  for (const ir::VarRef& scalar : kernel_.scalars) words.params.push_back(scalar_param(scalar));
  std::map<std::string, CaseWord> of_tensors;
  std::vector<std::string> of_params;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    const std::string key = word.substr(0, word.find('='));
    const auto tensor =
        std::find_if(kernel_.tensors.begin(), kernel_.tensors.end(),
                     [&](const ir::BufferRef& t) { return !t->is_output && t->name == key; });
    const bool is_param = std::any_of(words.params.begin(), words.params.end(),
                                      [&](const ParamInfo& param) { return param.name == key; });
    if (tensor == kernel_.tensors.end() || is_param || key.size() == word.size()) {
      of_params.push_back(word);
    } else if (!of_tensors.emplace(key, case_word(**tensor, word.substr(key.size() + 1))).second) {
      fail(name_, key, fmt::format("tensor '{}' is described twice", key), "each tensor once",
           word);
    }
  }
  const Params values = kernels::parse_params(words, of_params);

  BenchCase made;
  made.label = text.empty() ? "fixed shapes" : text;
  for (const ParamInfo& param : op.params) made.params.emplace(param.name, values.at(param.name));
  Slots slots;
  for (const ir::VarRef& dim : kernel_.dims) {
    slots.push_back(std::get<int64_t>(values.at(dim->name)));
  }
  add_scalars(slots, values);
  for (const ir::BufferRef& tensor : kernel_.tensors) {
    if (tensor->is_output) continue;
    const auto said = of_tensors.find(tensor->name);
    if (said != of_tensors.end() && !said->second.is_given) continue;
    made.inputs.push_back({tensor->name, tensor->dtype, evaluate(tensor->shape, slots),
                           evaluate(tensor->strides, slots),
                           said == of_tensors.end() ? nullptr : said->second.values});
  }
  return made;
}

std::vector<kernels::OutputInfo> KernelOp::outputs(const Tensors& inputs,
                                                   const Params& params) const {
  const Slots slots = slots_of(inputs, params);
  const Device device = inputs.empty() ? Device::cpu() : inputs.begin()->second.device;
  std::vector<kernels::OutputInfo> list;
  Tensors all = inputs;
  for (const ir::BufferRef& tensor : kernel_.tensors) {
    if (!tensor->is_output) continue;
    const Dims shape = evaluate(tensor->shape, slots), strides = evaluate(tensor->strides, slots);
    for (const Dims* numbers : {&shape, &strides}) {
      if (std::all_of(numbers->begin(), numbers->end(), [](int64_t n) { return n >= 0; })) continue;
      fail(name_, tensor->name,
           fmt::format("argument '{}' would be smaller than nothing", tensor->name),
           "extents and strides from 0 on",
           fmt::format("extents {}, strides {}", to_string(shape), to_string(strides)));
    }
    const TensorView view(nullptr, tensor->dtype, shape, strides, device);
    list.push_back({tensor->name, tensor->dtype, shape, strides,
                    std::max(view.span_bytes() / bytes(tensor->dtype), view.size())});
    all.emplace(tensor->name, view);
  }
  launched(all, params);  // the checks of the call
  return list;
}

std::vector<ir::Kernel> KernelOp::launched(const Tensors& tensors, const Params& params) const {
  const std::vector<TensorView> views = arguments(kernels::placed_nowhere(tensors, Device::cpu()));
  if (binder_.bind(views, scalars_of(params)).empty) return {};
  return {kernel_};
}

void KernelOp::run(const Tensors& tensors, const Params& params, kernels::Stream stream) {
  std::call_once(lowered_, [&] { function_.emplace(kernel_); });
  (*function_)(arguments(tensors), scalars_of(params), stream);
}

/// Dims as the tensors have them, else as the parameters say.
Slots KernelOp::slots_of(const Tensors& given, const Params& params) const {
  for (const ir::BufferRef& tensor : kernel_.tensors) {
    const auto found = given.find(tensor->name);
    if (found != given.end()) check_kind(*tensor, found->second);
  }
  Slots slots;
  for (const ir::VarRef& dim : kernel_.dims) {
    const std::optional<FoundDim> found = find_dim(kernel_, dim, given);
    const auto param = params.find(dim->name);
    const int64_t* said = param == params.end() ? nullptr : std::get_if<int64_t>(&param->second);
    if (said != nullptr && found && *said != found->value) {
      fail(name_, dim->name, fmt::format("parameter '{}' has a wrong value", dim->name),
           fmt::format("{} (from {})", found->value, found->origin), fmt::format("{}", *said));
    }
    if (said == nullptr && !found) {
      fail(name_, dim->name, fmt::format("parameter '{}' is missing", dim->name),
           "a number, where no tensor says it", "none");
    }
    slots.push_back(found ? found->value : *said);
  }
  add_scalars(slots, params);
  return slots;
}

void KernelOp::check_kind(const ir::Buffer& tensor, const TensorView& view) const {
  kernels::check_view(name_, tensor.name, view, kernels::Use::read);
  const bool same_rank = view.rank() == static_cast<int>(tensor.shape.size());
  if (same_rank && view.dtype == tensor.dtype) return;
  fail(name_, tensor.name,
       fmt::format("argument '{}' has the wrong {}", tensor.name, same_rank ? "dtype" : "rank"),
       fmt::format("{}[{}]", name(tensor.dtype), fmt::join(texts(tensor.shape), ", ")),
       to_string(view));
}

Dims KernelOp::evaluate(const std::vector<ir::Expr>& exprs, const Slots& slots) const {
  const auto slot_of = [&](const ir::VarRef& var) {
    const auto dim = std::find(kernel_.dims.begin(), kernel_.dims.end(), var);
    if (dim != kernel_.dims.end()) return static_cast<int>(dim - kernel_.dims.begin());
    const auto scalar = std::find(kernel_.scalars.begin(), kernel_.scalars.end(), var);
    return static_cast<int>(kernel_.dims.size()) +
           static_cast<int>(scalar - kernel_.scalars.begin());
  };
  Dims numbers;
  for (const ir::Expr& expr : exprs) {
    numbers.push_back(kernels::jit::HostExpr(expr, slot_of).evaluate(slots, name_));
  }
  return numbers;
}

std::vector<Scalar> KernelOp::scalars_of(const Params& params) const {
  std::vector<Scalar> scalars;
  for (const ir::VarRef& scalar : kernel_.scalars) {
    scalars.push_back(scalar_of(*scalar, params.at(scalar->name)));
  }
  return scalars;
}

void KernelOp::add_scalars(Slots& slots, const Params& params) const {
  const std::vector<Scalar> scalars = scalars_of(params);
  for (size_t i = 0; i < scalars.size(); ++i) {
    const ir::Var& scalar = *kernel_.scalars[i];
    const auto slot = scalars[i].slot(scalar.type);
    if (!slot) {
      fail(name_, scalar.name, fmt::format("parameter '{}' is out of range", scalar.name),
           std::string(name(scalar.type)), scalars[i].value_text());
    }
    slots.push_back(*slot);
  }
}

/// In the order of the kernel; nothing where an optional one is absent.
std::vector<TensorView> KernelOp::arguments(const Tensors& tensors) const {
  std::vector<TensorView> list;
  for (const ir::BufferRef& tensor : kernel_.tensors) {
    const auto found = tensors.find(tensor->name);
    list.push_back(found == tensors.end() ? TensorView() : found->second);
  }
  return list;
}

}  // namespace

OpInfo op_of(const std::string& name, const ir::Kernel& kernel,
             const std::vector<std::string>& cases) {
  const auto shared = std::make_shared<KernelOp>(name, kernel);
  OpInfo op;
  op.name = name;
  op.family = kOwnFamily;
  op.tensors = shared->tensors();
  op.params = shared->params();
  op.outputs = [shared](const Tensors& inputs, const Params& params) {
    return shared->outputs(inputs, params);
  };
  op.kernels = [shared](const Tensors& tensors, const Params& params) {
    return shared->launched(tensors, params);
  };
  op.run = [shared](const Tensors& tensors, const Params& params, kernels::Stream stream) {
    shared->run(tensors, params, stream);
  };
  op.case_of = [shared, table = op](const std::string& text) {
    return shared->case_of(text, table);
  };
  for (const std::string& text : cases.empty() ? std::vector<std::string>{""} : cases) {
    try {
      op.examples.push_back(shared->case_of(text, op));
    } catch (const Error& error) {
      ErrorFields fields = error.fields();
      fields.what = fmt::format("case '{}': {}", text, fields.what);
      throw Error(std::move(fields));
    }
  }
  op.bench = op.examples;
  return op;
}

}  // namespace tessera::tools
