#pragma once
// What a statement of the tile IR touches, statements inside it included. Every kind of statement is
// named here: a new one does not compile until its buffers are.

#include <functional>

#include "dsl/ir/tile.h"

namespace tessera::codegen {

using BufferFn = std::function<void(const ir::BufferRef& buffer, bool writes)>;
/// Calls fn for each buffer that is read or written, once per use.
void for_each_use(const ir::Stmt& stmt, const BufferFn& fn);
void for_each_use(const ir::Body& body, const BufferFn& fn);

/// The storage behind a buffer: the buffer itself, or what a view is a view of.
inline const ir::Buffer& storage_of(const ir::Buffer& buffer) {
  return buffer.alias_of ? *buffer.alias_of : buffer;
}

/// Names the memory behind a buffer. Buffers with different numbers share none.
inline int memory_of(const ir::Buffer& buffer) {
  constexpr int kAliased = -1;  // all tensors that may share memory count as one
  return buffer.may_alias ? kAliased : storage_of(buffer).id;
}

/// Where an element or a region of a buffer goes: `move` may change the buffer and its indices.
struct BufferMove {
  std::function<void(ir::Region&)> region;
  std::function<void(ir::BufferRef&, std::vector<ir::Expr>& indices)> element;
};
/// Rewrites each use in `body`, inner statements included.
void move_buffers(ir::Body& body, const BufferMove& move);

}  // namespace tessera::codegen
