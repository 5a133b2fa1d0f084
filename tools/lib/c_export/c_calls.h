#pragma once
// Internal to tools/lib/c_export: the two ways to a CCall.

#include <memory>
#include <string>
#include <vector>

#include "kernels/jit/dry_launch.h"
#include "kernels/op.h"
#include "tools/lib/c_export/c_export.h"
#include "tools/lib/c_export/c_expression.h"
#include "tools/lib/c_export/c_model.h"

namespace tessera::tools {

/// The launches of a case on a target, with the views of its tensors at addresses that no memory has.
struct DryCall {
  kernels::Tensors tensors;                  // workspaces too
  std::vector<kernels::OutputInfo> outputs;  // and workspaces
  std::vector<kernels::jit::DryLaunch> launches;
};
DryCall dry_call(const kernels::OpInfo& op, const kernels::BenchCase& example, Target target,
                 const kernels::jit::GpuModel& model);

/// A launch whose pointers, dims and scalars have this code, in the order of the kernel's parameters.
CLaunch c_launch(const kernels::jit::DryLaunch& launch, std::shared_ptr<const runtime::Image> image,
                 const std::vector<std::string>& pointers, const std::vector<std::string>& slots);

/// Compiles the kernels of the calls of all targets side by side.
using Images = std::vector<std::vector<std::shared_ptr<const runtime::Image>>>;
Images compile_launches(const std::vector<DryCall>& calls, const CExportOptions& options);

/// A kernel of one's own: every dim is free, and its checks are those of jit::ArgumentBinder.
CCall own_c_call(const kernels::OpInfo& op, const kernels::BenchCase& example,
                 const CExportOptions& options);

/// A shipped op at the extents of a case, or with one free token count.
CCall op_c_call(const kernels::OpInfo& op, const kernels::BenchCase& example,
                const CExportOptions& options);

}  // namespace tessera::tools
