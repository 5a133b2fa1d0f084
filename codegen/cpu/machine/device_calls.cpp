// Pointers, assertions, printing and the author's functions, one thread after the other.

#include <fmt/args.h>
#include <fmt/printf.h>

#include <cstdio>
#include <cstring>

#include "codegen/cpu/machine/machine.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {

void Machine::pointer(const Instr& instr) {
  const Array& array = *storage(instr.index).array;
  const int64_t* addresses = column<int64_t>(instr.args[0]);
  int64_t* offsets = column<int64_t>(instr.out);
  const auto start = static_cast<int64_t>(reinterpret_cast<uintptr_t>(frame_));
  for_each_lane(mask(), [&](int lane) {
    if (addresses[lane] == 0) {
      trap(instr, lane,
           {.code = "NULL_TENSOR",
            .what = array.name + " begins at a null address",
            .argument = array.name,
            .expected = "memory",
            .got = "null"});
    }
    if (addresses[lane] % array.align != 0) {
      trap(instr, lane,
           {.code = "MISALIGNED",
            .what = fmt::format("{} begins at an address with another alignment than declared",
                                array.name),
            .argument = array.name,
            .expected = fmt::format("a multiple of {} bytes", array.align),
            .got = fmt::format("a remainder of {} bytes", addresses[lane] % array.align)});
    }
    offsets[lane] = (addresses[lane] - start) / bytes(array.dtype);
  });
}

void Machine::require(const Instr& instr) const {
  const Assert& requirement = code_.requirements[static_cast<size_t>(instr.index)];
  const uint8_t* holds = column<uint8_t>(instr.args[0]);
  for_each_lane(mask(), [&](int lane) {
    if (holds[lane] != 0) return;
    if (requirement.otherwise == Otherwise::report) {
      if (launch_.reported) launch_.reported->store(requirement.report + 1);
      return;
    }
    if (requirement.otherwise == Otherwise::trap) {
      trap(instr, lane,
           {.code = "FALSE_ASSUME",
            .what =
                fmt::format("the assumption {} does not hold", to_string(requirement.condition))});
    }
    trap(instr, lane,
         {.code = "ASSERT",
          .what = fmt::format("assertion failed: {}", requirement.message),
          .expected = to_string(requirement.condition)});
  });
}

namespace {

template <class T>
T value_at(const std::byte* column, int lane) {
  T value;
  std::memcpy(&value, column + static_cast<size_t>(lane) * sizeof(T), sizeof(T));
  return value;
}

void push(fmt::dynamic_format_arg_store<fmt::printf_context>& args, DType type,
          const std::byte* column, int lane) {
  switch (type) {
    case DType::f32:
      return args.push_back(static_cast<double>(value_at<float>(column, lane)));
    case DType::f64:
      return args.push_back(value_at<double>(column, lane));
    case DType::i32:
      return args.push_back(value_at<int32_t>(column, lane));
    case DType::u32:
      return args.push_back(value_at<uint32_t>(column, lane));
    case DType::i64:
      return args.push_back(static_cast<long long>(value_at<int64_t>(column, lane)));
    case DType::u64:
      return args.push_back(static_cast<unsigned long long>(value_at<uint64_t>(column, lane)));
    case DType::i16:
      return args.push_back(int{value_at<int16_t>(column, lane)});
    case DType::u16:
      return args.push_back(int{value_at<uint16_t>(column, lane)});
    case DType::i8:
      return args.push_back(int{value_at<int8_t>(column, lane)});
    default:  // u8 and booleans
      return args.push_back(int{value_at<uint8_t>(column, lane)});
  }
}

}  // namespace

void Machine::print(const Instr& instr) const {
  const PrintStep& step = code_.prints[static_cast<size_t>(instr.index)];
  for_each_lane(mask(), [&](int lane) {
    fmt::dynamic_format_arg_store<fmt::printf_context> args;
    for (const Slot arg : step.args) push(args, arg.type, at(arg), lane);
    const std::string text = fmt::vsprintf(step.format, args);
    if (launch_.print != nullptr) {
      (*launch_.print)(text);
    } else {
      std::fwrite(text.data(), 1, text.size(), stdout);
    }
  });
}

void Machine::extern_call(const Instr& instr) {
  const ExternStep& step = code_.calls[static_cast<size_t>(instr.index)];
  if (step.function->synchronises) barrier(instr);
  std::vector<const void*> args(step.args.size());
  const int size = bytes(instr.out.type);
  for_each_lane(mask(), [&](int lane) {
    for (size_t i = 0; i < args.size(); ++i) {
      args[i] = at(step.args[i]) + lane * bytes(step.args[i].type);
    }
    step.function->model(at(instr.out) + lane * size, args.data());
  });
}

}  // namespace tessera::codegen::cpu
