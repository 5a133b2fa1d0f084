// Builder: optional tensors, and tensors at run-time addresses.

#include <fmt/format.h>

#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

constexpr int64_t kMapWords = 16;  // u64
constexpr int64_t kMapAlign = 128;

/// Sets where the map of `tensor` is.
void set_map(const Recorder& r, ir::Buffer& tensor, const ir::Region& row, SourceLoc loc) {
  const ir::Buffer& memory = *row.buffer;
  const bool is_table = memory.space == ir::Space::global && memory.is_output && !memory.address &&
                        !memory.optional && memory.dtype == DType::u64 &&
                        memory.align % kMapAlign == 0 && memory.shape.size() == 2 &&
                        ir::is_constant(memory.shape[1], kMapWords) &&
                        ir::is_constant(memory.strides[0], kMapWords);
  const auto is_whole = [](const ir::Expr& extent, int64_t count) {
    return extent && ir::is_constant(extent, count);
  };
  const bool is_row = is_table && (!row.extents[0] || is_whole(row.extents[0], 1)) &&
                      is_whole(row.extents[1], kMapWords) && ir::is_constant(row.offsets[1], 0);
  if (!is_row) {
    r.fail("MAP_PLACE",
           fmt::format("the map of '{}' has no place in '{}'", tensor.name, memory.name), loc,
           "a row of an output u64 [rows, 16] with align 128",
           is_table ? "another part of it" : "another tensor");
  }
  tensor.map = row.buffer;
  tensor.map_row = row.offsets[0];
  r.check_available(memory, loc);
  r.check_in_scope(tensor.map_row, loc);
}

}  // namespace

void Builder::if_present(const Ref& tensor, const std::function<void()>& then,
                         const std::function<void()>& otherwise, SourceLoc loc) {
  Recorder& r = *recorder_;
  const ir::BufferRef& buffer = tensor.region().buffer;
  if (!buffer->optional) {
    then();
    return;
  }
  auto var = r.new_var(buffer->name + "_present", DType::boolean, ir::VarKind::value, loc);
  r.add({ir::Present{var, buffer}, loc});
  const auto recorded = [&] {
    r.present.push_back(buffer->id);
    then();
    r.present.pop_back();
  };
  if_else(Value(&r, ir::var(var)), recorded, otherwise, loc);
}

Ref Builder::tensor_at(Arg address, DType dtype, std::vector<Arg> shape, PointerOptions options,
                       std::string name, SourceLoc loc) {
  Recorder& r = *recorder_;
  check_name(r, name, loc);
  const Value base = address.value();
  if (base.dtype() != DType::u64 && base.dtype() != DType::i64) {
    r.fail("DTYPE", fmt::format("the address of '{}' has the wrong dtype", name), loc, "u64 or i64",
           std::string(tessera::name(base.dtype())));
  }
  if (bits(dtype) < 8) {
    r.fail("DTYPE", fmt::format("'{}' at an address holds less than a byte per element", name), loc,
           "a dtype of whole bytes", std::string(tessera::name(dtype)));
  }
  ir::Buffer buffer;
  buffer.name = std::move(name);
  buffer.dtype = dtype;
  buffer.space = ir::Space::global;
  buffer.align = options.align == 0 ? bytes(dtype) : options.align;
  check_align(r, buffer, loc);
  buffer.is_output = options.is_output;
  buffer.address = base.expr();
  buffer.loc = loc;
  set_shape(r, buffer, shape, options.strides, loc);
  r.check_in_scope(buffer.address, loc);
  if (options.map) set_map(r, buffer, options.map->region(), loc);
  Ref ref = r.new_buffer(std::move(buffer));
  r.add({ir::Pointer{ref.region().buffer}, loc});
  return ref;
}

}  // namespace tessera::dsl
