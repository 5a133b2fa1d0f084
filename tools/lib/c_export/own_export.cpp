#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "dsl/base/error.h"
#include "dsl/ir/extents.h"
#include "kernels/jit/argument_binder.h"
#include "tools/lib/c_export/c_calls.h"

namespace tessera::tools {
namespace {

/// The places of a kernel's dims, extents first, as ArgumentBinder has them.
std::vector<CDim::Place> places_of(const ir::Kernel& kernel, const ir::VarRef& dim) {
  std::vector<CDim::Place> places;
  for (const bool is_stride : {false, true}) {
    for (size_t t = 0; t < kernel.tensors.size(); ++t) {
      const ir::Buffer& buffer = *kernel.tensors[t];
      const std::vector<ir::Expr>& exprs = is_stride ? buffer.strides : buffer.shape;
      for (size_t d = 0; d < exprs.size(); ++d) {
        if (exprs[d]->op == ir::Op::var && exprs[d]->var == dim)
          places.push_back({t, d, is_stride});
      }
    }
  }
  return places;
}

int64_t most_of(DType type) {
  return bits(type) == 64 ? std::numeric_limits<int64_t>::max()
                          : std::numeric_limits<int32_t>::max();
}

std::string texts(const std::vector<ir::Expr>& exprs) {
  std::vector<std::string> all;
  for (const ir::Expr& expr : exprs) all.push_back(ir::to_string(expr));
  return fmt::format("[{}]", fmt::join(all, ", "));
}

class OwnCall {
 public:
  explicit OwnCall(const ir::Kernel& kernel) : kernel_(kernel) {
    for (const ir::VarRef& scalar : kernel.scalars) {
      if (scalar->per_sm == 0) given_.push_back(scalar);
    }
  }

  CNumber number(const ir::Expr& expr) const {
    return {c_code(expr, code_of()), ir::is_constant(expr) ? "" : ir::to_string(expr)};
  }

  void add_arguments(CCall& made) const {
    CNames names({"given"});  // a local beside them
    for (const ir::BufferRef& buffer : kernel_.tensors) {
      CTensor tensor;
      tensor.name = names.unique(buffer->name);
      tensor.dtype = buffer->dtype;
      tensor.declared = fmt::format("{}{}", name(buffer->dtype), texts(buffer->shape));
      tensor.is_output = buffer->is_output;
      tensor.is_optional = buffer->optional;
      tensor.may_alias = buffer->may_alias;
      tensor.align = buffer->align;
      tensor.role = buffer->is_output ? "out" : "in";
      for (const ir::Expr& extent : buffer->shape) {
        tensor.shape.push_back(number(extent));
        tensor.is_index.push_back(extent->op != ir::Op::var && extent->type == DType::i32);
      }
      for (const ir::Expr& stride : buffer->strides) tensor.strides.push_back(number(stride));
      made.tensors.push_back(std::move(tensor));
    }
    for (const ir::VarRef& var : kernel_.dims) {
      CDim dim;
      dim.name = var->name;
      dim.places = places_of(kernel_, var);
      dim.multiple = std::max<int64_t>(var->multiple_of, 1);
      dim.most = most_of(var->type);
      if (var->lower) dim.least = number(var->lower);
      if (var->upper)
        dim.limit = number(ir::binary(ir::Op::sub, var->upper, ir::constant(var->upper->type, 1)));
      made.dims.push_back(std::move(dim));
    }
    for (const ir::VarRef& scalar : given_) {
      made.scalars.push_back({names.unique(scalar->name), scalar->type});
    }
    for (const auto& loop : kernels::jit::persistent_loops(kernel_)) add_limits(loop, made);
  }

  CLaunch launch(const kernels::jit::DryLaunch& dry,
                 std::shared_ptr<const runtime::Image> image) const {
    std::vector<std::string> pointers, slots;
    for (size_t t = 0; t < kernel_.tensors.size(); ++t) {
      pointers.push_back(fmt::format("ts_pointer(&call->views[{}], 0)", t));
    }
    for (size_t i = 0; i < kernel_.dims.size(); ++i) {
      slots.push_back(fmt::format("call->dims[{}]", i));
    }
    for (const ir::VarRef& scalar : kernel_.scalars) slots.push_back(code_of()(scalar));
    return c_launch(dry, std::move(image), pointers, slots);
  }

 private:
  CodeOf code_of() const {
    return [this](const ir::VarRef& var) {
      const auto dim = std::find(kernel_.dims.begin(), kernel_.dims.end(), var);
      if (dim != kernel_.dims.end()) {
        return fmt::format("call->dims[{}]", dim - kernel_.dims.begin());
      }
      if (var->per_sm > 0) return fmt::format("((int64_t){} * call->num_sms)", var->per_sm);
      const auto scalar = std::find(given_.begin(), given_.end(), var);
      return fmt::format("call->scalars[{}]", scalar - given_.begin());
    };
  }

  // The kernel counts tiles in i32, a step beyond the last one too. A step of multiprocessors is known only where the
  // device is: 2^16 blocks are more than any has.
  void add_limits(const kernels::jit::PersistentLoop& loop, CCall& made) const {
    constexpr int64_t kLast = std::numeric_limits<int32_t>::max();
    constexpr int64_t kMostBlocks = 1 << 16;
    std::vector<ir::VarRef> vars;
    ir::collect_vars(loop.step, vars);
    const bool is_per_sm = std::any_of(vars.begin(), vars.end(),
                                       [](const ir::VarRef& var) { return var->per_sm > 0; });
    const std::string tiles = c_code_in_dtypes(loop.tiles, code_of());
    const std::string step =
        is_per_sm ? c_integer(kMostBlocks) : c_code_in_dtypes(loop.step, code_of());
    made.limits.push_back({fmt::format("ts_add({}, {}, &bad)", tiles, step),
                           fmt::format("{} and a step", ir::to_string(loop.tiles)), kLast});
    for (const ir::Expr& divisor : loop.divisors) {
      made.limits.push_back({c_code_in_dtypes(divisor, code_of()), ir::to_string(divisor), kLast});
    }
  }

  const ir::Kernel& kernel_;
  std::vector<ir::VarRef> given_;  // scalars that are arguments
};

}  // namespace

CCall own_c_call(const kernels::OpInfo& op, const kernels::BenchCase& example,
                 const CExportOptions& options) {
  if (!options.free_extent.empty()) {
    throw Error({.kind = ErrorKind::argument,
                 .op = op.name,
                 .what = "every dim of a kernel of one's own is free",
                 .argument = "free",
                 .expected = "no word",
                 .got = fmt::format("'{}'", options.free_extent)});
  }
  std::vector<DryCall> calls;
  for (const Target target : options.targets) {
    calls.push_back(dry_call(op, example, target, options.model));
  }
  const Images images = compile_launches(calls, options);
  CCall made;
  made.purpose = "a kernel of the caller's own";
  made.origin = op.purpose.empty() ? "all dims are free" : op.purpose;
  const OwnCall own(calls[0].launches[0].kernel);
  own.add_arguments(made);
  for (size_t t = 0; t < calls.size(); ++t) {
    made.targets.push_back(
        {options.targets[t],
         {OwnCall(calls[t].launches[0].kernel).launch(calls[t].launches[0], images[t][0])}});
  }
  made.fixed.push_back("Every dim and scalar that the kernel declares is an argument of the call.");
  return made;
}

}  // namespace tessera::tools
