// Emitter: atomics. CUDA's own functions where they have the dtype, device functions elsewhere.

#include <fmt/format.h>

#include "codegen/cuda/emitter.h"

namespace tessera::codegen::cuda {
namespace {

using ir::AtomicOp;

/// CUDA's function for an operation on a dtype; empty if it has none.
std::string_view native_name(AtomicOp op, DType type) {
  const bool word = type == DType::i32 || type == DType::u32 || type == DType::u64;
  switch (op) {
    case AtomicOp::add:
      return word || type == DType::f32 || type == DType::f64 ? "atomicAdd" : "";
    case AtomicOp::max:
      return word || type == DType::i64 ? "atomicMax" : "";
    case AtomicOp::min:
      return word || type == DType::i64 ? "atomicMin" : "";
    case AtomicOp::exchange:
      return word || type == DType::f32 ? "atomicExch" : "";
    case AtomicOp::compare_exchange:
      return word ? "atomicCAS" : "";
    case AtomicOp::load:
      return "";
  }
  return "";
}

}  // namespace

std::string Emitter::atomic_call(const Atomic& atomic) {
  const DType type = atomic.to.array->dtype;
  if (atomic.to.width > 1) {
    const bool is_shared = atomic.to.array->space == ArraySpace::shared;
    const std::string_view function = is_shared ? "add_shared_run" : "add_run";
    return fmt::format("{}<{}>({}, {})",
                       expressions_.call(fmt::format("{}_{}", function, name(type))),
                       atomic.to.width, expressions_.address(*atomic.to.array, atomic.to.offset),
                       expressions_.address(*atomic.from.array, atomic.from.base));
  }
  const std::string_view native = native_name(atomic.op, type);
  const std::string function =
      native.empty()
          ? expressions_.call(fmt::format("atomic_{}_{}", ir::name(atomic.op), name(type)))
          : std::string(native);
  std::string args = expressions_.address(*atomic.to.array, atomic.to.offset);
  if (atomic.compare) args += ", " + expressions_.value(atomic.compare);
  if (atomic.value) args += ", " + expressions_.value(atomic.value);
  return fmt::format("{}({})", function, args);
}

/// The value that ends the wait outlives the loop; 0 outside of the tensor.
void Emitter::wait(const Atomic& atomic) {
  const std::string call = atomic_call(atomic);
  const std::string& now = names_.declare(atomic.old.get(), atomic.old->name);
  out_.line(fmt::format("{} {} = 0;", expressions_.type(atomic.old->type), now));
  if (atomic.to.guard) out_.open(fmt::format("if ({})", expressions_.index(atomic.to.guard)));
  out_.open("for (;;)");
  out_.line(fmt::format("{} = {};", now, call));
  out_.line(fmt::format("if ({}) break;", expressions_.value(atomic.until)));
  out_.close();
  if (atomic.to.guard) out_.close();
}

void Emitter::print(const Atomic& atomic) {
  if (atomic.until) return wait(atomic);
  const bool ordered = atomic.order == ir::MemoryOrder::acq_rel;
  if (ordered) out_.line("__threadfence();");
  const std::string call = atomic_call(atomic);
  const bool wanted = atomic.old && usage_.is_used(*atomic.old);
  if (atomic.to.guard && wanted) {
    bind(atomic.old,
         fmt::format("{} ? {} : 0",
                     expressions_.print(atomic.to.guard, ValueRole::index, Precedence::logical_or),
                     call));
  } else if (wanted) {
    bind(atomic.old, call);
  } else if (atomic.to.guard) {
    out_.line(fmt::format("if ({}) {};", expressions_.index(atomic.to.guard), call));
  } else {
    out_.line(call + ";");
  }
  if (ordered) out_.line("__threadfence();");
}

}  // namespace tessera::codegen::cuda
