// Emitter: assertions, printing, the author's own device functions, and the order of kernels in a
// stream.

#include <fmt/format.h>

#include "codegen/cuda/emitter.h"
#include "codegen/cuda/literal.h"
#include "codegen/print_format.h"

namespace tessera::codegen::cuda {
namespace {

/// `text` as a C++ string literal.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte > '~') {  // NVRTC takes no bytes that are not UTF-8
      out += fmt::format("\\{:03o}", byte);
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

void Emitter::print(const Present& present) {
  bind(present.var, names_.of(present.array.get()) + " != nullptr");
}

void Emitter::print(const Assert& check) {
  if (check.otherwise == Otherwise::report) {
    out_.line(fmt::format("if (!({})) {}({});", expressions_.value(check.condition),
                          expressions_.call("report"), check.report + 1));
    return;
  }
  const std::string call =
      fmt::format("__assertfail({}, {}, {}, {}, 1);", quoted(check.message),
                  quoted(loc_.known() ? loc_.file : ""), loc_.line, quoted(program_.name));
  out_.open(fmt::format("if (!({}))", expressions_.value(check.condition)));
  out_.directive(call);  // a line break must not fall into a text
  out_.close();
}

void Emitter::print(const Print& print) {
  if (print.is_mark()) {
    out_.line(
        fmt::format("{}({}, {});", expressions_.call("note_mark"), next_mark_, print.event + 1));
    return;
  }
  std::string args;
  for (const Expr& arg : print.args) {
    const bool small = is_small_float(arg->type);
    args += ", " + (small ? expressions_
                                .convert(DType::f32, arg->type, {expressions_.value(arg)},
                                         ValueRole::operand)
                                .text
                          : expressions_.value(arg));
  }
  out_.directive(fmt::format("printf({}{});", quoted(print_format(print)), args));
}

void Emitter::print(const Dependency& dependency) {
  const bool waits = dependency.kind == ir::DependencyKind::wait;
  out_.line(expressions_.call(waits ? "wait_for_previous_kernel" : "let_next_kernel_start") +
            "();");
}

void Emitter::print(const ExternCall& call) {
  const ir::ExternFunction& function = *call.function;
  calls_author_text_ = true;
  if (!function.source.empty() && extern_names_.insert(function.name).second) {
    extern_text_ += function.source + "\n";
    // The author's text may name any type of the generated one.
    for (const DType type : {DType::bf16, DType::f16, DType::u32, DType::i64, DType::u64}) {
      expressions_.type(type);
    }
  }
  std::string args;
  for (const Expr& arg : call.args) {
    if (!args.empty()) args += ", ";
    args += expressions_.value(arg);
  }
  const std::string text = fmt::format("{}({})", function.name, args);
  if (usage_.is_used(*call.var)) {
    bind(call.var, text);
  } else {
    out_.line(text + ";");
  }
}

}  // namespace tessera::codegen::cuda
