// A launch is a kernel, a grid and parameters. jit computes them from the tensors of a call; an exported file computes
// them in C, from an account of the same call that is made here without a GPU:
//
//   dry call   jit lists the launches of a case, on tensors at addresses that no memory has. Each launch has its kernel
//              (IR, with dims and the expressions of its grid), the views it gets, and the values of its dims and scalars
//   CCall      the same as C: what each argument must be, and per target the launches in order. A pointer is a tensor of
//              the call and an offset; a value is a number or an expression over free extents; grids and tensor maps are
//              the kernel's own expressions over its dims
//   C          c_source.cpp writes the call; c_parts_for() adds the fixed functions that it needs
//
// Two kinds of ops differ in what is free.
//
//   own        a kernel is what its author built, for all values of its dims: own_export.cpp makes every dim free, with
//              the checks of jit::ArgumentBinder
//   shipped    an op chooses kernels and tile sizes in C++, from the extents of the call. So op_export.cpp fixes the
//              extents of a case. One token count may be free within its bucket, where the kernels are the same ones: the
//              export makes the call at many counts and looks for a formula for every number that changes. A number
//              without one, or another kernel, is an error
//
// The invariant: an exported call makes the launches that Tessera's own call with those tensors makes, with the same
// grids, parameters and attributes, but for the L2 window of streamed tensors. tests/tools/c_export_test.cpp compares both
// on a driver made of plain functions.

#include "tools/lib/c_export/c_export.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "dsl/base/error.h"
#include "kernels/views/dry_call.h"
#include "runtime/parallel.h"
#include "runtime/runtime.h"
#include "tools/lib/c_export/c_calls.h"
#include "tools/lib/c_export/c_source.h"
#include "tools/lib/calls/kernel_op.h"

namespace tessera::tools {
namespace {

void check_name(const std::string& op, const std::string& name) {
  if (is_c_name(name)) return;
  throw Error({.kind = ErrorKind::argument,
               .op = op,
               .what = "the function has a name that C does not take",
               .argument = "name",
               .expected = "letters, digits and _, a letter first, at most 64, no keyword",
               .got = fmt::format("'{}'", name)});
}

void check_exportable(const kernels::OpInfo& op) {
  if (!op.trim) return;
  throw Error({.kind = ErrorKind::unsupported,
               .op = op.name,
               .what = "the op cannot be exported as C",
               .expected = "an op whose launches and outputs depend on extents alone",
               .got = "outputs with an extent that the host reads from the device",
               .hint = "call it through Tessera, and export the ops after it"});
}

}  // namespace

DryCall dry_call(const kernels::OpInfo& op, const kernels::BenchCase& example, Target target,
                 const kernels::jit::GpuModel& model) {
  const kernels::jit::TargetScope scope(target, model);
  const kernels::Params params = kernels::check_params(op, example.params);
  const kernels::Tensors inputs = kernels::views_of(example);
  DryCall made;
  made.outputs = op.outputs(inputs, params);
  made.tensors =
      kernels::placed_nowhere(kernels::views_with_outputs(op, inputs, params), Device::cuda(0));
  made.launches = kernels::jit::launches_needed([&] { op.run(made.tensors, params, nullptr); });
  if (!made.launches.empty()) return made;
  throw Error({.kind = ErrorKind::argument,
               .op = op.name,
               .what = "the case launches nothing",
               .argument = "case-of",
               .expected = "a case with something to do",
               .got = fmt::format("'{}'", example.label)});
}

CLaunch c_launch(const kernels::jit::DryLaunch& launch, std::shared_ptr<const runtime::Image> image,
                 const std::vector<std::string>& pointers, const std::vector<std::string>& slots) {
  const ir::Kernel& kernel = launch.kernel;
  CLaunch made;
  CNames names({"barrier", "shape", "strides", "box"});  // locals beside them
  for (size_t t = 0; t < kernel.tensors.size(); ++t) {
    made.pointers.push_back({names.unique(kernel.tensors[t]->name), pointers[t]});
  }
  std::vector<ir::VarRef> vars = kernel.dims;
  vars.insert(vars.end(), kernel.scalars.begin(), kernel.scalars.end());
  for (size_t i = 0; i < vars.size(); ++i) {
    made.slots.push_back({names.unique(vars[i]->name), slots[i]});
  }
  const CodeOf code_of = [&](const ir::VarRef& var) {
    const auto at = std::find(vars.begin(), vars.end(), var);
    TESSERA_CHECK(at != vars.end(), "a host expression uses " + var->name);
    return made.slots[static_cast<size_t>(at - vars.begin())].name;
  };
  for (const ir::Expr& extent : kernel.grid) made.grid.push_back(c_code(extent, code_of));
  made.grid.resize(3, "1");
  for (const KernelParam& param : image->params) {
    if (!param.map) continue;
    CMap map;
    map.name = names.unique(param.name);
    map.dtype = param.dtype;
    map.box = param.map->box;
    map.swizzle = param.map->swizzle;
    map.is_empty = param.map->tensor == TensorMapParam::kNoTensor;
    if (!map.is_empty) {
      const auto tensor = static_cast<size_t>(param.map->tensor);
      map.tensor = made.pointers.at(tensor).name;
      for (const ir::Expr& extent : kernel.tensors[tensor]->shape) {
        map.shape.push_back(c_code(extent, code_of));
      }
      for (const ir::Expr& stride : kernel.tensors[tensor]->strides) {
        map.strides.push_back(c_code(stride, code_of));
      }
    }
    made.maps.push_back(std::move(map));
  }
  made.image = std::move(image);
  return made;
}

Images compile_launches(const std::vector<DryCall>& calls, const CExportOptions& options) {
  struct Place {
    size_t call, launch;
  };
  std::vector<Place> places;
  Images images;
  for (size_t c = 0; c < calls.size(); ++c) {
    images.emplace_back(calls[c].launches.size());
    for (size_t i = 0; i < calls[c].launches.size(); ++i) places.push_back({c, i});
  }
  runtime::Runtime& runtime = runtime::Runtime::instance();
  runtime::run_in_parallel(places.size(), options.jobs, {}, [&](size_t i) {
    const auto [c, launch] = places[i];
    images[c][launch] = runtime.image(calls[c].launches[launch].request, options.targets[c]);
  });
  return images;
}

CFiles export_c(const kernels::OpInfo& op, const CExportOptions& options) {
  check_exportable(op);
  const std::string name = options.name.empty() ? op.name : options.name;
  check_name(op.name, name);
  const kernels::BenchCase example =
      options.case_of.empty() ? op.examples.at(0) : op.case_of(options.case_of);
  CCall call =
      op.family == kOwnFamily ? own_c_call(op, example, options) : op_c_call(op, example, options);
  call.name = name;
  call.op = op.name;
  for (CTarget& target : call.targets) {
    for (const CLaunch& launch : target.launches) {
      call.has_barrier = call.has_barrier || launch.image->cooperative;
    }
  }
  return c_files(call);
}

void check_replaceable(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return;
  std::ifstream file(path, std::ios::binary);
  std::string line;
  std::getline(file, line);
  if (line.find(kWrittenBy) != std::string::npos) return;
  throw Error({.kind = ErrorKind::argument,
               .what = fmt::format("{} is another's file", path),
               .argument = "out",
               .expected = "a folder without it, or a file that `tessera compile` wrote"});
}

}  // namespace tessera::tools
