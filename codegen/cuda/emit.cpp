#include "codegen/cuda/emit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/cuda/emitter.h"
#include "codegen/cuda/prelude.h"
#include "codegen/lower.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {
namespace {

/// "// name: grid (..), 128 threads, 4096 bytes of shared memory"
std::string headline(const Program& program) {
  std::vector<std::string> extents;
  for (const Expr& extent : program.grid) extents.push_back(to_string(extent));
  std::string text = fmt::format("// {}: grid ({}), {} threads", program.name,
                                 fmt::join(extents, ", "), program.threads);
  if (program.cooperative) text += ", launched cooperatively";
  if (program.cluster > 1) text += fmt::format(", clusters of {}", program.cluster);
  if (program.shared_bytes > 0) {
    text += fmt::format(", {} bytes of shared memory", program.shared_bytes);
  }
  return text + "\n";
}

KernelParam kernel_param(const Param& param) {
  TESSERA_CHECK((param.array != nullptr) != (param.var != nullptr),
                fmt::format("parameter '{}' is an array or a variable", param.name));
  if (param.array) return {param.name, true, param.array->dtype};
  return {param.name, false, param.var->type};
}

KernelParam kernel_param(const Program& program, const TensorMap& map) {
  const auto tensor = std::find_if(program.params.begin(), program.params.end(),
                                   [&](const Param& p) { return p.array == map.tensor; });
  const bool is_written = static_cast<bool>(map.tensor->address);
  TESSERA_CHECK(is_written || tensor != program.params.end(),
                fmt::format("map '{}' of what is no parameter", map.name));
  const auto at = static_cast<int>(tensor - program.params.begin());
  return {map.name, false, map.tensor->dtype,
          TensorMapParam{is_written ? TensorMapParam::kNoTensor : at, map.box,
                         static_cast<int>(map.swizzle)}};
}

/// "// a_map: a in boxes of 128 x 64, swizzle 128": facts that the text does not hold otherwise.
std::string map_lines(const Program& program) {
  std::string text;
  for (const TensorMapRef& map : program.maps) {
    text += fmt::format("// {}: {} in boxes of {}, swizzle {}\n", map->name, map->tensor->name,
                        fmt::join(map->box, " x "), map->swizzle);
  }
  return text;
}

}  // namespace

KernelSource emit(const Program& program) {
  const Program finished = finish(program);
  const Emitter emitter(finished);
  KernelSource source;
  source.op = program.name;
  source.entry = "tessera_" + program.name;
  source.text = device_functions(emitter.called(), program.target) + emitter.matrix_functions() +
                emitter.extern_text() + headline(program) + map_lines(program);
  const auto lines_before =
      static_cast<int>(std::count(source.text.begin(), source.text.end(), '\n'));
  source.text += emitter.text();
  source.origins = emitter.origins();
  for (LineOrigin& origin : source.origins) origin.line += lines_before;
  source.calls_author_text = emitter.calls_author_text();
  for (const Param& param : program.params) source.params.push_back(kernel_param(param));
  for (const TensorMapRef& map : program.maps) {
    source.params.push_back(kernel_param(program, *map));
  }
  source.threads = program.threads;
  source.shared_bytes = program.shared_bytes;
  source.cluster = program.cluster;
  source.cooperative = program.cooperative;
  source.waits_for_previous = emitter.waits_for_previous();
  return source;
}

std::string emit_kernel_text(const Program& program) {
  const Program finished = finish(program);
  const Emitter emitter(finished);
  std::string text = headline(program) + map_lines(program);
  const auto& called = emitter.called();
  if (!called.empty()) text += fmt::format("// device functions: {}\n", fmt::join(called, ", "));
  return text + emitter.text();
}

}  // namespace tessera::codegen::cuda
