// Numbers of a call with one free extent. The call is made at many values of it; each number that a launch or a check needs
// has the same place in the account of each call, so its values are a row. A row gets the formula
//
//   factor * ceil_div(extent, divisor) + constant
//
// with a divisor that is a power of two: tiles and paddings are. Every value of the row must agree. All else of the
// accounts (kernels, their order, which tensor a pointer is) must be the same text.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "dsl/base/error.h"
#include "kernels/jit/launch_plan.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/buckets.h"
#include "kernels/signature/table.h"
#include "tools/lib/c_export/c_calls.h"

namespace tessera::tools {
namespace {

using kernels::OpInfo;
using kernels::OutputInfo;

constexpr int64_t kMostFree = int64_t{1} << 20;  // the tests of buckets go so far
constexpr int64_t kDense = 70;  // values at the begin of a bucket, one after the other
constexpr int64_t kMostDivisor = 1024;
constexpr int64_t kWorkspaceUnit = 256;  // bytes

int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

[[noreturn]] void refuse(const std::string& op, const std::string& symbol, std::string expected,
                         std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .op = op,
               .what = fmt::format("the extent '{}' cannot be free", symbol),
               .argument = "free",
               .expected = std::move(expected),
               .got = std::move(got)});
}

/// The numbers of calls, by their place. A call is told with begin(), then a number after the other.
class Numbers {
 public:
  Numbers(std::string op, std::string symbol) : op_(std::move(op)), symbol_(std::move(symbol)) {}

  void begin(int64_t extent) {
    extents_.push_back(extent);
    rows_.emplace_back();
    next_ = 0;
  }
  /// After the last call: the same places again, now with formulas.
  void fit() { is_fitted_ = true, next_ = 0; }

  CNumber operator()(int64_t value, const std::string& what) {
    if (is_fitted_) return formula(next_++, what);
    rows_.back().push_back(value);
    return {};
  }

 private:
  CNumber formula(size_t place, const std::string& what) const {
    const auto value = [&](size_t call) { return rows_[call].at(place); };
    bool is_constant = true;
    for (size_t c = 1; c < rows_.size(); ++c) is_constant = is_constant && value(c) == value(0);
    if (is_constant) return {c_integer(value(0))};
    const size_t last = rows_.size() - 1;
    for (int64_t divisor = 1; divisor <= kMostDivisor; divisor *= 2) {
      const auto count = [&](size_t call) { return (extents_[call] + divisor - 1) / divisor; };
      const int64_t steps = count(last) - count(0);
      if (steps == 0 || (value(last) - value(0)) % steps != 0) continue;
      const int64_t factor = (value(last) - value(0)) / steps;
      const int64_t constant = value(0) - factor * count(0);
      bool agrees = true;
      for (size_t c = 0; c < rows_.size() && agrees; ++c) {
        agrees = value(c) == factor * count(c) + constant;
      }
      if (agrees) return text(factor, divisor, constant);
    }
    refuse(op_, symbol_, fmt::format("numbers of the form a * ceil({} / b) + c", symbol_),
           fmt::format("{} is {} for {} = {}, and {} for {}", what, value(0), symbol_, extents_[0],
                       value(last), extents_[last]));
  }

  CNumber text(int64_t factor, int64_t divisor, int64_t constant) const {
    CNumber made{"call->dims[0]", symbol_};
    if (divisor > 1) {
      made.code =
          fmt::format("ts_div(ts_add({}, {}, &bad), {}, &bad)", made.code, divisor - 1, divisor);
      made.formula = fmt::format("ceil({} / {})", made.formula, divisor);
    }
    if (factor != 1) {
      made.code = fmt::format("ts_mul({}, {}, &bad)", made.code, c_integer(factor));
      made.formula = fmt::format("{} * {}", factor, made.formula);
    }
    if (constant != 0) {
      made.code = fmt::format("ts_add({}, {}, &bad)", made.code, c_integer(constant));
      made.formula =
          fmt::format("{} {} {}", made.formula, constant < 0 ? "-" : "+", std::abs(constant));
    }
    return made;
  }

  std::string op_, symbol_;
  std::vector<int64_t> extents_;
  std::vector<std::vector<int64_t>> rows_;  // of a call
  size_t next_ = 0;
  bool is_fitted_ = false;
};

/// A tensor or a part of the workspace.
struct Owner {
  std::string name;
  bool is_workspace = false;
  size_t index = 0;   // of the call's tensors
  CNumber base = {};  // in the workspace
};

/// Tells Numbers of a call on all targets, and makes the CCall.
class Account {
 public:
  Account(const OpInfo& op, Numbers& numbers) : op_(op), numbers_(numbers) {}

  /// `images` is null while numbers are collected.
  CCall tell(const std::vector<DryCall>& calls, const CExportOptions& options,
             const Images* images) {
    structure_.clear();
    owners_.clear();
    CCall made;
    add_tensors(calls[0], made);
    add_workspace(calls, made);
    for (size_t c = 0; c < calls.size(); ++c) {
      CTarget target{options.targets[c], {}};
      for (size_t i = 0; i < calls[c].launches.size(); ++i) {
        add_launch(calls[c], i, images == nullptr ? nullptr : (*images)[c][i], made, target);
      }
      structure_ += "\n";
      made.targets.push_back(std::move(target));
    }
    return made;
  }
  /// All of the last call but its numbers.
  const std::string& structure() const { return structure_; }

 private:
  /// Names of the given tensors, in the order of the op's table.
  std::vector<std::pair<std::string, const kernels::TensorInfo*>> given(const DryCall& call) const {
    std::vector<std::pair<std::string, const kernels::TensorInfo*>> names;
    for (const kernels::TensorInfo& info : op_.tensors) {
      if (!info.list && call.tensors.contains(info.name)) names.emplace_back(info.name, &info);
      for (int i = 0; info.list; ++i) {
        const std::string name = fmt::format("{}.{}", info.name, i);
        if (!call.tensors.contains(name)) break;
        names.emplace_back(name, &info);
      }
    }
    return names;
  }

  void add_tensors(const DryCall& call, CCall& made) {
    CNames names({"given"});  // a local beside them
    for (const auto& [name, info] : given(call)) {
      const TensorView& view = call.tensors.at(name);
      CTensor tensor;
      tensor.name = names.unique(name);
      tensor.dtype = view.dtype;
      tensor.is_output = info->role != kernels::Role::in;
      tensor.role = info->role == kernels::Role::in    ? "in"
                    : info->role == kernels::Role::out ? "out"
                                                       : "in and out";
      std::vector<std::string> extents;
      for (int d = 0; d < view.rank(); ++d) {
        tensor.shape.push_back(numbers_(view.shape[d], fmt::format("extent {} of {}", d, name)));
        tensor.is_index.push_back(false);
        const CNumber& extent = tensor.shape.back();
        extents.push_back(extent.formula.empty() ? extent.code : extent.formula);
      }
      for (int d = 0; d < view.rank(); ++d) {
        tensor.strides.push_back(
            numbers_(view.strides[d], fmt::format("stride {} of {}", d, name)));
      }
      tensor.declared = fmt::format("{}[{}]", tessera::name(view.dtype), fmt::join(extents, ", "));
      for (const OutputInfo& output : call.outputs) {
        const int64_t bytes = output.storage_elements * tessera::bytes(output.dtype);
        if (output.name == name && bytes > view.span_bytes()) {
          tensor.allocated = numbers_(bytes, fmt::format("bytes of {}", name));
        }
        if (output.name == name && output.starts_at_zero) tensor.role += ", zero before the call";
      }
      structure_ += fmt::format("{} {} {} {}; ", name, tessera::name(view.dtype), view.rank(),
                                tensor.allocated.has_value());
      owners_.push_back({name, false, made.tensors.size()});
      made.tensors.push_back(std::move(tensor));
    }
  }

  // Targets may need different workspaces: each part is as large as the largest.
  void add_workspace(const std::vector<DryCall>& calls, CCall& made) {
    std::map<std::string, int64_t> parts;  // bytes
    for (const DryCall& call : calls) {
      for (const OutputInfo& output : call.outputs) {
        if (!output.workspace) continue;
        int64_t& bytes = parts[output.name];
        bytes = std::max(bytes, output.storage_elements * tessera::bytes(output.dtype));
      }
    }
    int64_t end = 0;
    for (const auto& [name, bytes] : parts) {
      end = round_up(end, kWorkspaceUnit);
      owners_.push_back({name, true, 0, numbers_(end, "a part of the workspace")});
      end += bytes;
    }
    if (end > 0) made.workspace = numbers_(end, "the workspace");
    structure_ += fmt::format("{} owners\n", owners_.size());
  }

  std::string pointer(const DryCall& call, const TensorView& view, const ir::Buffer& buffer,
                      CCall& made) {
    using kernels::jit::LaunchPlan;
    if (kernels::is_absent(view)) return structure_ += "absent ", "NULL";
    if (view.size() == 0) {
      return structure_ += "empty ", fmt::format("(void *)(uintptr_t){}", LaunchPlan::kEmpty);
    }
    constexpr uintptr_t kApart = uintptr_t{1} << 40;  // as placed_nowhere() places tensors
    const auto address = reinterpret_cast<uintptr_t>(view.data);
    for (const Owner& owner : owners_) {
      const auto tensor = call.tensors.find(owner.name);
      if (tensor == call.tensors.end()) continue;
      const auto begin = reinterpret_cast<uintptr_t>(tensor->second.data);
      if (address < begin || address - begin >= kApart) continue;
      const CNumber offset =
          numbers_(static_cast<int64_t>(address - begin), "an offset of a pointer");
      structure_ += fmt::format("{}{} ", owner.is_workspace ? "w" : "t", owner.index);
      if (owner.is_workspace) {
        return fmt::format("call->workspace + {} + {}", owner.base.code, offset.code);
      }
      CTensor& argument = made.tensors[owner.index];
      argument.align = std::max(argument.align, buffer.align);
      argument.may_alias = argument.may_alias || buffer.may_alias;
      return fmt::format("ts_pointer(&call->views[{}], {})", owner.index, offset.code);
    }
    throw Error({.kind = ErrorKind::unsupported,
                 .op = op_.name,
                 .what = "the op cannot be exported as C",
                 .expected = "kernels that use the tensors of the call alone",
                 .got = fmt::format("other memory for '{}'", buffer.name)});
  }

  void add_launch(const DryCall& call, size_t launch, std::shared_ptr<const runtime::Image> image,
                  CCall& made, CTarget& target) {
    const kernels::jit::DryLaunch& dry = call.launches[launch];
    const ir::Kernel& kernel = dry.kernel;
    structure_ += fmt::format("{} {} ", dry.request.op, dry.request.spec.value_or(""));
    std::vector<std::string> pointers, slots;
    for (size_t t = 0; t < kernel.tensors.size(); ++t) {
      pointers.push_back(pointer(call, dry.tensors[t], *kernel.tensors[t], made));
    }
    for (size_t i = 0; i < kernel.dims.size() + kernel.scalars.size(); ++i) {
      const bool is_dim = i < kernel.dims.size();
      const ir::Var& var = is_dim ? *kernel.dims[i] : *kernel.scalars[i - kernel.dims.size()];
      if (var.per_sm > 0) {
        slots.push_back(fmt::format("(int64_t){} * call->num_sms", var.per_sm));
      } else {
        slots.push_back(numbers_(dry.binding.slots.at(i), "'" + var.name + "' of a kernel").code);
      }
    }
    structure_ += "; ";
    if (image) target.launches.push_back(c_launch(dry, std::move(image), pointers, slots));
  }

  const OpInfo& op_;
  Numbers& numbers_;
  std::vector<Owner> owners_;
  std::string structure_;
};

std::vector<DryCall> dry_calls(const OpInfo& op, const kernels::BenchCase& example,
                               const CExportOptions& options) {
  std::vector<DryCall> calls;
  for (const Target target : options.targets) {
    calls.push_back(dry_call(op, example, target, options.model));
  }
  return calls;
}

/// Values of a free extent at which calls are made.
std::vector<int64_t> values_in(const kernels::TokenBucket& bucket) {
  std::vector<int64_t> values;
  for (int64_t n = bucket.first; n < bucket.last;
       n = n < bucket.first + kDense ? n + 1 : n * 3 / 2 + 1) {
    values.push_back(n);
  }
  values.push_back(bucket.last);
  return values;
}

kernels::TokenBucket free_range(const OpInfo& op, const std::string& text,
                                const std::string& symbol) {
  const auto& all = kernels::all_ops();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const kernels::Op* one) { return one->name == op.name; });
  TESSERA_CHECK(found != all.end(), op.name + " is no shipped op");
  const auto bucket = kernels::bucket_of(kernels::parsed(**found), text, symbol);
  if (!bucket) {
    refuse(op.name, symbol, "T or P, where the op's inputs have it as their number of tokens",
           fmt::format("'{}'", symbol));
  }
  return {bucket->first, std::min(bucket->last, kMostFree)};
}

/// The extents that are the free one alone.
CDim free_dim(const OpInfo& op, const CCall& call, const std::string& symbol,
              const kernels::TokenBucket& range) {
  CDim dim;
  dim.name = symbol;
  for (size_t t = 0; t < call.tensors.size(); ++t) {
    for (size_t d = 0; d < call.tensors[t].shape.size(); ++d) {
      if (call.tensors[t].shape[d].formula == symbol) dim.places.push_back({t, d, false});
    }
  }
  if (dim.places.empty()) {
    refuse(op.name, symbol, "a tensor that has it as an extent", "none");
  }
  dim.most = std::numeric_limits<int32_t>::max();
  dim.least = {c_integer(range.first)};
  dim.limit = {c_integer(range.last)};
  return dim;
}

}  // namespace

CCall op_c_call(const OpInfo& op, const kernels::BenchCase& example,
                const CExportOptions& options) {
  const std::string& symbol = options.free_extent;
  Numbers numbers(op.name, symbol);
  Account account(op, numbers);
  const std::vector<DryCall> calls = dry_calls(op, example, options);
  kernels::TokenBucket range;
  std::string structure;  // of every call
  if (symbol.empty()) {
    numbers.begin(0);
    account.tell(calls, options, nullptr);
    structure = account.structure();
  } else {
    range = free_range(op, example.label, symbol);
    for (const int64_t value : values_in(range)) {
      numbers.begin(value);
      const auto other = op.case_of(kernels::case_with(example.label, symbol, value));
      account.tell(dry_calls(op, other, options), options, nullptr);
      if (structure.empty()) structure = account.structure();
      if (account.structure() == structure) continue;
      refuse(op.name, symbol, fmt::format("the kernels of {} = {}", symbol, range.first),
             fmt::format("others for {} = {}", symbol, value));
    }
  }
  numbers.fit();
  const Images images = compile_launches(calls, options);
  CCall made = account.tell(calls, options, &images);
  TESSERA_CHECK(account.structure() == structure, op.name + ": another call than those before");
  made.purpose = op.purpose;
  made.origin = "the case " + example.label;
  made.fixed.push_back(
      symbol.empty() ? "All extents, strides, dtypes and parameters are those of the case."
                     : fmt::format("{} is free, from {} to {}: the kernels are the same there. "
                                   "All other extents, dtypes and parameters are those of "
                                   "the case.",
                                   symbol, range.first, range.last));
  if (!symbol.empty()) made.dims.push_back(free_dim(op, made, symbol, range));
  return made;
}

}  // namespace tessera::tools
