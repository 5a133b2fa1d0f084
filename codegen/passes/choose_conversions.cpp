#include "codegen/passes/choose_conversions.h"

#include <fmt/format.h>

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

/// True for floats of 16 bits and below, which the GPU converts from f32 in pairs.
bool is_narrow_float(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::e4m3 ||
         dtype == DType::e5m2 || dtype == DType::e2m1;
}

bool has_conversion(DType to, DType from, int elements) {
  switch (elements) {
    case 8:
      return to == DType::e2m1 && from == DType::f16;
    case 4:
      return (to == DType::e4m3 || to == DType::e2m1) && from == DType::f32;
    case 2:
      return is_narrow_float(to) && to != from && from != DType::f64;
    default:
      return true;
  }
}

}  // namespace

void choose_conversions(Program& program) {
  walk(program.body, [](Stmt& stmt) {
    auto* convert = std::get_if<Convert>(&stmt.node);
    if (convert == nullptr) return;
    const DType to = convert->into.array->dtype, from = convert->from.array->dtype;
    int elements = 8;
    while (convert->width % elements != 0 || !has_conversion(to, from, elements)) elements /= 2;
    convert->at_once = elements;
  });
}

std::vector<std::string> conversion_notes(const Program& program) {
  std::vector<std::string> notes;
  walk(program.body, [&](const Stmt& stmt) {
    const auto* convert = std::get_if<Convert>(&stmt.node);
    if (convert == nullptr || convert->width == 1) return;
    notes.push_back(fmt::format("{}: {} -> {}: {} elements, {} at once", to_string(stmt.loc),
                                name(convert->from.array->dtype), name(convert->into.array->dtype),
                                convert->width, convert->at_once));
  });
  return notes;
}

}  // namespace tessera::codegen
