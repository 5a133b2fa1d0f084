#include "codegen/passes/drain_rows.h"

#include <algorithm>

namespace tessera::codegen {
namespace {

bool starts_rows(const ir::Stmt& stmt) {
  const auto any = [](const ir::Body& body) {
    return std::any_of(body.begin(), body.end(), starts_rows);
  };
  if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) return any(loop->body);
  if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
    return any(branch->then) || any(branch->otherwise);
  }
  const auto* copy = std::get_if<ir::Copy>(&stmt.node);
  return copy != nullptr && copy->mode == ir::CopyMode::async && copy->from.terms.whole_rows;
}

}  // namespace

void drain_rows(ir::Body& body) {
  if (std::any_of(body.begin(), body.end(), starts_rows))
    body.push_back({ir::AsyncWait{-1, 0}, {}});
}

}  // namespace tessera::codegen
