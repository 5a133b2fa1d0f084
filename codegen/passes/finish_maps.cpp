#include "codegen/passes/finish_maps.h"

#include <fmt/format.h>

#include "codegen/thread_ir/walk.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

void finish_maps(const Program& program, Body& body) {
  for (size_t i = 0; i < body.size(); ++i) {
    for_each_body(body[i], [&](Body& inner) { finish_maps(program, inner); });
    auto* const write = std::get_if<WriteMap>(&body[i].node);
    if (write == nullptr) continue;
    for (const TensorMapRef& map : program.maps) {
      if (map->tensor != write->tensor) continue;
      if (write->map) {
        throw Error(
            {.kind = ErrorKind::program,
             .op = program.name,
             .what = fmt::format("the place of the map of '{}' holds one map", write->tensor->name),
             .argument = write->tensor->name,
             .expected = "copies to tiles of one layout",
             .got = "of another",
             .hint = "begin it twice, with a place for each map",
             .code = "COPY_ENGINE",
             .loc = body[i].loc});
      }
      write->map = map;
    }
    if (write->map) continue;
    body.erase(body.begin() + static_cast<std::ptrdiff_t>(i));
    --i;
  }
}

}  // namespace

void finish_maps(Program& program) {
  finish_maps(program, program.body);
}

}  // namespace tessera::codegen
