#include "codegen/cuda/wgmma_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace tessera::codegen::cuda {
namespace {

constexpr std::string_view kPrefix = "wgmma_n";

/// As PTX names it.
std::string ptx_name(DType dtype) {
  return dtype == DType::f32 ? "tf32" : dtype == DType::i8 ? "s8" : std::string(name(dtype));
}

std::string cuda_name(DType dtype) {
  return dtype == DType::f32 ? "tf32" : std::string(name(dtype));
}

/// `list` in pieces of about a line, as adjacent string literals with this indentation.
std::string literal_lines(const std::vector<std::string>& list, int indent) {
  std::string text, line;
  for (size_t i = 0; i < list.size(); ++i) {
    line += list[i] + (i + 1 < list.size() ? ", " : "");
    if (line.size() < 80 && i + 1 < list.size()) continue;
    text += fmt::format("{:{}}\"{}\"\n", "", indent, line);
    line.clear();
  }
  return text;
}

/// "f"(c[0]), ... likewise.
std::string operand_lines(const std::vector<std::string>& list, int indent) {
  std::string text, line;
  for (size_t i = 0; i < list.size(); ++i) {
    line += list[i] + (i + 1 < list.size() ? ", " : "");
    if (line.size() < 80 && i + 1 < list.size()) continue;
    while (line.ends_with(' ')) line.pop_back();
    text += fmt::format("{}{:{}}{}", text.empty() ? "" : "\n", "", text.empty() ? 0 : indent, line);
    line.clear();
  }
  return text;
}

}  // namespace

std::string wgmma_name(const Mma& wgmma) {
  const DType a = wgmma.left_dtype(), b = wgmma.right_dtype();
  std::string text = fmt::format("{}{}_{}", kPrefix, wgmma.columns(), cuda_name(a));
  if (a != b) text += fmt::format("_{}", cuda_name(b));
  if (wgmma.a.array) text += "_ra";
  if (wgmma.left.transposed) text += "_ta";
  if (wgmma.right.transposed) text += "_tb";
  if (wgmma.clears) text += "_clear";
  return text;
}

bool is_wgmma_name(std::string_view name) {
  return name.starts_with(kPrefix);
}

std::string wgmma_text(const Mma& wgmma) {
  const DType a = wgmma.left_dtype(), b = wgmma.right_dtype();
  const int64_t n = wgmma.columns(), k = wgmma.right.depth(), sums = n / 2;
  const bool integers = a == DType::i8, in_registers = wgmma.a.array != nullptr;
  const std::string_view sum = integers ? "int" : "float";
  std::vector<std::string> places, outputs, inputs;
  for (int64_t i = 0; i < sums; ++i) {
    places.push_back(fmt::format("%{}", i));
    outputs.push_back(
        fmt::format("\"{}{}\"(c[{}])", wgmma.clears ? "=" : "+", integers ? "r" : "f", i));
  }
  int64_t next = sums;
  std::string left;
  if (in_registers) {
    std::vector<std::string> registers;
    for (int i = 0; i < 4; ++i) {
      registers.push_back(fmt::format("%{}", next++));
      inputs.push_back(fmt::format("\"r\"(x[{}])", i));
    }
    left = fmt::format("{{{}}}", fmt::join(registers, ", "));
  } else {
    left = fmt::format("%{}", next++);
    inputs.push_back("\"l\"(a)");
  }
  const std::string right = fmt::format("%{}", next);
  inputs.push_back("\"l\"(b)");
  // Scales of the operands; then which of them are transposed.
  std::string modes = integers ? "" : ", 1, 1";
  if (bits(a) == 16) {
    if (!in_registers) modes += wgmma.left.transposed ? ", 1" : ", 0";
    modes += wgmma.right.transposed ? ", 1" : ", 0";
  }
  std::string text = fmt::format(
      "// c {5} a * b of four warps: 64 x {0} {5} 64 x {1} * {1} x {0}.\n"
      "__device__ __forceinline__ void {2}({3}* c, {4} a, u64 b) {{\n",
      n, k, wgmma_name(wgmma), sum, in_registers ? "const void*" : "u64",
      wgmma.clears ? "=" : "+=");
  if (in_registers) text += "  unsigned int x[4];\n  memcpy(x, a, sizeof(x));\n";
  text += fmt::format(
      "  asm volatile(\n"
      "      \"{{ .reg .pred add; setp.{}.b32 add, 0, 0; \"\n"
      "      \"wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{} {{\"\n",
      wgmma.clears ? "ne" : "eq", n, k, integers ? "s32" : "f32", ptx_name(a), ptx_name(b));
  text += literal_lines(places, 6);
  text += fmt::format("      \"}}, {}, {}, add{}; }}\"\n", left, right, modes);
  text += fmt::format("      : {}\n", operand_lines(outputs, 8));
  text += fmt::format("      : {} : \"memory\");\n}}\n", fmt::join(inputs, ", "));
  return text;
}

}  // namespace tessera::codegen::cuda
